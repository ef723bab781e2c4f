"""The two clusters with PDD installed, and the deployments the proofs share: each started once, when first needed."""

import fcntl
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from pdd_e2e import client, deployments, environment, install, running
from pdd_e2e.environment import Images, Sites
from pdd_e2e.reference import reference

# Order of files: all proofs on the tiny model before those on the real one, so that only one set of engines runs; those
# that replace the front router, and with it the way to it that the others share, after those that need it.
ORDER = ["test_traces", "test_timeline", "test_tokens", "test_parity", "test_sessions", "test_placement", "test_size"]
ORDER += [
    "test_slow_clients",
    "test_line",
    "test_convergence",
    "test_leaving",
    "test_breaking",
    "test_chaos",
    "test_compatible",
]
ORDER += ["test_deletion", "test_real_model"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent.name == "tests" and item.path.parent.parent.name == "e2e"]
    ranked = sorted(here, key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else len(ORDER))
    for place, item in zip([items.index(item) for item in here], ranked, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def images() -> Images:
    return environment.images()


@pytest.fixture(scope="session")
def sites(images: Images) -> Iterator[Sites]:
    """The clusters, for this run alone: what one run breaks another would take for a finding."""
    found = environment.sites()
    name = hashlib.sha256(str(found.a.kubeconfig).encode()).hexdigest()[:12]
    with (Path(tempfile.gettempdir()) / f"pdd-e2e-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install.install(found, images)
        yield found


@pytest.fixture(scope="session")
def tiny(sites: Sites, images: Images) -> Iterator[OpenAI]:
    """The tiny model through the whole product. Stays up afterwards: the next run starts in seconds."""
    for other in sites.a.list(running.KIND, "-n", deployments.NAMESPACE):
        if other["metadata"]["name"] != "tiny":
            sites.a.delete(running.KIND, other["metadata"]["name"], deployments.NAMESPACE)
    sites.a.apply(deployments.tiny(images))
    running.wait_ready(sites.a, "tiny", print)
    with running.endpoint(sites, "tiny") as url:
        yield client.connect(url)


@pytest.fixture(scope="session")
def alone(sites: Sites, images: Images) -> Iterator[OpenAI]:
    """One engine alone with the tiny model: what is right."""
    with reference(sites.a, images.engine, "/models/tiny", "tiny", deployments.TINY_ARGS) as url:
        yield client.connect(url)


@pytest.fixture(scope="session")
def real(sites: Sites, images: Images) -> Iterator[OpenAI]:
    """The demo's deployment, in place of the tiny one."""
    sites.a.delete(running.KIND, "tiny", deployments.NAMESPACE)
    sites.a.apply(deployments.assistant(images))
    running.wait_ready(sites.a, "assistant", print)
    with running.endpoint(sites, "assistant") as url:
        yield client.connect(url)
