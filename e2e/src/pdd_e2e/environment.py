"""Which two clusters the suite runs on, and which images: all from the environment, with localkube's as default."""

import os
from dataclasses import dataclass
from pathlib import Path

from pdd_e2e.kube import Cluster

_STATE = Path(os.environ.get("PDD_STATE", "/var/lib/pdd-localkube"))
_CACHE = Path(os.environ.get("PDD_CACHE", "/var/cache/pdd"))

ROOT = Path(__file__).parents[3]


class SetupError(Exception):
    """Names the variable, what it holds and what to do."""


@dataclass(frozen=True)
class Sites:
    """`a` is hub, prefill and relay; `b` is main decode. `b_from_a` is b's kubeconfig with the address that
    pods in a reach it by."""

    a: Cluster
    b: Cluster
    b_from_a: Path

    @property
    def both(self) -> tuple[Cluster, Cluster]:
        return self.a, self.b


@dataclass(frozen=True)
class Images:
    """References that the nodes have or can pull."""

    engine: str
    operator: str
    router: str
    link: str


def sites() -> Sites:
    a = _kubeconfig("PDD_E2E_SITE_A", _STATE / "site-a.kubeconfig")
    b = _kubeconfig("PDD_E2E_SITE_B", _STATE / "site-b.kubeconfig")
    internal = b.with_name("site-b.internal.kubeconfig")
    from_a = _kubeconfig("PDD_E2E_SITE_B_FROM_A", internal if internal.exists() else b)
    return Sites(Cluster("site-a", a), Cluster("site-b", b), from_a)


def images() -> Images:
    """`PDD_E2E_{ENGINE,OPERATOR,ROUTER,LINK}_IMAGE`, else what `make images` made."""
    made = _made_images()
    found = {}
    for name in ("engine", "operator", "router", "link"):
        variable = f"PDD_E2E_{name.upper()}_IMAGE"
        reference = os.environ.get(variable) or made.get(name)
        if not reference:
            raise SetupError(f"no {name} image: run `make images` or set {variable}")
        found[name] = reference
    return Images(**found)


def _made_images() -> dict[str, str]:
    current = _CACHE / "images" / "current"
    if not current.exists():
        return {}
    rows = (line.split("\t") for line in current.read_text().splitlines())
    return {name: reference for name, reference, *_ in rows}


def _kubeconfig(variable: str, default: Path) -> Path:
    path = Path(os.environ.get(variable) or default)
    if not path.exists():
        raise SetupError(f"{variable}: {path} is not there: run `make up` or name a kubeconfig")
    return path
