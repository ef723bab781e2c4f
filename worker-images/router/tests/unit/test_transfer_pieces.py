from hypothesis import given
from hypothesis import strategies as st

from pdd_router.line.held import Held
from pdd_router.policy.transfer import LEAST_PIECE_TOKENS, pieces


@given(
    tokens=st.integers(1, 200_000),
    held=st.integers(0, 200_000),
    piece=st.integers(0, 50_000),
    block=st.sampled_from([16, 32, 512]),
)
def test_pieces_are_whole_blocks_and_make_up_the_prompt(tokens: int, held: int, piece: int, block: int) -> None:
    held = min(held, tokens - 1)
    ends = pieces(tokens, held=held, piece_tokens=piece, block_size=block)
    assert ends[-1] == tokens
    assert ends == sorted(set(ends))
    assert all(end % block == 0 for end in ends[:-1])
    longest = max(piece, LEAST_PIECE_TOKENS, block)
    sizes = [end - begin for begin, end in zip([held // block * block, *ends[:-1]], ends, strict=True)]
    assert all(size <= 1.25 * longest for size in sizes)
    assert len(sizes) == 1 or sizes[-1] >= longest // block * block / 4


def test_a_prompt_that_fits_goes_whole() -> None:
    assert pieces(1500, held=1000, piece_tokens=6400, block_size=32) == [1500]
    assert pieces(7900, held=0, piece_tokens=6400, block_size=32) == [7900]
    assert pieces(8100, held=0, piece_tokens=6400, block_size=32) == [6400, 8100]


PROMPT = list(range(1000))


def test_what_was_sent_is_held() -> None:
    held = Held()
    assert held.tokens(PROMPT, cached_at_prefill=0) == 0
    held.now(PROMPT[:600], "md-0")
    assert held.tokens(PROMPT, cached_at_prefill=0) == 512  # whole chunks
    held.keep_only({"md-1"})
    assert held.tokens(PROMPT, cached_at_prefill=0) == 0


def test_what_p_has_is_held_unless_it_is_on_its_way() -> None:
    """Another router sent it, or this one has not yet."""
    held = Held()
    assert held.tokens(PROMPT, cached_at_prefill=960) == 960
    on_its_way = held.on_its_way(PROMPT[:900])
    assert held.tokens(PROMPT, cached_at_prefill=960) == 0
    held.now(PROMPT[:300], "md-0")
    assert held.tokens(PROMPT, cached_at_prefill=960) == 256
    on_its_way.close()
    assert held.tokens(PROMPT, cached_at_prefill=960) == 960
