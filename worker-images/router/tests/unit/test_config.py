import pytest

from pdd_router.config import ConfigError, FrontConfig, MainConfig, parse

FRONT = """{"mode": "front", "deployment": "d", "namespace": "llm", "site": "site-a", "model": "m",
 "services": {"prefill": "a-prefill", "relayDecode": "a-relay-decode", "renderer": "a-renderer"},
 "sites": [{"name": "site-b", "link": "a-b", "addresses": ["10.0.0.11:30080"],
            "bandwidthBitsPerSecond": 100000000}],
 "routing": {"toleratedWaitMillis": 500, "requestOverrides": "Refused"}}"""
MAIN = """{"mode": "main", "deployment": "d", "namespace": "llm", "site": "site-b", "model": "m",
 "services": {"mainDecode": "a-main-decode"}}"""


def test_the_mode_decides_the_shape() -> None:
    front, main = parse(FRONT, source="f"), parse(MAIN, source="m")
    assert isinstance(front, FrontConfig)
    assert front.sites[0].bandwidth_bits_per_second == 100_000_000
    assert isinstance(main, MainConfig)
    assert main.services.main_decode == "a-main-decode"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{}", "mode"),
        ("not json", "document"),
        (FRONT.replace('"link": "a-b",', ""), "sites.0.link"),
        (FRONT.replace("100000000", "0"), "bandwidthBitsPerSecond"),
        (FRONT.replace('"Refused"', '"Maybe"'), "requestOverrides"),
        (MAIN.replace('"services"', '"surprise": 1, "services"'), "surprise"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"router.json: .*{named}"):
        parse(text, source="router.json")
