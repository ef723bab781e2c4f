"""Writes the CRDs into `crds/`: `python -m pdd_operator.api.crd [--check] [DIRECTORY]`."""

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
    """File name to text."""
    return {
        f"{definition['metadata']['name']}.yaml": HEADER
        + yaml.safe_dump(definition, sort_keys=False, width=110, allow_unicode=True)
        for definition in definitions()
    }


def main() -> int:
    """Write the files, or with --check say which of them are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="*", type=pathlib.Path, default=[pathlib.Path("crds")])
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is stale")
    options = parser.parse_args()
    stale = []
    for directory in options.directory:
        for name, text in files().items():
            path = directory / name
            if path.exists() and path.read_text() == text:
                continue
            stale.append(str(path))
            if not options.check:
                path.write_text(text)
    if options.check and stale:
        print("stale, run `python -m pdd_operator.api.crd`:", *stale, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
