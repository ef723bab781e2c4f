"""What all reconcilers share."""

from dataclasses import dataclass

from pdd_operator.clusters.registry import Registry
from pdd_operator.clusters.session import Session
from pdd_operator.loops import Loops
from pdd_operator.settings import Settings


@dataclass(frozen=True)
class Context:
    """The hub, the members, the loops, the settings."""

    hub: Session
    members: Registry
    loops: Loops
    settings: Settings
