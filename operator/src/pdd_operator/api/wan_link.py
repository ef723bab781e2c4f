"""WANLink: the line between two member clusters."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdd_operator.api.base import (
    API_VERSION,
    Conditions,
    Duration,
    Metadata,
    Model,
    Name,
    Price,
    Status,
    listed_by,
    rule,
)


class LinkEnd(Model):
    """One end of the line."""

    cluster: Name = Field(description="Name of the MemberCluster at this end.")


class LinkBudget(Model):
    """What the line may cost a request."""

    round_trip: Duration | None = Field(
        default=None, description="The most that the median round trip may take, such as 30ms."
    )
    loss_percent: Price | None = Field(
        default=None, description='The most packets that may be lost, in percent, such as "0.1".'
    )

    rules: ClassVar = [
        rule("!has(self.lossPercent)", "budget.lossPercent is not built yet: loss is not measured; remove it")
    ]


class WANLinkSpec(Model):
    """The line as leased."""

    ends: Annotated[list[LinkEnd], Field(min_length=2, max_length=2, json_schema_extra=listed_by("cluster"))] = Field(
        description="The two clusters that it joins."
    )
    mode: Literal["Routed", "WireGuard", "Delegated"] = Field(
        default="Routed",
        description="Routed: the nodes' networks already reach each other. WireGuard: the operator lays a "
        "tunnel. Delegated: another system carries the traffic.",
    )
    bandwidth: Annotated[str, Field(max_length=16, pattern=r"^[0-9]+(\.[0-9]+)?[kMGT]?$")] = Field(
        description="The leased rate in bit/s, such as 10G."
    )
    budget: LinkBudget = Field(default=LinkBudget(), description="What the line may cost a request.")
    encryption: Literal["None", "Preferred", "Required"] = Field(
        default="None", description="Whether traffic on the line must be encrypted."
    )
    price_per_hour: Price | None = Field(
        default=None, description='Price of the line for one hour, a decimal such as "12.50".'
    )

    rules: ClassVar = [
        rule("self.mode == 'Routed'", "mode WireGuard and mode Delegated are not built yet; use Routed"),
        rule("self.encryption == 'None'", "encryption Preferred and Required are not built yet; use None"),
        rule(
            "self.ends.all(e, oldSelf.ends.exists(o, o.cluster == e.cluster))",
            "ends are immutable; create another WANLink",
        ),
    ]


class RoundTrip(Model):
    """Round trip times, rounded; written again only when they change notably."""

    p50: int = Field(description="Median, microseconds.")
    p99: int = Field(description="99th percentile, microseconds.")


class LinkPath(Model):
    """One direction of the line as measured."""

    from_: str = Field(alias="from", description="The cluster that measures.")
    to: str = Field(description="The cluster that answers.")
    round_trip_micros: RoundTrip | None = Field(default=None, description="Round trip times.")


class WANLinkStatus(Status):
    """The line as measured."""

    conditions: Conditions = Field(
        default=[],
        description="Ready and Reachable: the other end answers; Unknown (NoProbe) until the front router of "
        "a PDDDeployment on this line probes it. LatencyWithinBudget: the median against budget.roundTrip.",
    )
    paths: Annotated[list[LinkPath], Field(json_schema_extra=listed_by("from", "to"))] = Field(
        default=[], description="What front routers measured."
    )
    round_trip: str | None = Field(default=None, description="The median round trip, for kubectl get.")


class WANLink(Model):
    """The line between two member clusters."""

    api_version: Literal["pdd.dev/v1alpha1"] = API_VERSION
    kind: Literal["WANLink"] = "WANLink"
    metadata: Metadata
    spec: WANLinkSpec = Field(description="The line as leased.")
    status: WANLinkStatus = Field(default_factory=WANLinkStatus, description="The line as measured.")

    def joins(self, one: str, other: str) -> bool:
        """Whether this is a line between the two clusters."""
        return {end.cluster for end in self.spec.ends} == {one, other}
