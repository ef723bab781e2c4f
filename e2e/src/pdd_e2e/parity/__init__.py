"""Whether a client can tell the endpoint from one `vllm serve`.

`catalogue` is what is claimed, and docs/api.md has its table from it; `asking` and `compare` find out.
"""
