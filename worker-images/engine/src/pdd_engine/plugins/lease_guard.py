"""A decode engine does not believe KV that it read, or would read, from a lease that may have ended.

A prefill engine keeps a lease's blocks for 30 s (`kv_lease_duration`), and for 20 s from each heartbeat that the reader
sends. After that it gives them to other prompts. A reader that comes later, or that slept while it read, gets
somebody else's KV from vLLM, with status 200, and keeps it in its prefix cache for all who ask the same. NIXL tells
nobody. So the reader minds the time itself:

- A prefill engine says when a lease began (`kv_transfer_params.pdd_leased_at`, seconds of its host's monotonic clock,
  which `/pdd/v1/alive` tells too): its answer may be long on its way.
- A request says until when its lease may be used (`kv_transfer_params.pdd_usable_until`, seconds of the epoch). If the
  scheduler sees it later, it is an ordinary request: the prompt is computed here.
- From then on each heartbeat that was really sent lets the reader trust the lease for a while, less than it lets the
  prefill engine keep it. The first goes out at once, another one right before the read. If a read begins or ends
  when that while is over, it has failed: vLLM computes the prompt again (`kv_load_failure_policy: recompute`)
  before anything of it is cached.
- A heartbeat that was sent has not arrived when the line is dead. TCP would go on for minutes, and the read with it as
  soon as the line is back. So connections to prefill engines end after 7.5 s without an acknowledgement, and the read
  fails. Of other transports UCX learns it itself.
- A prefill engine that slept itself gives its leases the time of one heartbeat more: those of its readers are waiting
  to be taken in, and it must not give the blocks away first.

What the reader declined counts in its `vllm:nixl_num_kv_expired_reqs_total`, which in a prefill engine counts leases
that ended unread, and each is a line in the log. Clocks are monotonic, but for that one moment of the epoch. Both
engines need the same `kv_lease_duration`: the router compares it.
"""

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pdd_engine.plugins import nixl
from pdd_engine.plugins.silence import limit_silence
from pdd_engine.plugins.version import is_our_vllm

logger = logging.getLogger("vllm.pdd.lease_guard")

Key = tuple[str, str]
"""A lease: the prefill engine's id, and the request's id there."""


@dataclass(frozen=True)
class Terms:
    """Of a lease; seconds. vLLM: `duration` until the first heartbeat, then two thirds of it from each."""

    duration: float

    @property
    def trust(self) -> float:
        """How long a heartbeat is good for: a sixth of the duration less than it is to the prefill engine."""
        return self.duration / 2

    def trust_at_arrival(self, usable_seconds: float | None) -> float:
        """How long a request's lease is good for before the first heartbeat.

        A router lets a lease be used for two thirds of its duration. The last third is for the way from the scheduler
        to the first heartbeat; a tenth of the duration is left for what that needs to arrive. Who says nothing of the
        lease's age says that it is fresh.
        """
        if usable_seconds is None:
            return self.trust
        return usable_seconds + self.duration / 3 - self.duration / 10

    @property
    def silence(self) -> float:
        """A connection over which nothing has been acknowledged for so long is over.

        A heartbeat that is on its way does not arrive then. The one before it was sent a sixth of the duration earlier.
        """
        return self.duration / 4

    @property
    def sleep(self) -> float:
        """A prefill engine that looks after its leases less often has slept. Well below the tenth above."""
        return self.duration / 30


def usable_seconds(usable_until: object, now: float) -> float | None:
    """How long a request may still be taken for a read; negative if it came too late, None if it does not say.

    Whatever is no moment is no promise: too late.
    """
    if usable_until is None:
        return None
    if isinstance(usable_until, bool) or not isinstance(usable_until, int | float) or not math.isfinite(usable_until):
        return -math.inf
    return usable_until - now


class Watch:
    """What a reader knows of one lease: until when it is good, by this host's monotonic clock."""

    def __init__(self, good_until: float) -> None:
        self._good_until = good_until

    def is_good(self, now: float) -> bool:
        if now > self._good_until:
            self._good_until = -math.inf  # the blocks may be gone, and no later heartbeat brings them back
        return now <= self._good_until

    def renewed(self, began: float, ended: float, trust: float) -> None:
        """A heartbeat was sent between two moments: late if it was by the end, and good for as long as from the
        beginning."""
        if self.is_good(ended):
            self._good_until = max(self._good_until, began + trust)


