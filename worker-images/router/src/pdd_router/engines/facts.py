"""What an engine says about itself (`GET /pdd/v1/facts`, served by pdd_engine)."""

from pydantic import BaseModel


class Facts(BaseModel):
    role: str
    model: str
    revision: str
    served_model_name: str
    vllm_version: str
    dtype: str
    block_size: int
    max_model_len: int
    kv_bytes_per_token: int
