"""What is computed from the window, for a scrape of the metrics."""

from time import monotonic

from pdd_link import metrics
from pdd_link.agent import Agent
from pdd_link.measure.echoes import Loss
from pdd_link.probe.peer import PeerProbe


def refresh(agent: Agent) -> None:
    for probe in agent.peers:
        _refresh_peer(probe)


def _refresh_peer(probe: PeerProbe) -> None:
    where = tuple(probe.labels.values())
    for lane, echoes in probe.echoes.items():
        summary = echoes.summary(monotonic())
        _set_loss((*where, lane.name, "both"), summary.loss)
        _set_loss((*where, lane.name, "forward"), summary.forward)
        _set_loss((*where, lane.name, "return"), summary.back)
        if summary.jitter is not None:
            metrics.JITTER.labels(*where, lane.name).set(summary.jitter)
    if probe.path_mtu is not None:
        metrics.EXPECTED_MTU.labels(*where).set(probe.path_mtu.ceiling)
        if probe.path_mtu.full_size_passes is not None:
            metrics.PATH_MTU.labels(*where).set(probe.path_mtu.passes or 0)


def _set_loss(labels: tuple[str, ...], loss: Loss | None) -> None:
    # Not a number rather than the last known one: what is not known is not shown.
    metrics.LOSS.labels(*labels).set(loss.lost / loss.of if loss and loss.of else float("nan"))
