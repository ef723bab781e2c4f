"""kopf's decorators, nothing else: events in, wake-ups out."""

from typing import Any

import kopf

from pdd_operator.api.base import GROUP, VERSION
from pdd_operator.clusters.credentials import own_client
from pdd_operator.clusters.kinds import MEMBER_CLUSTER, PDD_DEPLOYMENT, WAN_LINK
from pdd_operator.clusters.session import Session
from pdd_operator.settings import Settings
from pdd_operator.supervisor import Supervisor


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """The service account, or a developer's kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


@kopf.on.startup()
async def startup(memo: Any, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Events are posted by the reconcilers; watches that fall silent are opened again."""
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.connect_timeout = 5
    settings.process.ultimate_exiting_timeout = 20
    memo.supervisor = Supervisor(Session("hub", await own_client()), Settings.from_environment())


@kopf.on.cleanup()
async def cleanup(memo: Any, **_: Any) -> None:
    """What runs in the members goes on."""
    await memo.supervisor.stop()


@kopf.on.probe(id="overdue")
async def probe(memo: Any, **_: Any) -> list[str]:
    """Fails the liveness probe when a loop hangs."""
    overdue: list[str] = memo.supervisor.overdue()
    if overdue:
        raise RuntimeError(f"loops that hang: {', '.join(overdue)}")
    return overdue


@kopf.on.event(GROUP, VERSION, MEMBER_CLUSTER.plural)
async def member_cluster(memo: Any, event: kopf.RawEvent, **_: Any) -> None:
    """A MemberCluster changed."""
    memo.supervisor.changed(MEMBER_CLUSTER, event["type"], event["object"])


@kopf.on.event(GROUP, VERSION, WAN_LINK.plural)
async def wan_link(memo: Any, event: kopf.RawEvent, **_: Any) -> None:
    """A WANLink changed."""
    memo.supervisor.changed(WAN_LINK, event["type"], event["object"])


@kopf.on.event(GROUP, VERSION, PDD_DEPLOYMENT.plural)
async def pdd_deployment(memo: Any, event: kopf.RawEvent, **_: Any) -> None:
    """A PDDDeployment changed."""
    memo.supervisor.changed(PDD_DEPLOYMENT, event["type"], event["object"])
