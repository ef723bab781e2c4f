"""Prometheus metrics. `peer` is host:port of an agent of the other site, `class` EF or CS1."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

# From two racks of one hall to the other side of the world, and the queue of a full line.
_ROUND_TRIP_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025),
    *(0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2),
)
_HANDSHAKE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
_ECHO = ["site", "peer", "class"]

ROUND_TRIP = Histogram("pdd_link_round_trip_seconds", "Small probe out to its echo in", _ECHO,
                       buckets=_ROUND_TRIP_SECONDS)  # fmt: skip
SENT = Counter("pdd_link_probes_sent", "Small probes sent", _ECHO)
ECHOED = Counter("pdd_link_probes_echoed", "Small probes whose echo came in time", _ECHO)
UNSENT = Counter("pdd_link_probes_unsent", "Probes of any size that this host did not send; also in sent",
                 ["site", "peer", "error"])  # fmt: skip
JITTER = Gauge("pdd_link_jitter_seconds", "Mean difference of consecutive round trips, last minute", _ECHO)
LOSS = Gauge("pdd_link_loss_ratio", "Small probes lost, last minute, by direction: forward, return, both",
             [*_ECHO, "direction"])  # fmt: skip
HEARD = Counter("pdd_link_probes_heard", "Small probes of the other site's agents that were received", ["class"])
REMARKED = Counter("pdd_link_probes_remarked", "Of these, received in another class than sent in", ["class"])
DROPPED = Counter("pdd_link_probes_dropped", "Packets not taken for a probe or an echo, by reason", ["reason"])
PATH_MTU = Gauge("pdd_link_path_mtu_bytes", "Largest packet that came back in full size; 0: not even 1280 bytes",
                 ["site", "peer"])  # fmt: skip
EXPECTED_MTU = Gauge("pdd_link_expected_mtu_bytes", "Largest packet that should", ["site", "peer"])
HANDSHAKE = Histogram("pdd_link_handshake_seconds", "Connection to the other site's router, TLS included",
                      ["site", "router"], buckets=_HANDSHAKE_SECONDS)  # fmt: skip
HANDSHAKES = Counter("pdd_link_handshakes", "Connections tried, by result", ["site", "router", "result"])

_OF_PEER = (ROUND_TRIP, SENT, ECHOED, UNSENT, JITTER, LOSS, PATH_MTU, EXPECTED_MTU)
_OF_ROUTER = (HANDSHAKE, HANDSHAKES)


def forget(labels: Mapping[str, str]) -> None:
    """Of a peer or router that is no more: a restarted pod has another address, and the old one would stay for ever."""
    for metric in _OF_PEER if "peer" in labels else _OF_ROUTER:
        metric.remove_by_labels(dict(labels))
