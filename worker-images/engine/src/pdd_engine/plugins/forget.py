"""`POST /pdd/v1/forget` on a decode engine: leases that it is not to read, because the client went away.

A prefill engine cannot keep a reader from its blocks: a lease may be given back (release.py) only when it is sure that
nobody reads it. The reader's engine core is who knows: requests reach it one after the other. It answers which of the
leases (`remote_request_id`) no request of it has named yet, and computes the prompt itself should one still come: an
API server may be slower than the client's farewell. A request that has come ends its lease itself when it is aborted.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from pdd_engine.plugins import nixl
from pdd_engine.plugins.lease_route import LeaseRoute
from pdd_engine.plugins.version import is_our_vllm

UTILITY = "pdd_forget_leases"
"""Name of the method that an engine core gets."""
MOST_KEPT = 10_000
"""Leases of the last minutes: longer than any answer is on its way, and less than a megabyte."""

logger = logging.getLogger("vllm.pdd.forget")


class ForgetPlugin(LeaseRoute):
    """Answers with the leases that no engine core has been asked to read."""

    name = "pdd_forget"
    path = "/pdd/v1/forget"
    utility = UTILITY

    def told(self, ids: Sequence[str], answers: Sequence[list[str]]) -> dict[str, Any]:
        return {"unseen": sorted(set(ids).intersection(*answers)) if answers else []}


class Readings:
    """What the scheduler of one engine core knows of leases: which it was asked to read, and which it is not to."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._forgotten: OrderedDict[str, None] = OrderedDict()

    def may_read(self, lease: str) -> bool:
        """Called once for each request that comes."""
        if lease in self._forgotten:
            return False
        _keep(self._seen, lease)
        return True

    def forget(self, leases: list[str]) -> list[str]:
        """Those of the leases that no request has come for."""
        unseen = [lease for lease in leases if lease not in self._seen]
        for lease in unseen:
            _keep(self._forgotten, lease)
        return unseen


def _keep(leases: "OrderedDict[str, None]", lease: str) -> None:
    leases[lease] = None
    while len(leases) > MOST_KEPT:
        leases.popitem(last=False)


def register() -> None:
    """Called by vLLM once in each of its processes: the engine core uses it."""
    if not is_our_vllm("a lease whose client left stays until it expires"):
        return
    from vllm.v1.engine.core import EngineCore  # noqa: PLC0415

    setattr(EngineCore, UTILITY, _forget_in_core)
    nixl.when_loaded(_patch)


def _forget_in_core(core: Any, leases: list[str]) -> list[str]:
    """Called between two steps. Without a connector nothing is ever read."""
    scheduler = getattr(getattr(core.scheduler, "connector", None), "connector_scheduler", None)
    return _readings(scheduler).forget(leases) if scheduler is not None else leases


def _readings(scheduler: Any) -> Readings:
    readings: Readings = vars(scheduler).setdefault("pdd_readings", Readings())
    return readings


def _patch() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (  # noqa: PLC0415
        NixlPullConnectorScheduler as Scheduler,
    )

    if getattr(Scheduler, "pdd_forgets", False):
        return
    on_new_request = Scheduler.on_new_request

    def take_or_forget(scheduler: Any, request: Any) -> None:
        params = request.kv_transfer_params
        if isinstance(params, dict) and params.get("do_remote_prefill"):
            lease = str(params.get("remote_request_id"))
            if not _readings(scheduler).may_read(lease):
                params["do_remote_prefill"] = False
                logger.info("request %s came after its lease was given back: the prompt is computed here", lease)
        on_new_request(scheduler, request)

    Scheduler.on_new_request = take_or_forget
    Scheduler.pdd_forgets = True
