"""PDDDeployment: one model served by prefill, relay decode and main decode over two clusters."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pdd_operator.api.base import API_VERSION, Conditions, Duration, Metadata, Model, Name, Status, listed_by, rule
from pdd_operator.api.pod import Args, Env, KeySelector, Quantity, Resources

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Image = Annotated[str, Field(min_length=1, max_length=512)]
AbsolutePath = Annotated[str, Field(max_length=512, pattern=r"^/")]


class HuggingFace(Model):
    """Weights from a Hugging Face repository, downloaded by each engine."""

    repo: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="The repository, such as org/model.")
    revision: Annotated[str, Field(max_length=256)] = Field(
        default="",
        description="Commit, tag or branch; empty is the default branch. Pin a commit in production.",
    )
    token_secret_ref: KeySelector | None = Field(
        default=None,
        description="Access token, in a Secret of this namespace in every member of the deployment.",
    )


class PersistentVolumeClaim(Model):
    """Weights on a volume."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="The claim, in this namespace of every member of the deployment; it is mounted read-only."
    )
    path: Annotated[str, Field(max_length=512, pattern=r"^[^/]")] = Field(
        default=".", description="The model's folder on the volume."
    )


class ImageSource(Model):
    """Weights inside the engine image."""

    path: AbsolutePath = Field(description="The model's folder in the image.")


class ModelSource(Model):
    """Where the weights come from."""

    hugging_face: HuggingFace | None = Field(default=None, description="A Hugging Face repository.")
    persistent_volume_claim: PersistentVolumeClaim | None = Field(default=None, description="A volume.")
    image: ImageSource | None = Field(default=None, description="The engine image itself.")

    rules: ClassVar = [
        rule(
            "[has(self.huggingFace), has(self.persistentVolumeClaim), has(self.image)].filter(set, set).size() == 1",
            "set exactly one of huggingFace, persistentVolumeClaim and image",
        )
    ]


class KVCache(Model):
    """The KV cache's format, the same on every role so that blocks can move between them."""

    block_size: Literal[1, 8, 16, 32, 64, 128] = Field(default=32, description="Tokens in a block.")


class ServedModel(Model):
    """The model."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="What clients send as `model`.")
    source: ModelSource = Field(description="Where the weights come from.")
    max_model_len: int = Field(default=4096, ge=1, description="The longest prompt with its answer, in tokens.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Number format of weights and activations; auto is the model's own."
    )
    kv_cache: KVCache = Field(default=KVCache(), description="The KV cache's format.")


class Engine(Model):
    """What all engines share."""

    image: Image | None = Field(default=None, description="The engine image; empty is the operator's default.")
    image_pull_policy: PullPolicy = Field(default="IfNotPresent", description="When nodes pull the image.")
    args: Args = Field(default=[], description="vLLM arguments, after the operator's own, so that they win.")
    env: Env = Field(default=[], description="Variables of the engines' environment.")
    startup_timeout_seconds: int = Field(
        default=600,
        ge=10,
        le=86400,
        description="How long an engine may take to load its weights before it is started again.",
    )


class RoleEngine(Model):
    """What the engines of one role add to spec.engine."""

    args: Args = Field(default=[], description="vLLM arguments, after those of spec.engine.")
    env: Env = Field(default=[], description="Variables; they win over those of spec.engine.")


class Parallelism(Model):
    """How one instance is spread over chips."""

    tensor: int = Field(default=1, ge=1, le=64, description="Chips that share every layer.")
    pipeline: int = Field(default=1, ge=1, description="Stages that layers are split into.")
    nodes: int = Field(default=1, ge=1, description="Nodes of one instance.")

    rules: ClassVar = [
        rule("self.pipeline == 1", "parallelism.pipeline above 1 is not built yet; use tensor"),
        rule("self.nodes == 1", "parallelism.nodes above 1 is not built yet; use tensor"),
    ]


Replicas = Annotated[int, Field(ge=1, le=1000)]


class Role(Model):
    """Engines of one role in one pool."""

    node_pool: Name = Field(description="Pool of the MemberCluster that the pods run in.")
    replicas: Replicas = Field(default=1, description="Instances.")
    parallelism: Parallelism = Field(default=Parallelism(), description="How one instance is spread over chips.")
    resources: Resources = Field(
        default=Resources(), description="CPU and memory of an instance; chips come from the parallelism."
    )
    engine: RoleEngine = Field(default=RoleEngine(), description="What this role's engines add to spec.engine.")


class Prefill(Role):
    """The engines that compute the prompts' KV cache."""

    cluster: Name = Field(description="MemberCluster of prefill and relay decode; the endpoint is there too.")

    rules: ClassVar = [
        rule("self.cluster == oldSelf.cluster", "prefill.cluster is immutable; create another PDDDeployment")
    ]


