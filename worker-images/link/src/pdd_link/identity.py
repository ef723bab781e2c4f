"""Who an agent is, in its packets."""

from dataclasses import dataclass
from secrets import token_bytes

from pdd_link.packet import tag


@dataclass(frozen=True)
class Identity:
    link: bytes
    site: bytes
    incarnation: bytes
    """New with each start of the process: a count that begins again is not taken for loss."""


def identity(link: str, site: str) -> Identity:
    return Identity(tag(link), tag(site), token_bytes(8))
