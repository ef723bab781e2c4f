"""How long a prompt's KV cache takes over the line."""

from math import ceil


def kv_bytes(tokens: int, *, kv_bytes_per_token: int, block_size: int) -> int:
    """Bytes of the KV cache of `tokens` tokens: whole blocks move, never parts of one."""
    return ceil(tokens / block_size) * block_size * kv_bytes_per_token


def transfer_seconds(size: int, *, bits_per_second: float, round_trip_seconds: float) -> float:
    """Seconds until `size` bytes have arrived on an otherwise idle, warm line.

    One round trip to ask, then the bytes at the line's rate (`pdd.md`, model, step 3, without the
    slow-start term: connections between engines stay warm).
    """
    if size == 0:
        return 0.0
    return round_trip_seconds + size * 8 / bits_per_second


# Below this the two engines' steps for a piece take longer than its bytes on the lines that are too thin for more.
LEAST_PIECE_TOKENS = 256


def pieces(tokens: int, *, held: int, piece_tokens: int, block_size: int) -> list[int]:
    """Where the pieces of a prompt end whose first `held` tokens are there: whole blocks, then all of it.

    None is longer than a piece and a quarter, and none but an only one is shorter than a quarter.
    """
    piece = max(piece_tokens, LEAST_PIECE_TOKENS) // block_size * block_size or block_size
    end, ends = held // block_size * block_size, []
    while tokens - end > piece + piece // 4:
        end += piece
        ends.append(end)
    return [*ends, tokens]
