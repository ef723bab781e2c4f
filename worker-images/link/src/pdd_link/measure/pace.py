"""How often to probe, so that all probes of a line together stay below a thousandth of it, in each direction.

Every agent of one end probes every agent of the other, and answers its probes: between n and m agents there are n x m
pairs, and one direction of the line carries the requests of the one end and the replies to the other's.
"""

from dataclasses import dataclass

SHARE = 0.001
"""Of the line's bandwidth."""

AGENTS = 2
"""Of one end: the replicas of the Deployment."""

# Of that share.
_ECHOES, _FULL_SIZE, _HANDSHAKES = 0.7, 0.15, 0.15

# Bytes on the wire: a frame's header, checksum, preamble and gap; a probe packet in IPv6; and a TLS handshake in which
# both sides show a chain of two certificates, in the heavier direction.
FRAME = 38
ECHO = FRAME + 40 + 8 + 60
HANDSHAKE = 4000

# Seconds. Faster tells nothing more.
_ECHO_AT_MOST, _FULL_SIZE_AT_MOST, _HANDSHAKE_AT_MOST = 0.1, 2.0, 5.0


@dataclass(frozen=True)
class Pace:
    """Seconds from one probe to the next, on average."""

    bandwidth: int
    """Bits per second of the line."""
    peers: int
    routers: int
    """Of the other end, as the peers name them."""

    @property
    def echo_every(self) -> float:
        """For each peer and each of the two classes."""
        bits = 8 * ECHO * 2 * 2 * AGENTS * self.peers
        return max(_ECHO_AT_MOST, self._seconds(bits, _ECHOES))

    def full_size_every(self, mtu: int) -> float:
        """For each peer."""
        bits = 8 * (FRAME + mtu) * 2 * AGENTS * self.peers
        return max(_FULL_SIZE_AT_MOST, self._seconds(bits, _FULL_SIZE))

    @property
    def handshake_every(self) -> float:
        """For each router. The other end shakes hands with as many of ours."""
        bits = 8 * HANDSHAKE * 2 * AGENTS * self.routers
        return max(_HANDSHAKE_AT_MOST, self._seconds(bits, _HANDSHAKES))

    def _seconds(self, bits: int, share: float) -> float:
        return bits / (self.bandwidth * SHARE * share)
