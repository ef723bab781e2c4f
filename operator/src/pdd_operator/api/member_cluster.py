"""MemberCluster: a Kubernetes cluster that the operator may put roles into, and its chips."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdd_operator.api.base import API_VERSION, Conditions, Metadata, Model, Name, Price, Status, listed_by, rule
from pdd_operator.api.pod import Toleration


class InCluster(Model):
    """The cluster that the operator itself runs in."""


class KubeconfigSecretRef(Model):
    """A Secret of the hub with a kubeconfig. Only inline credentials are read, never files or commands."""

    namespace: Name = Field(description="Namespace of the Secret on the hub.")
    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Name of the Secret.")
    key: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        default="kubeconfig", description="The key that holds the kubeconfig."
    )


class NodeSelector(Model):
    """Which nodes belong to a pool."""

    match_labels: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        min_length=1, max_length=8, description="Labels that every node of the pool carries."
    )


class Chip(Model):
    """What one chip can do, in the four dimensions in which chips are judged, and what it costs."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(description="The chip's model.")
    peak_tflops: int = Field(
        alias="peakTFLOPS", ge=1, description="Peak dense compute at the serving precision, TFLOP/s."
    )
    memory_gib: int = Field(alias="memoryGiB", ge=1, description="Memory, GiB.")
    memory_gbps: int = Field(alias="memoryGBps", ge=1, description="Memory bandwidth, GB/s.")
    interconnect_gbps: int = Field(
        alias="interconnectGBps", ge=1, description="Bandwidth to the other chips of its server, GB/s."
    )
    price_per_hour: Price = Field(description='Price of one chip for one hour, a decimal such as "2.10".')


class NodePool(Model):
    """Nodes with one kind of chip."""

    name: Name = Field(description="The name by which a PDDDeployment's roles choose the pool.")
    selector: NodeSelector = Field(description="Which nodes belong to it.")
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = Field(
        default=[], description="Taints of its nodes that the pods of a role tolerate."
    )
    resource_name: Annotated[
        str,
        Field(
            max_length=317,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
    ] = Field(description="The extended resource by which pods ask for its chips, such as nvidia.com/gpu.")
    chip: Chip = Field(description="The chip.")


class MemberClusterSpec(Model):
    """How to reach the cluster, and its chips."""

    in_cluster: InCluster | None = Field(
        default=None, description="Set (to {}) when the hub is this member: the operator's own credentials."
    )
    kubeconfig_secret_ref: KubeconfigSecretRef | None = Field(
        default=None, description="Credentials of another cluster, in a Secret of the hub."
    )
    agent_namespace: Name = Field(
        default="pdd-system",
        description="Namespace of the link agents there: the one that the chart pdd-member is installed in.",
    )
    node_pools: Annotated[list[NodePool], Field(min_length=1, max_length=16, json_schema_extra=listed_by("name"))] = (
        Field(description="Its chips, by pool.")
    )

    rules: ClassVar = [
        rule(
            "has(self.inCluster) != has(self.kubeconfigSecretRef)",
            "set exactly one of inCluster and kubeconfigSecretRef",
        ),
        rule(
            "self.agentNamespace == oldSelf.agentNamespace",
            "agentNamespace is immutable: link agents would be left in the old one; create another MemberCluster",
        ),
    ]


class Chips(Model):
    """Chips of a pool, counted over its ready nodes."""

    allocatable: int = Field(description="Chips that the kubelets offer.")
    free: int = Field(
        description="Of these, chips that no pod of a PDDDeployment asks for. "
        "The operator does not see other tenants' pods."
    )


class NodePoolStatus(Model):
    """What was found of a pool."""

    name: str = Field(description="The pool.")
    nodes: int = Field(description="Nodes that match its selector.")
    ready: int = Field(description="Of these, nodes that are ready and schedulable.")
    chips: Chips = Field(description="Its chips.")


class MemberClusterStatus(Status):
    """What was found of the cluster."""

    conditions: Conditions = Field(
        default=[], description="Ready: True when the API server answers; Unknown while it does not."
    )
    kubernetes_version: str | None = Field(default=None, description="Version of its API server.")
    lost_since: str | None = Field(
        default=None,
        json_schema_extra={"format": "date-time"},
        description="Since when the API server has not answered; absent while it does.",
    )
    node_pools: Annotated[list[NodePoolStatus], Field(json_schema_extra=listed_by("name"))] = Field(
        default=[], description="Its chips, by pool; the last known ones while the cluster is lost."
    )
    chips: str | None = Field(default=None, description="Free of allocatable chips by pool, for kubectl get.")


class MemberCluster(Model):
    """A Kubernetes cluster that the operator may put roles into."""

    api_version: Literal["pdd.dev/v1alpha1"] = API_VERSION
    kind: Literal["MemberCluster"] = "MemberCluster"
    metadata: Metadata
    spec: MemberClusterSpec = Field(description="How to reach the cluster, and its chips.")
    status: MemberClusterStatus = Field(
        default_factory=MemberClusterStatus, description="What was found of the cluster."
    )

    rules: ClassVar = [
        rule(
            "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            "the name must be a DNS label of at most 63 characters",
        )
    ]
