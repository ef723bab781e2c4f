"""What a PDDDeployment refers to: two members with their pools, the line between them, the images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdd_operator.api.member_cluster import MemberCluster, NodePool
from pdd_operator.api.pdd_deployment import PDDDeployment
from pdd_operator.api.wan_link import WANLink
from pdd_operator.desired.sites import Images
from pdd_operator.plan.problem import Problem


@dataclass(frozen=True)
class References:
    """Everything that the manifests need beside the PDDDeployment itself."""

    prefill_pools: Sequence[NodePool]
    main_pools: Sequence[NodePool]
    link: WANLink
    images: Images


def resolve(
    deployment: PDDDeployment,
    *,
    members: Mapping[str, MemberCluster],
    links: Sequence[WANLink],
    default_images: Images,
) -> References | Problem:
    """The references, or the first one that leads nowhere."""
    spec, main = deployment.spec, deployment.main_placement
    wanted = [
        ("spec.prefill", spec.prefill.cluster, spec.prefill.node_pool),
        ("spec.relayDecode", spec.prefill.cluster, spec.relay_decode.node_pool),
        ("spec.mainDecode.placements[0]", main.cluster, main.node_pool),
    ]
    for field, cluster, pool in wanted:
        if cluster not in members:
            return Problem(
                "MemberClusterNotFound",
                f"{field}: there is no MemberCluster {cluster}; create it or name another",
            )
        pools = members[cluster].spec.node_pools
        if not any(pool == known.name for known in pools):
            known = ", ".join(known.name for known in pools)
            return Problem(
                "NodePoolNotFound",
                f"{field}.nodePool: MemberCluster {cluster} has no pool {pool}; it has {known}",
            )
    between = [link for link in links if link.joins(spec.prefill.cluster, main.cluster)]
    if len(between) != 1:
        return _link_problem(between, spec.prefill.cluster, main.cluster)
    images = Images(
        engine=spec.engine.image or default_images.engine,
        router=spec.router.image or default_images.router,
    )
    for field, image in (("spec.engine.image", images.engine), ("spec.router.image", images.router)):
        if not image:
            return Problem("NoImage", f"{field} is empty and the operator has no default for it; set it")
    return References(
        prefill_pools=members[spec.prefill.cluster].spec.node_pools,
        main_pools=members[main.cluster].spec.node_pools,
        link=between[0],
        images=images,
    )


def _link_problem(between: Sequence[WANLink], one: str, other: str) -> Problem:
    if not between:
        return Problem("WANLinkNotFound", f"no WANLink joins {one} and {other}; create one")
    names = ", ".join(sorted(link.metadata.name for link in between))
    return Problem("AmbiguousWANLink", f"{names} all join {one} and {other}; keep one: several are not built yet")
