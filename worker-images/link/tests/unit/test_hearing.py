from pdd_link.measure.echoes import WINDOW_SECONDS, Loss
from pdd_link.measure.hearing import Hearing, together


def hear(hearing: Hearing, sequence: int, *, now: float = 0.0, size: int = 88, remarked: bool = False) -> bool:
    return hearing.accept(sequence, size=size, remarked=remarked, now=now)


def test_gaps_are_loss() -> None:
    hearing = Hearing()
    assert all(hear(hearing, n) for n in (10, 11, 14, 15))
    heard = hearing.summary(0.0)
    assert (heard.loss, heard.received, hearing.received) == (Loss(2, 6), 4, 4)


def test_what_overtook_another_is_no_replay_and_what_comes_again_is() -> None:
    hearing = Hearing()
    assert hear(hearing, 200)
    assert hear(hearing, 199)
    assert not hear(hearing, 200)
    assert not hear(hearing, 199)
    assert hear(hearing, 73)
    assert not hear(hearing, 72)  # too old to know
    assert hearing.received == 3


def test_size_class_and_age_are_remembered_for_a_minute() -> None:
    hearing = Hearing()
    hear(hearing, 0, size=1500, remarked=True, now=0.0)
    hear(hearing, 1, size=1400, now=30.0)
    heard = hearing.summary(WINDOW_SECONDS)
    assert (heard.largest, heard.remarked, heard.last_at) == (1500, 1, 30.0)
    heard = hearing.summary(WINDOW_SECONDS + 1)
    assert (heard.largest, heard.remarked, heard.received) == (1400, 0, 1)
    heard = hearing.summary(1000.0)
    assert (heard.largest, heard.loss, heard.last_at) == (0, Loss(0, 0), 30.0)


def test_streams_add_up() -> None:
    one, other = Hearing(), Hearing()
    hear(one, 0, size=1500, now=1.0)
    hear(other, 5, now=2.0)
    hear(other, 7, now=3.0, remarked=True)
    both = together([one.summary(4.0), other.summary(4.0)])
    assert (both.loss, both.received, both.largest, both.remarked, both.last_at) == (Loss(1, 4), 3, 1500, 1, 3.0)
    assert together([]).received == 0
