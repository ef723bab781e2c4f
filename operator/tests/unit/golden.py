"""Comparison with files that are reviewed like code. `PDD_UPDATE_GOLDEN=1 pytest` writes them anew."""

import os
import pathlib
from typing import Any

import yaml

DIRECTORY = pathlib.Path(__file__).parent / "golden"


def assert_golden(name: str, manifests: list[dict[str, Any]]) -> None:
    """The manifests equal those in `golden/<name>.yaml`."""
    path = DIRECTORY / f"{name}.yaml"
    if os.environ.get("PDD_UPDATE_GOLDEN"):
        path.write_text(yaml.dump_all(manifests, Dumper=_Plain, sort_keys=False, width=110))
    assert manifests == list(yaml.safe_load_all(path.read_text()))


class _Plain(yaml.SafeDumper):
    """No anchors, and text of several lines as such: the files are read by people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Plain.add_representer(str, _Plain.represent_text)
