"""`/telemetry` of a front router, as the contract has it (`docs/design/contracts.md`)."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Quantiles(_Wire):
    """Of the round trip, in microseconds."""

    p50: int
    p99: int


class LinkTelemetry(_Wire):
    """One line as the router sees it."""

    link: str
    peer: str
    reachable: bool
    rtt_micros: Quantiles | None = None


class PrefillSide(_Wire):
    """A prefill engine, and what it says of a field."""

    engine: str
    value: str


class OtherSide(PrefillSide):
    """An engine of another role or site."""

    site: str
    role: str


class Mismatch(_Wire):
    """Two engines that cannot work on one KV cache."""

    field: str
    prefill: PrefillSide
    other: OtherSide


class Compatibility(_Wire):
    """What the router found when it compared the engines."""

    checked: int
    mismatches: list[Mismatch] = []


class FrontTelemetry(_Wire):
    """The document. Routers of before the comparison leave `compatibility` out."""

    links: list[LinkTelemetry]
    compatibility: Compatibility | None = None
