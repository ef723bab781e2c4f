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
    reach: Literal["NodePort", "PodNetwork", "LoadBalancer"] = Field(
        default="NodePort",
        description="How the other end reaches this one's routers and link agents. NodePort: at the nodes' internal "
        "addresses. PodNetwork: at the pods' own. LoadBalancer: at the address that the cluster's load balancer gives. "
        "KV always goes from pod to pod.",
    )

    rules: ClassVar = [
        rule("self.reach == 'NodePort'", "reach PodNetwork and LoadBalancer are not built yet; use NodePort")
    ]


class LinkBudget(Model):
    """What the line may cost a request."""

    round_trip: Duration | None = Field(
        default=None, description="The most that the median round trip may take, such as 30ms."
    )
    jitter: Duration | None = Field(
        default=None,
        description="The most by which two successive round trips may differ on average, such as 2ms.",
    )
    loss_percent: Price | None = Field(
        default=None, description='The most packets that may be lost one way, in percent, such as "0.1".'
    )


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
    """Round trip times."""

    p50: int = Field(description="Median, microseconds.")
    p99: int = Field(description="99th percentile, microseconds.")


class LinkPath(Model):
    """One direction of the line in one traffic class as measured: numbers are rounded, and written again only when they
    change notably."""

    from_: str = Field(alias="from", description="The cluster that sends.")
    to: str = Field(description="The cluster that receives.")
    traffic_class: Literal["EF", "CS1"] = Field(
        default="EF", description="EF: control and tokens. CS1: KV, and all other bulk."
    )
    round_trip_micros: RoundTrip | None = Field(default=None, description="Round trip times, as the sender sees them.")
    jitter_micros: int | None = Field(
        default=None, description="Mean difference of successive round trips, microseconds."
    )
    loss_percent: str | None = Field(default=None, description="Packets lost in this direction, percent.")
    mtu_bytes: int | None = Field(
        default=None, description="The largest IP packet that crosses whole in this direction, bytes."
    )


class WANLinkStatus(Status):
    """The line as measured."""

    conditions: Conditions = Field(
        default=[],
        description="Provisioned: the link agents run at both ends. Established: they know each other. Reachable: both "
        "directions work. PathMTUValid: full-size packets cross. LatencyWithinBudget, LossWithinBudget: against "
        "spec.budget. Ready: requests may use the line. Unknown where nothing recent was measured.",
    )
    paths: Annotated[list[LinkPath], Field(json_schema_extra=listed_by("from", "to", "trafficClass"))] = Field(
        default=[], description="What the link agents measured."
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
