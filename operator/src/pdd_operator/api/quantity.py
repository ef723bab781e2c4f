"""Readings of the API's strings: bit rates and durations, as integers."""

import re
from decimal import Decimal

_BIT_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MICROS = {"us": 1, "ms": 1_000, "s": 1_000_000}


def bits_per_second(quantity: str) -> int:
    """`"10G"` is 10,000,000,000."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)", quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a bit rate such as 100M or 10G")
    return int(Decimal(match[1]) * _BIT_UNITS[match[2]])


def micros(duration: str) -> int:
    """`"30ms"` is 30,000 microseconds."""
    match = re.fullmatch(r"([0-9]+)(us|ms|s)", duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration such as 30ms or 2s")
    return int(match[1]) * _MICROS[match[2]]
