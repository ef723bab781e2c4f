"""Quantities, the schema and its drift."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from pdd_operator.api.crd import definitions, files
from pdd_operator.api.quantity import bits_per_second, micros

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "value"), [("10G", 10**10), ("100M", 10**8), ("1.5G", 1_500_000_000), ("64k", 64_000), ("7", 7)]
)
def test_bit_rates(text: str, value: int) -> None:
    assert bits_per_second(text) == value


@pytest.mark.parametrize(("text", "value"), [("500ms", 500_000), ("2s", 2_000_000), ("30us", 30)])
def test_durations(text: str, value: int) -> None:
    assert micros(text) == value


@pytest.mark.parametrize("text", ["", "10g", "1e3", "-1M", "10 M"])
def test_no_bit_rate(text: str) -> None:
    with pytest.raises(ValueError, match="bit rate"):
        bits_per_second(text)


@pytest.mark.parametrize("text", ["", "1m", "1.5s", "-1s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        micros(text)


def _walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _walk(child, f"{path}.{name}")
    if "items" in schema:
        yield from _walk(schema["items"], f"{path}[]")


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each["spec"]["names"]["kind"])
def test_every_field_is_described_and_none_is_a_float(definition: dict[str, Any]) -> None:
    (version,) = definition["spec"]["versions"]
    for path, schema in _walk(version["schema"]["openAPIV3Schema"], ""):
        if path != ".metadata" and not path.endswith("[]"):
            assert schema.get("description"), f"{path} has no description"
        assert schema.get("type") != "number", f"{path} is a float"
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), f"{path} has no type"


@pytest.mark.parametrize("path", files())
def test_generated_files_are_current(path: str) -> None:
    assert (ROOT / path).read_text() == files()[path], "stale; run `make crds`"
