"""Which key the two ends of a line share."""

import base64
from collections.abc import Callable, Sequence

KEY_BYTES = 32


def shared_key(held: Sequence[str | None], random: Callable[[int], bytes]) -> str | None:
    """In base64: the one that is held (the first end's, where they differ), or a new one where none is.

    None while it is not known what an end holds: its agents must not be cut off from the other's.
    """
    known = [each for each in held if each is not None]
    if len(known) < len(held):
        return None
    return next(filter(None, known), None) or base64.b64encode(random(KEY_BYTES)).decode()
