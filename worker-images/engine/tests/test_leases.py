"""Leases in vLLM's own NIXL connector, with its patches. Skipped where vLLM is not installed: run ./in-image."""

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is in the engine image only: worker-images/engine/tests/in-image runs these")

from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import HeartbeatInfo, NixlConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request, RequestStatus

from pdd_engine.plugins import lease_guard, nixl, reconnect, release

P, LEASE = "engine-p", "generate-tokens-r1-0a1b2c3d"
CONFIG = SimpleNamespace(get_from_extra_config=lambda _name, default: default)  # a lease of 30 s


@pytest.fixture(autouse=True, scope="module")
def patched() -> Iterator[None]:
    """vLLM's classes as in an engine, and as they were afterwards."""
    classes = (NixlPullConnectorScheduler, NixlPullConnectorWorker, EngineCore)
    before = [dict(vars(each)) for each in classes]
    registry = dict(KVConnectorFactory._registry)
    for plugin in (release, lease_guard, reconnect, lease_guard, release, reconnect):
        plugin.register()
    for name in nixl.CONNECTORS:
        KVConnectorFactory.get_connector_class_by_name(name)
    yield
    KVConnectorFactory._registry.update(registry)
    for each, names in zip(classes, before, strict=True):
        for name in [name for name in vars(each) if name not in names]:
            delattr(each, name)
        for name, value in names.items():
            if vars(each).get(name) is not value:
                setattr(each, name, value)


class Clock:
    """Of the guard: monotonic, and the epoch 1000 s ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        clock = SimpleNamespace(
            monotonic=lambda: self.now, perf_counter=lambda: self.now, time=lambda: self.now + 1000.0
        )
        monkeypatch.setattr(lease_guard, "time", clock)
        # vLLM's, for what is left to its own clock.
        monkeypatch.setattr(time, "perf_counter", clock.perf_counter)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Nixl:
    """What a worker uses of NIXL: sends notices, and transfers that are done when told so."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.arrived: list[bytes] = []
        self.state = "PROC"
        self.dead = False

    def send_notif(self, agent: str, notif_msg: bytes) -> None:
        if self.dead:
            raise RuntimeError("no connection")
        self.sent.append(notif_msg.decode())

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        arrived, self.arrived = self.arrived, []
        return {"agent": arrived}

    def check_xfer_state(self, handle: int) -> str:
        return self.state

    def get_xfer_telemetry(self, handle: int) -> None:
        return None

    def release_xfer_handle(self, handle: int) -> None:
        pass

    def check_remote_metadata(self, agent: str) -> bool:
        return True  # as NIXL 1.5 does, whatever has become of the connection

    def remove_remote_agent(self, agent: str) -> None:
        pass