def register() -> None:
    """Called by vLLM once in each of its processes: the engine core and its workers use it."""
    if is_our_vllm("a late pull can read somebody else's KV, and nobody is told"):
        nixl.when_loaded(_patch)


def _patch() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (  # noqa: PLC0415
        NixlPullConnectorScheduler,
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker  # noqa: PLC0415

    if not getattr(NixlPullConnectorScheduler, "pdd_guards_leases", False):
        _patch_scheduler(NixlPullConnectorScheduler)
        NixlPullConnectorScheduler.pdd_guards_leases = True
    if not getattr(NixlPullConnectorWorker, "pdd_guards_leases", False):
        _patch_reader(NixlPullConnectorWorker)
        _patch_owner(NixlPullConnectorWorker)
        NixlPullConnectorWorker.pdd_guards_leases = True


# The scheduler. The reader's takes requests or refuses them, and tells its workers of those that it took.


@dataclass
class Arrivals:
    """What a scheduler tells its workers with the next step."""

    good_until: dict[Key, float] = field(default_factory=dict)
    """Leases of requests that have arrived."""
    refused: int = 0


def _patch_scheduler(scheduler_class: Any) -> None:
    init = scheduler_class.__init__
    on_new_request = scheduler_class.on_new_request
    build_connector_meta = scheduler_class.build_connector_meta
    request_finished = scheduler_class.request_finished

    def finish_and_say_when(scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> tuple[bool, Any]:
        began = time.monotonic()
        keeps, params = request_finished(scheduler, request, *args, **kwargs)
        # The API server may be on another host than this core, and have another clock.
        if keeps and params and scheduler.vllm_config.parallel_config.nnodes == 1:
            params["pdd_leased_at"] = began
        return keeps, params

    def init_with_arrivals(scheduler: Any, *args: Any, **kwargs: Any) -> None:
        init(scheduler, *args, **kwargs)
        scheduler.pdd_arrivals = Arrivals()

    def take_or_refuse(scheduler: Any, request: Any) -> None:
        usable = None
        if reads_remotely(request.kv_transfer_params):
            usable = usable_seconds(request.kv_transfer_params.get("pdd_usable_until"), time.time())
            if usable is not None and usable < 0:
                request.kv_transfer_params["do_remote_prefill"] = False
                scheduler.pdd_arrivals.refused += 1
                logger.warning(
                    "request %s came %.1f s too late for its lease: the prompt is computed here",
                    request.request_id,
                    -usable,
                )
        on_new_request(scheduler, request)
        if lease := scheduler._heartbeat_req_engine.get(request.request_id):
            trust = Terms(scheduler._kv_lease_duration).trust_at_arrival(usable)
            scheduler.pdd_arrivals.good_until[lease] = time.monotonic() + trust
            scheduler._last_heartbeat_time = -math.inf  # a heartbeat with the next step

    def build_and_tell(scheduler: Any, scheduler_output: Any) -> Any:
        metadata = build_connector_meta(scheduler, scheduler_output)
        metadata.pdd_arrivals, scheduler.pdd_arrivals = scheduler.pdd_arrivals, Arrivals()
        return metadata

    scheduler_class.__init__ = init_with_arrivals
    scheduler_class.on_new_request = take_or_refuse
    scheduler_class.build_connector_meta = build_and_tell
    scheduler_class.request_finished = finish_and_say_when


def reads_remotely(kv_transfer_params: Any) -> bool:
    return isinstance(kv_transfer_params, dict) and bool(kv_transfer_params.get("do_remote_prefill"))


# The reader's workers: each sends heartbeats, reads its part, and says whether the read is to be believed.


class Reads:
    """The leases that one worker reads or will read."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._terms = Terms(nixl.lease_seconds(worker.kv_transfer_config))
        self._watches: dict[Key, Watch] = {}
        self._lease_of: dict[str, Key] = {}
        """By this engine's request ids: what is read or waits for its engines to meet."""
        self._meeting: dict[str, tuple[str, set[str]]] = {}
        """Heartbeats that wait until their engine is met, by its id: its host, and the requests there."""
        # vLLM sends no heartbeats for reads in the other direction.
        self.watched = not worker._bidirectional_kv_xfer_enabled
        # Of several hosts each has its own monotonic clock.
        self._one_clock = worker.vllm_config.parallel_config.nnodes == 1

    def arrive(self, arrivals: Arrivals, scheduler_clock: float) -> None:
        shift = 0.0 if self._one_clock else time.perf_counter() - scheduler_clock
        for lease, good_until in arrivals.good_until.items():
            self._watches[lease] = Watch(good_until + shift)
        if self._worker.tp_rank == 0:
            for _ in range(arrivals.refused):
                self._worker.xfer_stats.record_kv_expired_req()

    def begin(self, request_id: str, meta: Any) -> bool:
        """Whether a read may begin: the lease is good, and has been renewed just now."""
        lease = (meta.remote.engine_id, meta.remote.request_id)
        if not any(len(group) > 0 for group in meta.local_block_ids):
            self._watches.pop(lease, None)  # all is here, or the request is over: a notice to the prefill engine
            return True
        self._lease_of[request_id] = lease
        if not self._has_met(lease[0]):
            return True  # it comes here again when they have met
        if self._is_good(lease):
            self.renew(lease[0], meta.remote.host, [lease[1]])
        if self._is_good(lease):
            return True
        self._decline(request_id, "before it was read")
        return False

    def untrusted(self, request_ids: Iterable[str]) -> set[str]:
        """Those of the reads that are done now whose lease may have ended before."""
        lost = {
            each for each in request_ids if (lease := self._lease_of.get(each)) is not None and not self._is_good(lease)
        }
        for each in lost:
            self._decline(each, "while it was read")
        return lost

    def forget(self, request_ids: Iterable[str]) -> None:
        for each in request_ids:
            if lease := self._lease_of.pop(each, None):
                self._watches.pop(lease, None)

    def send_heartbeats(self, infos: dict[str, Any]) -> None:
        """As vLLM does, but for engines that are not met yet it does not wait for the next turn."""
        for engine_id in list(self._meeting):
            if not self._is_meeting(engine_id):
                waiting = self._meeting.pop(engine_id)
                if self._has_met(engine_id):
                    self.renew(engine_id, *waiting)
        for engine_id, info in infos.items():
            pending = self._worker._ensure_handshake(
                engine_id,
                info.host,
                info.port,
                info.tp_size,
                info.dcp_size,
                info.pp_size,
                self._worker._hb_handshake_notif_only and info.pp_size > 1,
            )
            if pending is None:
                self._worker._engine_last_active[engine_id] = time.perf_counter()
                self.renew(engine_id, info.host, info.req_ids)
            else:
                self._meeting[engine_id] = info.host, set(info.req_ids)

    def renew(self, engine_id: str, host: str, remote_request_ids: Iterable[str]) -> None:
        ids = list(remote_request_ids)
        message = ("HB:" + ",".join(ids)).encode()
        began, sent = time.monotonic(), True
        for agent in list(self._worker._remote_agents[engine_id].values()):
            try:
                self._worker.nixl_wrapper.send_notif(agent, notif_msg=message)
            except Exception:
                sent = False
                logger.debug("no heartbeat to engine %s", engine_id, exc_info=True)
        ended = time.monotonic()
        for each in ids if sent else []:
            if watch := self._watches.get((engine_id, each)):
                watch.renewed(began, ended, self._terms.trust)
        # Connections are made when they are first used.
        limit_silence([host], self._terms.silence)

    def _is_good(self, lease: Key) -> bool:
        watch = self._watches.get(lease)
        return watch is not None and watch.is_good(time.monotonic())

    def _decline(self, request_id: str, when: str) -> None:
        self._worker.xfer_stats.record_kv_expired_req()
        logger.warning("the lease of request %s may have ended %s: the prompt is computed here", request_id, when)

    def _has_met(self, engine_id: str) -> bool:
        return engine_id in self._worker._remote_agents and engine_id not in self._worker._invalid_remote_engines

    def _is_meeting(self, engine_id: str) -> bool:
        with self._worker._handshake_lock:
            return engine_id in self._worker._handshake_futures


def _patch_reader(worker_class: Any) -> None:
    init = worker_class.__init__
    start_load_kv = worker_class.start_load_kv
    read_blocks = worker_class._read_blocks_for_req
    pop_done_transfers = worker_class._pop_done_transfers
    get_transfer_results = worker_class.get_transfer_results
    send_heartbeats = worker_class._send_heartbeats

    def init_with_reads(worker: Any, *args: Any, **kwargs: Any) -> None:
        init(worker, *args, **kwargs)
        worker.pdd_reads = Reads(worker)

    def start_load_kv_of_arrivals(worker: Any, metadata: Any) -> None:
        worker.pdd_reads.arrive(getattr(metadata, "pdd_arrivals", Arrivals()), metadata.scheduler_clock)
        start_load_kv(worker, metadata)

    def read_blocks_if_good(worker: Any, request_id: str, meta: Any) -> None:
        if not worker.pdd_reads.watched or worker.pdd_reads.begin(request_id, meta):
            read_blocks(worker, request_id, meta)
        else:
            worker._handle_failed_transfer(request_id, None, worker._recv_failures, record_failed_transfer=False)

    def pop_done_transfers_if_good(worker: Any, transfers: Any) -> tuple[set[str], set[str]]:
        done, failed = pop_done_transfers(worker, transfers)
        return done, failed | worker.pdd_reads.untrusted(done - failed)

    def get_transfer_results_and_forget(worker: Any) -> Any:
        results = get_transfer_results(worker)
        worker.pdd_reads.forget(results.finished_recving)
        return results

    def send_heartbeats_and_note(worker: Any, metadata: Any) -> None:
        if worker.pdd_reads.watched:
            worker.pdd_reads.send_heartbeats(metadata.heartbeat_by_engine)
        else:
            send_heartbeats(worker, metadata)

    worker_class.__init__ = init_with_reads
    worker_class.start_load_kv = start_load_kv_of_arrivals
    worker_class._read_blocks_for_req = read_blocks_if_good
    worker_class._pop_done_transfers = pop_done_transfers_if_good
    worker_class.get_transfer_results = get_transfer_results_and_forget
    worker_class._send_heartbeats = send_heartbeats_and_note


# The prefill engine's workers: they end leases.


class Ends:
    """When one worker last looked for leases whose time is over, and which it gave more time."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._given_time: set[str] = set()

    def extend_after_sleep(
        self, ends: dict[str, float], now: float, *, sleep: float, extension: float
    ) -> Iterable[str]:
        """Changes the ends of leases after a sleep, and returns the leases that are over at `now` all the same.

        A lease is given time once until its reader is heard again: an engine whose every step is long would else keep
        abandoned leases for ever.
        """
        slept, self._looked = now - self._looked > sleep, now
        self._given_time &= ends.keys()
        if slept:
            for lease, end in ends.items():
                if end < now + extension and lease not in self._given_time:
                    ends[lease] = now + extension
                    self._given_time.add(lease)
        return [lease for lease, end in ends.items() if end <= now]

    def heard(self, leases: Iterable[str]) -> None:
        self._given_time.difference_update(leases)


def _patch_owner(worker_class: Any) -> None:
    init = worker_class.__init__
    reap_expired = worker_class._reap_expired_send_leases
    handle_heartbeat = worker_class._handle_heartbeat

    def init_with_ends(worker: Any, *args: Any, **kwargs: Any) -> None:
        init(worker, *args, **kwargs)
        worker.pdd_ends = Ends(time.perf_counter())

    def reap_expired_unless_slept(worker: Any, done_sending: set[str]) -> None:
        sleep = Terms(nixl.lease_seconds(worker.kv_transfer_config)).sleep
        over = worker.pdd_ends.extend_after_sleep(
            worker._reqs_to_send, time.perf_counter(), sleep=sleep, extension=worker._lease_extension
        )
        # It looks at the clock once more, and between the two looks there can be a sleep.
        if over:
            reap_expired(worker, done_sending)

    def handle_heartbeat_and_note(worker: Any, payload: str) -> None:
        worker.pdd_ends.heard(payload.split(","))
        handle_heartbeat(worker, payload)

    worker_class.__init__ = init_with_ends
    worker_class._reap_expired_send_leases = reap_expired_unless_slept
    worker_class._handle_heartbeat = handle_heartbeat_and_note