class RelayAutoscaling(Model):
    """Bounds between which the operator would size the relay pool."""

    min_replicas: int = Field(default=1, ge=0, description="The fewest instances.")
    max_replicas: int = Field(ge=1, description="The most instances.")


class RelayDecode(Role):
    """The small pool beside prefill that hides the line's latency by decoding at once."""

    autoscaling: RelayAutoscaling | None = Field(default=None, description="Let the operator size the pool.")

    rules: ClassVar = [rule("!has(self.autoscaling)", "relayDecode.autoscaling is not built yet; set replicas")]


class Placement(Role):
    """Main-decode engines in one cluster."""

    cluster: Name = Field(description="MemberCluster of these engines.")


class MainDecode(Model):
    """The engines that decode nearly everything."""

    placements: Annotated[
        list[Placement], Field(min_length=1, max_length=8, json_schema_extra=listed_by("cluster"))
    ] = Field(description="Where they run, by cluster.")

    rules: ClassVar = [
        rule(
            "self.placements.size() == 1",
            "more than one main-decode placement is not built yet; keep exactly one",
        ),
        rule(
            "self.placements.all(p, oldSelf.placements.exists(o, o.cluster == p.cluster))",
            "the cluster of a placement is immutable; create another PDDDeployment",
        ),
    ]


class Router(Model):
    """The routers: the front one at the prefill site, the main one at each main-decode site."""

    replicas: Replicas = Field(default=1, description="Pods of each router.")
    image: Image | None = Field(default=None, description="The router image; empty is the operator's default.")
    image_pull_policy: PullPolicy = Field(default="IfNotPresent", description="When nodes pull the image.")
    resources: Resources = Field(
        default=Resources(requests={"cpu": "100m", "memory": "160Mi"}, limits={"memory": "512Mi"}),
        description="CPU and memory of a router.",
    )


class Renderer(Model):
    """The pods of the engine image that turn chats into token ids and ids into text; no weights, no chip."""

    replicas: Replicas = Field(default=1, description="Pods.")
    resources: Resources = Field(
        default=Resources(requests={"cpu": "100m", "memory": "1Gi"}, limits={"memory": "3Gi"}),
        description="CPU and memory of a renderer.",
    )


class SecretReference(Model):
    """A whole Secret."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Name of the Secret, in this namespace of prefill's cluster."
    )


class ApiKeys(Model):
    """Who may use the API."""

    secret_ref: SecretReference = Field(
        description="The Secret with the keys: each value in it is one valid key, its name there only a label. "
        "A changed Secret is taken up within a minute or two, without a restart."
    )


class Endpoint(Model):
    """The OpenAI-compatible API in prefill's cluster."""

    api_keys: ApiKeys | None = Field(
        default=None,
        description="Keys, one of which every request must carry as its bearer token; empty lets everyone in "
        "who can reach the endpoint.",
    )


class Routing(Model):
    """How requests choose their way."""

    tolerated_wait: Duration = Field(
        default="500ms",
        description="The KV transfer that a user does not notice; a request whose transfer is predicted to "
        "take longer starts on relay decode.",
    )
    request_overrides: Literal["Refused", "Allowed"] = Field(
        default="Refused",
        description="Whether a header may force a pipeline or ask for a trace; Refused answers such a request 403.",
    )
    max_requests: int = Field(
        default=256,
        ge=1,
        description="Requests that one front router works on at once; it answers those beyond with 429 and "
        "Retry-After.",
    )
    handoff: Literal["OneShot", "CatchUp"] = Field(
        default="OneShot",
        description="How relay decode hands over: all tokens at once, or in batches while it goes on.",
    )

    rules: ClassVar = [rule("self.handoff == 'OneShot'", "routing.handoff CatchUp is not built yet; use OneShot")]


