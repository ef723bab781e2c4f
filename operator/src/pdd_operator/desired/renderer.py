"""The renderer: the engine image without weights in memory and without a chip."""

from collections.abc import Sequence

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.desired.engine_pod import HTTP_PORT, engine_pod
from pdd_operator.desired.labels import RENDERER, Manifest, object_name
from pdd_operator.desired.nodes import off_pools
from pdd_operator.desired.pods import deployment_of, service_of, service_port


def renderer(deployment: PDDDeployment, *, pools: Sequence[NodePool], image: str) -> list[Manifest]:
    """Deployment and Service of the renderer."""
    wanted = deployment.spec.renderer
    pod = engine_pod(
        deployment,
        role=RENDERER,
        image=image,
        chips={},
        resources=wanted.resources,
        nodes=off_pools(pools),
    )
    return [
        service_of(
            deployment,
            RENDERER,
            name=object_name(deployment, RENDERER),
            type="ClusterIP",
            ports=[service_port("http", HTTP_PORT)],
        ),
        deployment_of(
            deployment,
            RENDERER,
            replicas=wanted.replicas,
            surge=1,
            unavailable=0,
            progress_deadline=deployment.spec.engine.startup_timeout_seconds + 300,
            pod=pod,
        ),
    ]
