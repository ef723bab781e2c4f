"""`/v1/measurements` of a link agent, as the contract has it (`docs/design/contracts.md`)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

ClassName = Literal["EF", "CS1"]


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Heard(_Wire):
    """The other end's requests as they come in: that direction works, whatever becomes of the answers."""

    received: int
    last_heard_seconds_ago: int | None = None


class HeardClass(Heard):
    """In one class, from whichever agent."""

    traffic_class: ClassName


class Quantiles(_Wire):
    """Of the round trip, in microseconds."""

    p50: int
    p99: int


class Echoes(_Wire):
    """Of a peer, in one class, over the window."""

    traffic_class: ClassName
    sent: int
    echoed: int
    round_trip_micros: Quantiles | None = None
    jitter_micros: int | None = None
    loss_percent: str | None = None
    forward_loss_percent: str | None = None
    return_loss_percent: str | None = None
    last_echo_seconds_ago: int | None = None


class PathMTU(_Wire):
    """Bytes with the IP header; `forward` to the peer, `return` from it."""

    bytes: int | None = None
    expected_bytes: int
    full_size_passes: bool | None = None
    forward_bytes: int | None = None
    return_bytes: int | None = None


class RouterProbe(_Wire):
    """The last connection to the other end's router."""

    result: str
    message: str


class Peer(_Wire):
    """An agent of the other end."""

    site: str
    host: str
    classes: list[Echoes]
    path_mtu: PathMTU | None = None
    router: RouterProbe | None = None


class Measurements(_Wire):
    """The document of one agent."""

    version: Literal[1]
    link: str
    site: str
    heard: list[HeardClass]
    peers: list[Peer]
