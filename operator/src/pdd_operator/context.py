"""What all reconcilers share."""

from dataclasses import dataclass

from pdd_operator.clusters.registry import Registry
from pdd_operator.clusters.session import Session
from pdd_operator.loops import Loops
from pdd_operator.settings import Settings
from pdd_operator.telemetry import Telemetry


@dataclass(frozen=True)
class Context:
    """The hub, the members, the loops, what the front routers report, the settings."""

    hub: Session
    members: Registry
    loops: Loops
    telemetry: Telemetry
    settings: Settings
