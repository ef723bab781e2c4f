"""Prometheus metrics of the front router."""

from prometheus_client import Counter, Gauge, Histogram

# From a warm prefix hit to a 100K-token prompt over a thin line.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)

REQUESTS = Counter("pdd_requests", "Requests ended", ["route", "pipeline", "outcome"])
PROMPT_TOKENS = Counter("pdd_prompt_tokens", "Prompt tokens of ended requests")
CACHED_TOKENS = Counter("pdd_cached_tokens", "Prompt tokens found in the prefix cache", ["role"])
OUTPUT_TOKENS = Counter("pdd_output_tokens", "Output tokens by who decoded them (relay-decode: eager)", ["role"])
LINE_BYTES = Counter("pdd_line_kv_bytes", "KV cache bytes that MD asked for over the line, without headers")
IN_FLIGHT = Gauge("pdd_transfers_in_flight", "KV transfers to MD that have begun and not ended")
TTFT = Histogram("pdd_time_to_first_token_seconds", "Request in to first token out", ["pipeline"], buckets=_SECONDS)
PREFILL = Histogram(
    "pdd_prefill_seconds", "Request in to prefill done, rendering included", ["pipeline"], buckets=_SECONDS
)
TRANSFER = Histogram("pdd_transfer_seconds", "KV cache over the line, asked to there", ["pipeline"], buckets=_SECONDS)
HANDOFF = Histogram("pdd_handoff_seconds", "Cut of RLD to first token of MD", ["pipeline"], buckets=_SECONDS)
PUT_ASIDE = Counter("pdd_engines_put_aside", "Times an engine did not answer and got no new work", ["role"])
RESUMED = Counter("pdd_resumed", "Answers that lost their engine and went on at another")
LEASES = Counter("pdd_leases", "KV leases at prefill engines by their end", ["end"])
REFUSED_PAIRS = Counter("pdd_refused_pairs", "Pairs of engines not used: another model or KV format", ["role", "field"])
UNAUTHORIZED = Counter("pdd_unauthorized", "Requests without a valid API key")