@pytest.fixture
def worker(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's worker with as much in it as leases and reads of one block need; it has met engine P."""
    worker = object.__new__(NixlPullConnectorWorker)
    worker.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(nnodes=1))
    worker.kv_transfer_config = CONFIG
    worker.nixl_wrapper = Nixl()
    worker.xfer_stats = NixlKVConnectorStats()
    worker.tp_rank = worker.pcp_rank = 0
    worker.dcp_size = 1
    worker.engine_id = "engine-d"
    worker._lease_extension, worker._engine_ttl = 20, 0
    for name in (
        "_bidirectional_kv_xfer_enabled", "_hb_handshake_notif_only", "_is_hma_required", "_mixed_mem_types",
        "_has_mamba", "enable_permute_local_kv", "enable_heterogeneous_attn_post_process", "pcp_dcp_sharded",
        "use_host_buffer", "use_mla",
    ):  # fmt: skip
        setattr(worker, name, False)
    for name in (
        "_engine_by_address", "_engine_last_active", "_handshake_futures", "_invalid_engine_backoff",
        "_pending_recv_notifs", "_recving_metadata", "_reqs_to_send", "device_kv_caches", "_engine_clock_offset",
        "kv_caches_base_addr", "dst_num_blocks", "dst_region_num_blocks", "dst_uses_region_group_mapping",
        "dst_region_mem_types", "expected_consumer_notifications_by_req",
    ):  # fmt: skip
        setattr(worker, name, {})
    for name in (
        "_failed_remote_engines", "_invalid_remote_engines", "_recv_failures", "_replicated_pcp_done_sending",
        "_reqs_to_process",
    ):  # fmt: skip
        setattr(worker, name, set())
    worker._failed_recv_reqs, worker._invalid_block_ids, worker._ready_requests = (queue.Queue() for _ in range(3))
    worker._handshake_lock = threading.RLock()
    worker._recving_transfers = defaultdict(list)
    worker.consumer_notification_counts_by_req = defaultdict(int)
    worker.region_group_ids = []
    worker.src_xfer_handles_by_block_size = {32: 1}
    worker._physical_blocks_per_logical_kv_block = 1
    worker.transfer_topo = SimpleNamespace(
        get_engine_info=lambda _engine: SimpleNamespace(
            remote_tp_size=1, remote_dcp_size=1, remote_block_size=32, remote_physical_blocks_per_logical=1
        ),
        tp_ratio=lambda _size: 1,
        block_size_ratio=lambda _size: 1,
        unregister_remote_engine=lambda _engine: None,
    )
    worker.pdd_reads, worker.pdd_ends = lease_guard.Reads(worker), lease_guard.Ends(clock.now)
    worker.pdd_leases = release.Leases(worker._get_new_notifs.__wrapped__)
    meet(worker)

    def read_blocks(request_id: str, **_: Any) -> bool:
        worker._recving_transfers[request_id].append(1)
        return True

    monkeypatch.setattr(worker, "_read_blocks", read_blocks, raising=False)
    monkeypatch.setattr(worker, "shutdown", lambda: None, raising=False)
    return worker


def meet(worker: Any) -> None:
    worker._remote_agents = {P: {(0, 0): "agent-p"}}
    worker._engine_by_address = {("p", 5600): P}
    worker.dst_region_group_ids = {P: []}
    worker.dst_xfer_side_handles = {P: {}}
    worker.tp_mappings = {P: SimpleNamespace(all_source_ranks=[0], source_ranks_per_group=[[0]], local_consumers=1)}
    worker.dst_xfer_side_handles[P][0] = 1
    worker.nixl_wrapper.release_dlist_handle = lambda _handle: None


def params(**more: Any) -> dict[str, Any]:
    return {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[7]], "remote_engine_id": P,
        "remote_request_id": LEASE, "remote_host": "p", "remote_port": 5600, "tp_size": 1, **more,
    }  # fmt: skip


@pytest.fixture
def scheduler(clock: Clock) -> Any:
    scheduler = object.__new__(NixlPullConnectorScheduler)
    scheduler._kv_lease_duration, scheduler._heartbeat_interval = 30, 5
    scheduler._last_heartbeat_time = clock.now
    for name in ("_heartbeat_by_engine", "_heartbeat_req_engine", "_reqs_need_recv", "_reqs_need_send"):
        setattr(scheduler, name, {})
    scheduler._reqs_in_batch, scheduler._reqs_not_processed = set(), set()
    scheduler.vllm_config = SimpleNamespace(num_prefill_lookahead_tokens=0)
    scheduler.use_host_buffer = scheduler.is_bidirectional_kv_xfer_enabled = False
    scheduler._has_mamba = scheduler._bounded_replay = False
    scheduler.pdd_arrivals = lease_guard.Arrivals()
    return scheduler


def request(**more: Any) -> Request:
    made = Request("d1", list(range(33)), SamplingParams(max_tokens=1), None)
    made.kv_transfer_params = params(**more)
    return made


