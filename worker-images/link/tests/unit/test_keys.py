from pathlib import Path

import pytest

from pdd_link.config import ConfigError
from pdd_link.keys import load

NEW, OLD = b"n" * 32, b"o" * 32


def test_the_previous_key_is_accepted_too(tmp_path: Path) -> None:
    (tmp_path / "probe.key").write_bytes(NEW)
    assert load(tmp_path).accepted == [NEW]
    (tmp_path / "probe.key.previous").write_bytes(OLD)
    keys = load(tmp_path)
    assert (keys.probe, keys.accepted, keys.tls) == (NEW, [NEW, OLD], None)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "probe.key: cannot be read"),
        ({"probe.key": b"short"}, "probe.key: has 5 bytes, expected 32"),
        ({"probe.key": NEW, "probe.key.previous": b""}, "previous: has 0 bytes"),
        ({"probe.key": NEW, "tls.crt": b""}, "go together"),
        ({"probe.key": NEW, "tls.crt": b"x", "tls.key": b"SECRET", "ca.crt": b"x"}, "cannot be used"),
    ],
)
def test_what_is_wrong_is_told_and_no_key(tmp_path: Path, files: dict[str, bytes], told: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=told) as refused:
        load(tmp_path)
    assert "SECRET" not in str(refused.value)


def test_keys_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "probe.key").write_bytes(NEW)
    (tmp_path / "probe.key.previous").write_bytes(OLD)
    assert "nnn" not in repr(load(tmp_path))
    assert "ooo" not in repr(load(tmp_path))
