"""`POST /pdd/v1/release` on a prefill engine: leases that nobody will read end now, not when they expire.

A lease keeps blocks of the prefill engine for 30 s (`kv_lease_duration`), read or not. The front router takes leases
that it then has no use for: the client went away, another engine failed. It names them here by the engine's own request
ids (`kv_transfer_params.remote_request_id`), and the blocks are free after the engine's next step. A router that left
before the answer came names the id that it asked with (`generate-tokens-<X-Request-Id>`): if the request is computed to
its end all the same, it ends as no lease.

Only the router knows that nobody reads, and the engine checks what it can: a lease for which a reader has sent a
heartbeat, or that one of several readers has finished, is not released and not counted. What has arrived from readers
is taken in first, so a lease that was read to its end just now is unknown here, and unknown ids are left alone. A
release is no expiry in vLLM's metrics. A reader that comes after it counts as one that came after the expiry.
"""

import functools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from pdd_engine.plugins import nixl
from pdd_engine.plugins.lease_route import LeaseRoute
from pdd_engine.plugins.version import is_our_vllm

OWN_PART = re.compile(r"-[0-9a-f]{8}$")
"""What vLLM adds to the id that a request was sent with."""
UTILITY = "pdd_release_leases"
"""Name of the method that an engine core gets."""

logger = logging.getLogger("vllm.pdd.release")


class ReleasePlugin(LeaseRoute):
    """Answers with how many leases were released."""

    name = "pdd_release"
    path = "/pdd/v1/release"
    utility = UTILITY

    def told(self, ids: Sequence[str], answers: Sequence[int]) -> dict[str, Any]:
        return {"released": sum(answers)}


def register() -> None:
    """Called by vLLM once in each of its processes: the engine core and its workers use it."""
    if not is_our_vllm("leases that nobody reads end only when they expire"):
        return
    from vllm.v1.engine.core import EngineCore  # noqa: PLC0415

    setattr(EngineCore, UTILITY, _release_in_core)
    nixl.when_loaded(_patch_worker)


def _release_in_core(core: Any, ids: list[str]) -> int:
    """Called between two steps. A lease is one on every worker, and released when all of them agree."""
    releasable = core.model_executor.collective_rpc(_releasable, args=(ids,))
    agreed = sorted(set.intersection(*map(set, releasable))) if releasable else []
    if agreed:
        core.model_executor.collective_rpc(_release, args=(agreed,))
        logger.debug("released %d of %d leases", len(agreed), len(ids))
    return len(agreed)


def _releasable(worker: Any, ids: Iterable[str]) -> list[str]:
    connector = _pull_worker()
    return [] if connector is None else _leases(connector).releasable(connector, ids)


def _release(worker: Any, ids: Iterable[str]) -> None:
    connector = _pull_worker()
    if connector is not None:
        _leases(connector).release(connector, ids)


def _pull_worker() -> Any:
    """The NIXL connector of this worker process; None if it has another one, or none."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group  # noqa: PLC0415

    if not has_kv_transfer_group():
        return None
    connector = getattr(get_kv_transfer_group(), "connector_worker", None)
    return connector if isinstance(getattr(connector, "pdd_leases", None), Leases) else None


def _leases(connector: Any) -> "Leases":
    leases: Leases = connector.pdd_leases
    return leases


class Leases:
    """What one worker of a prefill engine knows about its leases beyond vLLM's own tables.

    `_reqs_to_send` has the leases with their ends, `_reqs_to_process` these and the requests that are still computed.
    """

    def __init__(self, new_notifications: Callable[[Any], set[str]]) -> None:
        self._new_notifications = new_notifications
        """vLLM's own: takes in what readers have sent, and names the leases that all have read."""
        self.renewed: set[str] = set()
        """A reader has sent a heartbeat."""
        self.released: set[str] = set()
        """To be told to the scheduler."""
        self._ending: set[str] = set()
        """Released before the scheduler's word that the request is a lease has come here: it comes with the next
        step, and the answer that names the lease can be faster."""

    def releasable(self, connector: Any, ids: Iterable[str]) -> list[str]:
        # What readers have sent since the last step; those that are done are told with the next one.
        self.released |= self._new_notifications(connector)
        return [
            each
            for each in known(ids, connector._reqs_to_process)
            if each not in self.renewed and each not in connector.consumer_notification_counts_by_req
        ]

    def release(self, connector: Any, ids: Iterable[str]) -> None:
        for each in ids:
            if connector._reqs_to_send.pop(each, None) is None:
                self._ending.add(each)
            else:
                connector._reqs_to_process.remove(each)
                self.released.add(each)

    def end(self, connector: Any) -> set[str]:
        """Those to be told now. Called in each step, after the scheduler's word and before the ends are looked at."""
        self.renewed &= connector._reqs_to_process
        self._ending &= connector._reqs_to_process  # an aborted request never becomes a lease
        self.release(connector, self._ending & connector._reqs_to_send.keys())
        self._ending &= connector._reqs_to_process
        released, self.released = self.released, set()
        return released


def known(ids: Iterable[str], requests: Collection[str]) -> set[str]:
    """Those of the engine's requests that are meant. Who got no answer knows only the id that it asked with."""
    by_asked = {OWN_PART.sub("", each): each for each in requests}
    return {each if each in requests else by_asked[each] for each in ids if each in requests or each in by_asked}


def _patch_worker() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker  # noqa: PLC0415

    if getattr(NixlPullConnectorWorker, "pdd_releases", False):
        return
    init = NixlPullConnectorWorker.__init__
    new_notifications = NixlPullConnectorWorker._get_new_notifs
    handle_heartbeat = NixlPullConnectorWorker._handle_heartbeat

    def init_with_leases(connector: Any, *args: Any, **kwargs: Any) -> None:
        connector.pdd_leases = Leases(new_notifications)
        init(connector, *args, **kwargs)

    @functools.wraps(new_notifications)
    def new_notifications_and_released(connector: Any) -> set[str]:
        done: set[str] = new_notifications(connector)
        return done | _leases(connector).end(connector)

    def handle_heartbeat_and_note(connector: Any, payload: str) -> None:
        _leases(connector).renewed.update(payload.split(","))
        handle_heartbeat(connector, payload)

    NixlPullConnectorWorker.__init__ = init_with_leases
    NixlPullConnectorWorker._get_new_notifs = new_notifications_and_released
    NixlPullConnectorWorker._handle_heartbeat = handle_heartbeat_and_note
    NixlPullConnectorWorker.pdd_releases = True