class TestScheduler:
    def test_a_request_in_time_is_read_and_renewed_at_once(self, scheduler: Any, clock: Clock) -> None:
        arrived = request(pdd_usable_until=clock.now + 1000 + 4)
        scheduler.on_new_request(arrived)
        assert scheduler.get_num_new_matched_tokens(arrived, 0) == (33, True)
        metadata = scheduler.build_connector_meta(None)
        assert metadata.heartbeat_by_engine[P].req_ids == {LEASE}
        assert metadata.pdd_arrivals == lease_guard.Arrivals({(P, LEASE): clock.now + 4 + 10 - 3})
        assert scheduler.build_connector_meta(None).pdd_arrivals == lease_guard.Arrivals()

    @pytest.mark.parametrize("until", [1099.9, "soon"])
    def test_a_late_one_is_an_ordinary_request(
        self, until: object, scheduler: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        logging.getLogger("vllm").propagate = True
        late = request(pdd_usable_until=until)
        with caplog.at_level(logging.WARNING, logger="vllm.pdd"):
            scheduler.on_new_request(late)
        assert "request d1 came" in caplog.text
        assert scheduler.get_num_new_matched_tokens(late, 0) == (0, False)
        scheduler.update_state_after_alloc(late, None, 0)
        assert scheduler.request_finished(late, ([1],)) == (False, None)
        metadata = scheduler.build_connector_meta(None)
        assert not metadata.heartbeat_by_engine
        assert not metadata.reqs_to_recv
        assert metadata.pdd_arrivals == lease_guard.Arrivals(refused=1)

    def test_one_that_says_nothing_is_taken(self, scheduler: Any, clock: Clock) -> None:
        scheduler.on_new_request(request())
        assert scheduler.pdd_arrivals.good_until == {(P, LEASE): clock.now + 15}

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_a_lease_says_when_it_began(self, scheduler: Any, clock: Clock, nodes: int) -> None:
        """By the host's clock; of several hosts each has its own."""
        parallel = SimpleNamespace(nnodes=nodes, pipeline_parallel_size=1, decode_context_parallel_size=1)
        scheduler.vllm_config.parallel_config, scheduler.transfer_tp_size = parallel, 1
        scheduler.engine_id, scheduler.side_channel_host, scheduler.side_channel_port = P, "p", 5600
        scheduler.get_exchange_clipped_blocks = lambda blocks: blocks
        done = request(do_remote_decode=True, do_remote_prefill=False, remote_block_ids=None)
        done.status = RequestStatus.FINISHED_LENGTH_CAPPED
        keeps, told = scheduler.request_finished(done, ([1, 2],))
        assert keeps
        assert told.get("pdd_leased_at") == (clock.now if nodes == 1 else None)

    def test_a_lease_is_none_of_it(self, scheduler: Any) -> None:
        lease = request(do_remote_decode=True, do_remote_prefill=False, pdd_usable_until=1.0, remote_block_ids=None)
        scheduler.on_new_request(lease)
        assert scheduler.pdd_arrivals == lease_guard.Arrivals()


def step(worker: Any, *, arrive: float | None = None, read: bool = False, heartbeat: bool = False) -> Any:
    """One step of a reader; `arrive` is how long its new request is good for."""
    metadata = NixlConnectorMetadata()
    metadata.scheduler_clock = lease_guard.time.perf_counter()
    metadata.pdd_arrivals = lease_guard.Arrivals()
    if arrive is not None:
        metadata.pdd_arrivals.good_until[(P, LEASE)] = lease_guard.time.monotonic() + arrive
    if heartbeat:
        metadata.heartbeat_by_engine = {P: HeartbeatInfo({LEASE}, "p", 5600, 1)}
    if read:
        metadata.add_new_req_to_recv("d1", [[3]], params(), awaiting_kvs=True)
    worker.start_load_kv(metadata)
    return worker.get_transfer_results()


def expired(worker: Any) -> int:
    return len(worker.xfer_stats.data["num_kv_expired_reqs"])


class TestReader:
    def test_a_read_is_preceded_by_a_heartbeat(self, worker: Any) -> None:
        step(worker, arrive=7, read=True)
        assert worker.nixl_wrapper.sent == [f"HB:{LEASE}"]
        assert worker._recving_transfers == {"d1": [1]}

    def test_who_sends_heartbeats_is_believed(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        for _ in range(20):
            clock.now += 5
            assert not step(worker, heartbeat=True).finished_recving
        worker.nixl_wrapper.state = "DONE"
        results = step(worker)
        assert (results.finished_recving, results.failed_recving) == ({"d1"}, set())
        assert worker.get_block_ids_with_load_errors() == set()
        assert expired(worker) == 0

    @pytest.mark.parametrize("heartbeat", [False, True])
    def test_who_slept_while_reading_is_not(self, heartbeat: bool, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        clock.now += 15.1
        worker.nixl_wrapper.state = "DONE"
        results = step(worker, heartbeat=heartbeat)
        assert (results.finished_recving, results.failed_recving) == ({"d1"}, {"d1"})
        assert worker.get_block_ids_with_load_errors() == {3}
        assert expired(worker) == 1
        assert not worker.pdd_reads._watches
        assert not worker.pdd_reads._lease_of

    def test_a_sleep_is_remembered_until_the_read_ends(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        clock.now += 21
        for _ in range(3):
            step(worker, heartbeat=True)
            clock.now += 5
        worker.nixl_wrapper.state = "DONE"
        assert step(worker).failed_recving == {"d1"}

    def test_heartbeats_that_could_not_be_sent_do_not_count(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        worker.nixl_wrapper.dead = True
        for _ in range(4):
            clock.now += 5
            step(worker, heartbeat=True)
        worker.nixl_wrapper.state = "DONE"
        assert step(worker).failed_recving == {"d1"}

    def test_a_read_does_not_begin_when_it_is_too_late(self, worker: Any, clock: Clock) -> None:
        """The scheduler slept between the arrival and the step."""
        step(worker, arrive=7)
        clock.now += 7.1
        results = step(worker, read=True, heartbeat=True)
        assert not worker._recving_transfers
        assert (results.finished_recving, results.failed_recving) == ({"d1"}, {"d1"})
        assert worker.get_block_ids_with_load_errors() == {3}
        assert expired(worker) == 1

    def test_a_lease_that_somebody_else_reads_is_not_read(self, worker: Any) -> None:
        """Nothing is known of it: its first reader is done, or it was never announced."""
        assert step(worker, read=True).failed_recving == {"d1"}

    def test_who_waits_in_the_queue_renews(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, heartbeat=True)
        for _ in range(20):
            clock.now += 5
            step(worker, heartbeat=True)
        step(worker, read=True)
        assert worker._recving_transfers == {"d1": [1]}

    def test_engines_that_have_to_meet_first(self, worker: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        agents, worker._remote_agents = worker._remote_agents, {}
        worker._handshake_futures = {P: "pending"}
        monkeypatch.setattr(worker, "_ensure_handshake", lambda *_: None if worker._remote_agents else "pending")
        monkeypatch.setattr(worker, "_background_nixl_handshake", lambda *_: None)
        step(worker, arrive=7, heartbeat=True)
        assert worker.nixl_wrapper.sent == []
        worker._remote_agents, worker._handshake_futures = agents, {}
        clock.now += 0.5
        step(worker)  # not only with the next heartbeat
        assert worker.nixl_wrapper.sent == [f"HB:{LEASE}"]
        clock.now += 10
        step(worker, read=True)
        assert worker._recving_transfers == {"d1": [1]}

    def test_engines_that_do_not_meet_are_not_asked_in_each_step(
        self, worker: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker._remote_agents = {}
        asked = []
        monkeypatch.setattr(worker, "_ensure_handshake", lambda *_: asked.append(1) or "pending")
        step(worker, arrive=7, heartbeat=True)
        for _ in range(5):
            step(worker)
        assert asked == [1]

    def test_nothing_to_read_is_only_a_notice(self, worker: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        noticed = []
        monkeypatch.setattr(worker, "_read_blocks", lambda **read: noticed.append(read["remote_request_id"]) or True)
        step(worker, arrive=7)
        clock.now += 100
        metadata = NixlConnectorMetadata()
        metadata.add_new_req_to_recv("d1", [], params(), awaiting_kvs=False)
        worker.start_load_kv(metadata)
        assert noticed == [LEASE]
        assert expired(worker) == 0
        assert not worker.pdd_reads._watches

    def test_refused_requests_count(self, worker: Any) -> None:
        metadata = NixlConnectorMetadata()
        metadata.pdd_arrivals = lease_guard.Arrivals(refused=2)
        worker.start_load_kv(metadata)
        assert expired(worker) == 2
        assert worker.get_kv_connector_stats().data["num_kv_expired_reqs"] == [1, 1]

    def test_another_connector_is_left_alone(self) -> None:
        assert not hasattr(NixlPushConnectorWorker, "pdd_guards_leases")
        assert NixlPushConnectorWorker._send_heartbeats is not NixlPullConnectorWorker._send_heartbeats


def leased(worker: Any, clock: Clock, *leases: str) -> None:
    for lease in leases:
        worker._reqs_to_process.add(lease)
        worker._reqs_to_send[lease] = clock.now + 30


class TestOwner:
    def test_a_lease_ends_in_time(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE)
        while clock.now < 130 - 0.5:
            clock.now += 0.5
            assert not worker.get_transfer_results().finished_sending
        clock.now += 0.5
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert expired(worker) == 1

    def test_after_a_sleep_readers_are_heard_first(self, worker: Any, clock: Clock) -> None:
        """The notices of readers may come in after the first look."""
        leased(worker, clock, LEASE)
        clock.now += 60
        assert not worker.get_transfer_results().finished_sending
        worker.nixl_wrapper.arrived = [f"HB:{LEASE}".encode()]
        clock.now += 0.01
        assert not worker.get_transfer_results().finished_sending
        clock.now += 60
        assert not worker.get_transfer_results().finished_sending
        worker.nixl_wrapper.arrived = [f"{LEASE}:1".encode()]
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert expired(worker) == 0


class Executor:
    """The workers of one engine."""

    def __init__(self, *workers: Any) -> None:
        self.workers = workers

    def collective_rpc(self, method: Any, args: Any) -> list[Any]:
        results = []
        for worker in self.workers:
            kv_transfer_state._KV_CONNECTOR_AGENT = SimpleNamespace(connector_worker=worker)
            results.append(method(None, *args))
        kv_transfer_state._KV_CONNECTOR_AGENT = None
        return results


def let_go(executor: Executor, *ids: str) -> int:
    released: int = EngineCore.pdd_release_leases(SimpleNamespace(model_executor=executor), list(ids))
    return released


class TestRelease:
    def test_a_lease_ends_with_the_next_step_and_has_not_expired(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE, "other-00000000")
        assert let_go(Executor(worker), LEASE, "unknown") == 1
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert let_go(Executor(worker), LEASE) == 0
        assert not worker.get_transfer_results().finished_sending
        assert set(worker._reqs_to_send) == worker._reqs_to_process == {"other-00000000"}
        assert expired(worker) == 0

    def test_one_that_a_reader_renews_is_kept(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE)
        worker.nixl_wrapper.arrived = [f"HB:{LEASE}".encode()]  # it has not been looked at
        assert let_go(Executor(worker), LEASE) == 0
        assert not worker.get_transfer_results().finished_sending
        assert let_go(Executor(worker), LEASE) == 0

    def test_one_that_was_read_a_moment_ago_is_done_once(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE)
        worker.nixl_wrapper.arrived = [f"{LEASE}:1".encode()]
        assert let_go(Executor(worker), LEASE) == 0
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert not worker.get_transfer_results().finished_sending
        assert worker.xfer_stats.data["num_notifications_after_expiry"] == []

    def test_one_that_one_of_two_readers_has_read_is_kept(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE)
        worker.nixl_wrapper.arrived = [f"{LEASE}:2".encode()]
        assert let_go(Executor(worker), LEASE) == 0

    def test_a_late_reader_counts_as_after_the_expiry(self, worker: Any, clock: Clock) -> None:
        leased(worker, clock, LEASE)
        let_go(Executor(worker), LEASE)
        worker.nixl_wrapper.arrived = [f"{LEASE}:1".encode()]
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert worker.xfer_stats.data["num_notifications_after_expiry"] == [1]

    @pytest.mark.parametrize("name", [LEASE, "generate-tokens-r1"])
    def test_a_request_that_is_still_computed_ends_as_no_lease(self, name: str, worker: Any, clock: Clock) -> None:
        worker._reqs_to_process.add(LEASE)
        assert let_go(Executor(worker), name) == 1
        assert not worker.get_transfer_results().finished_sending  # its blocks are being written
        worker._reqs_to_send[LEASE] = clock.now + 30
        assert worker.get_transfer_results().finished_sending == {LEASE}
        assert not worker._reqs_to_process

    def test_one_that_is_aborted_meanwhile_is_forgotten(self, worker: Any, clock: Clock) -> None:
        worker._reqs_to_process.add(LEASE)
        let_go(Executor(worker), LEASE)
        worker._reqs_to_process.discard(LEASE)
        worker.get_transfer_results()
        leased(worker, clock, LEASE)
        assert not worker.get_transfer_results().finished_sending

    def test_two_workers_agree(self, worker: Any, clock: Clock) -> None:
        """One of them has heard of a reader, the other one not yet."""
        leased(worker, clock, LEASE)
        other = object.__new__(NixlPullConnectorWorker)
        vars(other).update(vars(worker))
        other.shutdown = lambda: None
        other.nixl_wrapper = Nixl()
        other.nixl_wrapper.arrived = [f"HB:{LEASE}".encode()]
        other._reqs_to_process, other._reqs_to_send = set(worker._reqs_to_process), dict(worker._reqs_to_send)
        other.pdd_leases = release.Leases(worker.pdd_leases._new_notifications)
        assert let_go(Executor(worker, other), LEASE) == 0
        assert LEASE in worker._reqs_to_send

    def test_a_worker_with_another_connector_has_no_leases(self) -> None:
        assert let_go(Executor(SimpleNamespace()), LEASE) == 0

    def test_an_id_that_is_only_similar(self) -> None:
        assert release.known(["a", "a-0000000", "b"], {"a-00000000", "b-xyz"}) == {"a-00000000"}


class TestReconnect:
    def test_an_engine_from_which_a_read_failed_is_met_again(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        worker.nixl_wrapper.state = "ERR"
        assert step(worker).failed_recving == {"d1"}
        assert P not in worker._remote_agents
        assert not worker._invalid_remote_engines

    def test_not_while_another_read_is_under_way(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        worker._failed_remote_engines = {P}
        step(worker)
        assert P in worker._remote_agents
        assert worker._invalid_remote_engines == {P}  # no read begins

    def test_not_after_a_lease_that_ended(self, worker: Any, clock: Clock) -> None:
        step(worker, arrive=7, read=True)
        clock.now += 20
        worker.nixl_wrapper.state = "DONE"
        assert step(worker).failed_recving == {"d1"}
        assert P in worker._remote_agents


def test_a_process_without_nixl_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    registry = dict.fromkeys(nixl.CONNECTORS, lambda: calls.append("loaded"))
    monkeypatch.setattr(KVConnectorFactory, "_registry", registry)
    nixl.when_loaded(lambda: calls.append("patched"))
    assert calls == []
    KVConnectorFactory.get_connector_class_by_name("NixlConnector")
    assert calls == ["loaded", "patched"]
