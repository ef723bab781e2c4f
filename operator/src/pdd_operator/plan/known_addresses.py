"""The addresses that the front router was last given, kept while the other site cannot be asked."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pdd_operator.desired.router import CONFIG_KEY


def known_addresses(config_map: Mapping[str, Any] | None, site: str) -> Sequence[str]:
    """The site's addresses in the front router's ConfigMap; none where it says nothing readable."""
    if config_map is None:
        return []
    try:
        content = json.loads(config_map["data"][CONFIG_KEY])
        return next(list(each["addresses"]) for each in content["sites"] if each["name"] == site)
    except (KeyError, TypeError, ValueError, StopIteration):
        return []
