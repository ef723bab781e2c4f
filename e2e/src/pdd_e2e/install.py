"""Installs PDD on the two clusters the way a platform engineer does: helm, a kubeconfig Secret, kubectl apply."""

import subprocess
from typing import Any

import yaml

from pdd_e2e.deployments import NAMESPACE, line, member
from pdd_e2e.environment import ROOT, Images, Sites
from pdd_e2e.kube import Cluster

SYSTEM = "pdd-system"
CHARTS = ROOT / "charts"


def helm(cluster: Cluster, release: str, chart: str, values: dict[str, Any]) -> None:
    """Install or upgrade; returns when its pods are ready."""
    command = [
        "helm",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "upgrade",
        "--install",
        release,
        str(CHARTS / chart),
    ]
    options = ["--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", "3m", "--values", "-"]
    done = subprocess.run(
        [*command, *options], input=yaml.safe_dump(values), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{cluster.name}: helm {release}: {done.stderr.strip()}")


def install(sites: Sites, images: Images) -> None:
    """CRDs and operator on the hub, permissions on both, both members, the line. May be repeated."""
    helm(sites.a, "pdd-crds", "pdd-crds", {})
    helm(sites.b, "pdd-member", "pdd-member", {"namespaces": [{"name": NAMESPACE, "create": True}]})
    helm(
        sites.a,
        "pdd-member",
        "pdd-member",
        {
            "namespaces": [{"name": NAMESPACE, "create": True}],
            "subject": {"name": "pdd-operator", "namespace": SYSTEM},
        },
    )
    for each in (sites.a, sites.b):
        each.kubectl("label", "namespace", SYSTEM, "--overwrite", "pod-security.kubernetes.io/enforce=restricted")
    helm(
        sites.a,
        "pdd-operator",
        "pdd-operator",
        {
            "image": {"reference": images.operator},
            "routerImage": images.router,
            "engineImage": images.engine,
            "linkImage": images.link,
        },
    )
    sites.a.apply(_kubeconfig_secret(sites))
    secret = {"namespace": SYSTEM, "name": sites.b.name}
    sites.a.apply(member(sites.a.name, inCluster={}), member(sites.b.name, kubeconfigSecretRef=secret), line())


def _kubeconfig_secret(sites: Sites) -> dict[str, Any]:
    """Site b's address as pods in a reach it, and the token of the account that pdd-member made there."""
    reached = yaml.safe_load(sites.b_from_a.read_text())["clusters"][0]["cluster"]
    token = sites.b.kubectl("-n", SYSTEM, "create", "token", "pdd-operator", "--duration", "720h").strip()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": sites.b.name, "cluster": reached}],
        "users": [{"name": "pdd-operator", "user": {"token": token}}],
        "contexts": [{"name": sites.b.name, "context": {"cluster": sites.b.name, "user": "pdd-operator"}}],
        "current-context": sites.b.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": sites.b.name, "namespace": SYSTEM},
        "stringData": {"kubeconfig": yaml.safe_dump(kubeconfig)},
    }
