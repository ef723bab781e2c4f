"""What is remembered of one request: for its log line, the metrics and the client's trace."""

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import structlog

from pdd_router import metrics
from pdd_router.policy.pipeline import Choice

_LOG = structlog.get_logger("pdd_router.request")


@dataclass
class Record:
    """Times are seconds since the request came in; None is "did not happen"."""

    request_id: str
    route: str
    stream: bool = False
    began: float = field(default_factory=perf_counter)
    pipeline: str | None = None
    reason: str | None = None
    prompt_tokens: int = 0
    cached_at_prefill: int = 0
    cached_at_main: int | None = None
    line_bytes: int | None = None
    predicted_transfer: float | None = None
    eager_tokens: int = 0
    main_tokens: int = 0
    prefilled: float | None = None
    pull_began: float | None = None
    transfer_seconds: float | None = None
    first_token: float | None = None
    handed_over: float | None = None
    main_first_token: float | None = None
    ended: float | None = None
    prefill_engine: str | None = None
    relay_engine: str | None = None
    main_engine: str | None = None
    finish_reason: str | None = None
    trouble: list[str] = field(default_factory=list)

    def now(self) -> float:
        return perf_counter() - self.began

    def prefill_done(self, cached_tokens: int, *, first: bool) -> None:
        """`first`: not the one that a request needs again when it lost an engine."""
        if first:
            self.cached_at_prefill += cached_tokens
        if self.prefilled is None:
            self.prefilled = self.now()

    def chosen(self, choice: Choice) -> None:
        """Of several choices or tries the first is told: it is what the client's wait came from."""
        if self.pipeline is None:
            self.pipeline, self.reason = choice.pipeline, choice.reason
            self.predicted_transfer = choice.predicted_seconds

    def transferred(self, engine: str, cached_tokens: int, seconds: float, line_bytes: int) -> None:
        self.main_engine = engine
        self.transfer_seconds = max(self.transfer_seconds or 0.0, seconds)
        self.cached_at_main = (self.cached_at_main or 0) + cached_tokens
        self.line_bytes = (self.line_bytes or 0) + line_bytes

    def token_out(self) -> None:
        if self.first_token is None:
            self.first_token = self.now()

    def from_main(self, tokens: int) -> None:
        if self.main_first_token is None:
            self.main_first_token = self.now()
        self.main_tokens += tokens

    @property
    def output_tokens(self) -> int:
        return self.eager_tokens + self.main_tokens

    @property
    def handoff_seconds(self) -> float | None:
        """From the cut to MD's first token: the one larger step that the client feels."""
        if self.main_first_token is None or self.handed_over is None:
            return None
        return self.main_first_token - self.handed_over

    def fields(self) -> dict[str, Any]:
        seconds = {
            "ttft": self.first_token,
            "prefill": self.prefilled,
            "transfer_began": self.pull_began,
            "transfer": self.transfer_seconds,
            "transfer_predicted": self.predicted_transfer,
            "handed_over": self.handed_over,
            "handoff": self.handoff_seconds,
            "total": self.ended,
        }
        return {
            "pipeline": self.pipeline,
            "reason": self.reason,
            "prompt_tokens": self.prompt_tokens,
            "cached_at_prefill": self.cached_at_prefill,
            "cached_at_main": self.cached_at_main,
            "line_bytes": self.line_bytes,
            "eager_tokens": self.eager_tokens,
            "output_tokens": self.output_tokens,
            "finish_reason": self.finish_reason,
            "trouble": self.trouble or None,
            "seconds": {k: round(v, 6) for k, v in seconds.items() if v is not None},
            "engines": {
                k: v
                for k, v in {
                    "prefill": self.prefill_engine,
                    "relay": self.relay_engine,
                    "main": self.main_engine,
                }.items()
                if v is not None
            },
        }

    def close(self, *, status: int, outcome: str) -> None:
        """Once, at the end of the request, however it ended."""
        self.ended = self.now()
        _LOG.info(
            "request",
            request_id=self.request_id,
            route=self.route,
            stream=self.stream,
            status=status,
            outcome=outcome,
            **self.fields(),
        )
        pipeline = self.pipeline or "none"
        metrics.REQUESTS.labels(self.route, pipeline, outcome).inc()
        metrics.PROMPT_TOKENS.inc(self.prompt_tokens)
        metrics.CACHED_TOKENS.labels("prefill").inc(self.cached_at_prefill)
        metrics.OUTPUT_TOKENS.labels("relay-decode").inc(self.eager_tokens)
        metrics.OUTPUT_TOKENS.labels("main-decode").inc(self.main_tokens)
        for histogram, value in (
            (metrics.TTFT, self.first_token),
            (metrics.PREFILL, self.prefilled),
            (metrics.TRANSFER, self.transfer_seconds),
            (metrics.HANDOFF, self.handoff_seconds),
        ):
            if value is not None:
                histogram.labels(pipeline).observe(value)
