"""How long a prompt's KV cache takes over the line."""

from math import ceil


def kv_bytes(tokens: int, *, kv_bytes_per_token: int, block_size: int) -> int:
    """Bytes of the KV cache of `tokens` tokens: whole blocks move, never parts of one."""
    return ceil(tokens / block_size) * block_size * kv_bytes_per_token


def transfer_seconds(size: int, *, bits_per_second: int, round_trip_seconds: float) -> float:
    """Seconds until `size` bytes have arrived on an otherwise idle, warm line.

    One round trip to ask, then the bytes at the line's rate (`pdd.md`, model, step 3, without the
    slow-start term: connections between engines stay warm).
    """
    if size == 0:
        return 0.0
    return round_trip_seconds + size * 8 / bits_per_second
