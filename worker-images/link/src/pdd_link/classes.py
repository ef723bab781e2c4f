"""The traffic classes of the line, as the byte in the IP header (RFC 2474)."""

from pdd_link.packet import Lane

EXPEDITED = 0xB8
"""EF: control and tokens."""
BULK = 0x20
"""CS1: the KV cache."""

# Full-size packets are sent as EF, so that a queue full of KV is not taken for a black hole.
TRAFFIC_CLASS = {Lane.EF: EXPEDITED, Lane.CS1: BULK, Lane.FULL_SIZE: EXPEDITED}
ECHOES = (Lane.EF, Lane.CS1)
