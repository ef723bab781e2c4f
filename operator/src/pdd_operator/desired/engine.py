"""The engines of one role: a Deployment on the role's pool and a headless Service."""

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment, Role
from pdd_operator.desired.engine_pod import HTTP_PORT, SIDE_CHANNEL_PORT, engine_pod
from pdd_operator.desired.labels import Manifest, object_name
from pdd_operator.desired.nodes import on_pool
from pdd_operator.desired.pods import deployment_of, service_of, service_port


def engines(deployment: PDDDeployment, *, component: str, role: Role, pool: NodePool, image: str) -> list[Manifest]:
    """Deployment and Service of the role. A roll frees chips before it asks for new ones."""
    tensor = role.parallelism.tensor
    pod = engine_pod(
        deployment,
        role=component,
        image=image,
        tensor=tensor,
        chips={pool.resource_name: str(tensor)},
        resources=role.resources,
        args=role.engine.args,
        env=role.engine.env,
        nodes=on_pool(pool),
    )
    return [
        service_of(
            deployment,
            component,
            name=object_name(deployment, component),
            clusterIP="None",
            ports=[service_port("http", HTTP_PORT), service_port("kv", SIDE_CHANNEL_PORT)],
        ),
        deployment_of(
            deployment,
            component,
            replicas=role.replicas,
            surge=0,
            unavailable=1,
            progress_deadline=deployment.spec.engine.startup_timeout_seconds + 300,
            pod=pod,
        ),
    ]
