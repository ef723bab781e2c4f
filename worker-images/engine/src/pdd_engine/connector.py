"""vLLM's NIXL connector, which also says how much of a pulled prompt this engine had already.

An engine reports the tokens of a pulled prompt as cached, wherever they came from. Which of them crossed the
line is what capacity, routing and the hit-rate telemetry are decided on, and only the scheduler knows it: it
asks the connector for the rest beyond its own prefix cache. The answer to a pull then carries
`kv_transfer_params: {"pdd_local_cached_tokens": n}`.

Loaded by `kv_connector_module_path`; the class keeps the name that vLLM's own checks look for.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector

LOCAL_HIT = "pdd_local_cached_tokens"


class NixlConnector(NixlPullConnector):  # type: ignore[misc]  # vLLM is not there when types are checked
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._local_hits: dict[str, int] = {}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        params = request.kv_transfer_params
        if params and params.get("do_remote_prefill"):
            self._local_hits[request.request_id] = num_computed_tokens
        result: tuple[int | None, bool] = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return result

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self._with_local_hit(request, super().request_finished(request, block_ids))

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self._with_local_hit(request, super().request_finished_all_groups(request, block_ids))

    def _with_local_hit(
        self, request: Any, finished: tuple[bool, dict[str, Any] | None]
    ) -> tuple[bool, dict[str, Any] | None]:
        hit = self._local_hits.pop(request.request_id, None)
        if hit is None:
            return finished
        keep_blocks, params = finished
        return keep_blocks, {**(params or {}), LOCAL_HIT: hit}
