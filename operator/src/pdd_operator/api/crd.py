"""Writes the CRDs into `crds/` and into their chart: `python -m pdd_operator.api.crd [--check]`."""

import argparse
import pathlib
import sys
from typing import Any, Literal

import yaml

from pdd_operator.api.base import GROUP, VERSION, Model
from pdd_operator.api.member_cluster import MemberCluster
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.schema import structural
from pdd_operator.api.wan_link import WANLink

HEADER = "# Generated from operator/src/pdd_operator/api by `python -m pdd_operator.api.crd`. Do not edit.\n"


def _column(name: str, path: str, description: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description}


def _condition(name: str, condition: str) -> dict[str, Any]:
    return _column(name, f'.status.conditions[?(@.type=="{condition}")].status', f"Condition {condition}.")


_AGE = _column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")


def _definition(
    model: type[Model],
    *,
    scope: Literal["Cluster", "Namespaced"],
    short_name: str,
    columns: list[dict[str, Any]],
) -> dict[str, Any]:
    kind = model.__name__
    plural = kind.lower() + "s"
    schema = structural(model)
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["apiVersion"] = {"type": "string", "description": "Version of this API."}
    schema["properties"]["kind"] = {"type": "string", "description": "The kind of object."}
    schema["required"] = ["spec"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": ["pdd"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def definitions() -> list[dict[str, Any]]:
    """The three CRDs."""
    return [
        _definition(
            MemberCluster,
            scope="Cluster",
            short_name="mc",
            columns=[
                _condition("Ready", "Ready"),
                _column("Version", ".status.kubernetesVersion", "Kubernetes version."),
                _column("Chips", ".status.chips", "Free of allocatable chips by pool."),
                _AGE,
            ],
        ),
        _definition(
            WANLink,
            scope="Cluster",
            short_name="wl",
            columns=[
                _condition("Ready", "Ready"),
                _column("Bandwidth", ".spec.bandwidth", "Leased rate in bit/s."),
                _column("RTT", ".status.roundTrip", "Median round trip."),
                _AGE,
            ],
        ),
        _definition(
            PDDDeployment,
            scope="Namespaced",
            short_name="pddd",
            columns=[
                _condition("Ready", "Ready"),
                _column("P", ".status.summary.prefill", "Prefill, ready of desired."),
                _column("RLD", ".status.summary.relayDecode", "Relay decode, ready of desired."),
                _column("MD", ".status.summary.mainDecode", "Main decode, ready of desired."),
                _condition("Link", "LinkReady"),
                _column("URL", ".status.endpoint", "The OpenAI-compatible API."),
                _AGE,
            ],
        ),
    ]


def files() -> dict[str, str]:
    """Path in the repository to text: the plain definitions, and the same ones in the chart that keeps them."""
    texts = {}
    for definition in definitions():
        name = f"{definition['metadata']['name']}.yaml"
        texts[f"crds/{name}"] = _yaml(definition)
        kept = {**definition["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
        texts[f"charts/pdd-crds/templates/{name}"] = _yaml({**definition, "metadata": kept})
    return texts


def _yaml(definition: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(definition, sort_keys=False, width=110, allow_unicode=True)


def main() -> int:
    """Write the files, or with --check say which of them are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is stale")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(), help="the repository")
    options = parser.parse_args()
    stale = {
        path: text
        for path, text in files().items()
        if not (options.root / path).exists() or (options.root / path).read_text() != text
    }
    if options.check:
        for path in stale:
            print(f"{path} is stale; run `make crds`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        (options.root / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
