"""The main router: the only address of a main-decode site on the line."""

from collections.abc import Sequence

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment, Placement
from pdd_operator.desired.labels import MAIN_DECODE, MAIN_ROUTER, Manifest, object_name
from pdd_operator.desired.pods import service_of, service_port
from pdd_operator.desired.router import ROUTER_PORT, router_config, router_deployment


def main_router(
    deployment: PDDDeployment, *, placement: Placement, pools: Sequence[NodePool], image: str
) -> list[Manifest]:
    """Service, ConfigMap and Deployment of the main router of a site."""
    content = {
        "mode": "main",
        "deployment": deployment.metadata.name,
        "namespace": deployment.metadata.namespace,
        "site": placement.cluster,
        "model": deployment.spec.model.name,
        "services": {"mainDecode": object_name(deployment, MAIN_DECODE)},
    }
    return [
        service_of(
            deployment,
            MAIN_ROUTER,
            name=object_name(deployment, MAIN_ROUTER),
            type="NodePort",
            ports=[service_port("http", ROUTER_PORT)],
        ),
        router_config(deployment, MAIN_ROUTER, content),
        router_deployment(deployment, component=MAIN_ROUTER, pools=pools, image=image),
    ]
