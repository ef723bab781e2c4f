"""Tools and facts that several unit tests need."""

import os
import pathlib
import shutil

import pytest


@pytest.fixture(scope="session")
def helm() -> str:
    """helm on PATH or in the cache."""
    cache = pathlib.Path(os.environ.get("PDD_CACHE", "/var/cache/pdd"))
    built = sorted(path for path in cache.glob("bin/*/helm") if path.parent.suffix != ".partial")
    found = shutil.which("helm") or (str(built[-1]) if built else None)
    if found is None:
        pytest.skip("helm is neither on PATH nor in the cache; `make binaries` builds it")
    return found