class PDDDeploymentSpec(Model):
    """One model over two clusters."""

    model: ServedModel = Field(description="The model.")
    engine: Engine = Field(default=Engine(), description="What all engines share.")
    prefill: Prefill = Field(description="The engines that compute the prompts' KV cache.")
    relay_decode: RelayDecode = Field(
        description="The small pool beside prefill that hides the line's latency; in prefill's cluster."
    )
    main_decode: MainDecode = Field(description="The engines that decode nearly everything.")
    router: Router = Field(default=Router(), description="The routers.")
    renderer: Renderer = Field(default=Renderer(), description="The pods that turn chats into token ids and back.")
    endpoint: Endpoint = Field(default=Endpoint(), description="The OpenAI-compatible API in prefill's cluster.")
    routing: Routing = Field(default=Routing(), description="How requests choose their way.")
    suspend: bool = Field(
        default=False, description="Scale every role to zero and free the chips, as a suspended Job does."
    )
    deletion_policy: Literal["Delete", "Orphan"] = Field(
        default="Delete",
        description="What becomes of the objects in the members when this one is deleted: removed, or left "
        "running, for the next PDDDeployment of the same name to adopt; its pods are replaced then.",
    )

    rules: ClassVar = [
        rule(
            "!self.mainDecode.placements.exists(p, p.cluster == self.prefill.cluster)",
            "prefill and main decode in one cluster are not built yet; name two MemberClusters",
        )
    ]


class RoleStatus(Model):
    """Pods of one role in one cluster."""

    name: str = Field(description="The role: the component label of its pods.")
    cluster: str = Field(description="The MemberCluster.")
    desired: int = Field(description="Pods wanted.")
    ready: int = Field(description="Pods ready; the last known number while the cluster is lost.")


class Summary(Model):
    """Ready of desired pods, for kubectl get."""

    prefill: str = Field(description="Prefill.")
    relay_decode: str = Field(description="Relay decode.")
    main_decode: str = Field(description="Main decode, all placements.")


class PDDDeploymentStatus(Status):
    """What was found of the deployment."""

    conditions: Conditions = Field(
        default=[],
        description="Ready: every role has its pods, the line is not down and no engine is known to differ. "
        "Reconciling: on the way there. Stalled: it will not get there without help. Scheduled: every pod has a "
        "node. LinkReady: the line. KVCompatible: all engines run the same model with the same KV format.",
    )
    endpoint: str | None = Field(
        default=None, description="The OpenAI-compatible API, as reached inside the prefill cluster."
    )
    roles: Annotated[list[RoleStatus], Field(json_schema_extra=listed_by("name", "cluster"))] = Field(
        default=[], description="Pods by role and cluster."
    )
    summary: Summary | None = Field(default=None, description="Ready of desired pods, for kubectl get.")


class PDDDeployment(Model):
    """One model served by prefill, relay decode and main decode over two clusters."""

    api_version: Literal["pdd.dev/v1alpha1"] = API_VERSION
    kind: Literal["PDDDeployment"] = "PDDDeployment"
    metadata: Metadata
    spec: PDDDeploymentSpec = Field(description="The deployment as wanted.")
    status: PDDDeploymentStatus = Field(default_factory=PDDDeploymentStatus, description="What was found of it.")

    rules: ClassVar = [
        rule(
            "self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the name must be a DNS label of at most 50 characters that starts with a letter: it prefixes "
            "the names of Services",
        )
    ]

    @property
    def main_placement(self) -> Placement:
        """The one placement there is for now."""
        return self.spec.main_decode.placements[0]


__all__ = [
    "PDDDeployment",
    "PDDDeploymentSpec",
    "PDDDeploymentStatus",
    "Quantity",
    "Role",
    "RoleStatus",
    "Summary",
]
