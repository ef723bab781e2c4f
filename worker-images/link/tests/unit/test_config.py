from pathlib import Path

import pytest

from pdd_link.config import ConfigError, Router, load

CONFIG = """{"link": "a-b", "site": "site-a", "bandwidthBitsPerSecond": 100000000, "peers": [
 {"site": "site-b", "host": "10.1.2.3", "probePort": 7401, "router": {"host": "10.1.2.4", "port": 8443}},
 {"site": "site-b", "host": "fd00::2", "probePort": 7401, "router": null}]}"""


def test_it_is_read_as_the_operator_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "link.json"
    file.write_text(CONFIG)
    config = load(file)
    assert (config.link, config.site, config.bandwidth_bits_per_second) == ("a-b", "site-a", 100_000_000)
    assert [peer.address for peer in config.peers] == ["10.1.2.3:7401", "[fd00::2]:7401"]
    assert [peer.router for peer in config.peers] == [Router(host="10.1.2.4", port=8443), None]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("not json", "document"),
        ("{}", "bandwidthBitsPerSecond"),
        (CONFIG.replace("100000000", '"100M"'), "bandwidthBitsPerSecond"),
        (CONFIG.replace("100000000", "0"), "bandwidthBitsPerSecond"),
        (CONFIG.replace("8443", "70000"), "peers.0.router.port"),
        (CONFIG.replace('"link"', '"surprise": 1, "link"'), "surprise"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "link.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"link.json: .*{named}"):
        load(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.json: cannot be read: No such file"):
        load(tmp_path / "absent.json")
