"""All objects of a PDDDeployment, by site."""

from collections.abc import Sequence
from dataclasses import dataclass

from pdd_operator.api.member_cluster import NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment, Placement
from pdd_operator.desired.access import router_access
from pdd_operator.desired.engine import engines
from pdd_operator.desired.front_router import RemoteSite, front_router, front_services
from pdd_operator.desired.labels import (
    FRONT_ROUTER,
    MAIN_DECODE,
    MAIN_ROUTER,
    PREFILL,
    RELAY_DECODE,
    RENDERER,
    Manifest,
)
from pdd_operator.desired.main_router import main_router
from pdd_operator.desired.renderer import renderer


@dataclass(frozen=True)
class Images:
    """The images that a PDDDeployment runs."""

    engine: str
    router: str


def prefill_site(deployment: PDDDeployment, *, pools: Sequence[NodePool], images: Images) -> list[Manifest]:
    """What the prefill cluster runs, except for the front router, which needs the other site's address."""
    spec = deployment.spec
    return [
        *router_access(deployment, FRONT_ROUTER),
        *front_services(deployment),
        *renderer(deployment, pools=pools, image=images.engine),
        *engines(
            deployment,
            component=PREFILL,
            role=spec.prefill,
            pool=pool_named(pools, spec.prefill.node_pool),
            image=images.engine,
        ),
        *engines(
            deployment,
            component=RELAY_DECODE,
            role=spec.relay_decode,
            pool=pool_named(pools, spec.relay_decode.node_pool),
            image=images.engine,
        ),
    ]


def front(
    deployment: PDDDeployment,
    *,
    pools: Sequence[NodePool],
    images: Images,
    sites: Sequence[RemoteSite],
) -> list[Manifest]:
    """The front router in the prefill cluster."""
    return front_router(deployment, pools=pools, image=images.router, sites=sites)


def main_site(
    deployment: PDDDeployment, *, placement: Placement, pools: Sequence[NodePool], images: Images
) -> list[Manifest]:
    """What a main-decode cluster runs."""
    return [
        *router_access(deployment, MAIN_ROUTER),
        *main_router(deployment, placement=placement, pools=pools, image=images.router),
        *engines(
            deployment,
            component=MAIN_DECODE,
            role=placement,
            pool=pool_named(pools, placement.node_pool),
            image=images.engine,
        ),
    ]


def desired_pods(deployment: PDDDeployment) -> dict[tuple[str, str], int]:
    """Pods wanted by component and cluster."""
    spec = deployment.spec
    here = spec.prefill.cluster
    wanted = {
        (PREFILL, here): spec.prefill.replicas,
        (RELAY_DECODE, here): spec.relay_decode.replicas,
        (RENDERER, here): spec.renderer.replicas,
        (FRONT_ROUTER, here): spec.router.replicas,
    }
    for placement in spec.main_decode.placements:
        wanted[MAIN_DECODE, placement.cluster] = placement.replicas
        wanted[MAIN_ROUTER, placement.cluster] = spec.router.replicas
    return {key: 0 if spec.suspend else replicas for key, replicas in wanted.items()}


def pool_named(pools: Sequence[NodePool], name: str) -> NodePool:
    """The pool of that name; the caller has checked that it is there."""
    return next(pool for pool in pools if pool.name == name)
