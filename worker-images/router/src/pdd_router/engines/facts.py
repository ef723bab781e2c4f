"""What an engine or a renderer says about itself (`GET /pdd/v1/facts`, served by pdd_engine)."""

from pydantic import BaseModel


class RendererFacts(BaseModel):
    role: str
    model: str
    revision: str
    served_model_name: str
    vllm_version: str
    max_model_len: int
    tokenizer_fingerprint: str
    adapters_fingerprint: str


class Facts(RendererFacts):
    dtype: str
    kv_cache_dtype: str
    block_size: int
    kv_bytes_per_token: int
    kv_cache_tokens: int
    max_num_seqs: int
    position_seeds: bool
    kv_lease_duration: float
    weights_fingerprint: str
