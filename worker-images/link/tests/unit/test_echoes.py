from pdd_link.measure.echoes import LATE_SECONDS, WINDOW_SECONDS, Echoes, Loss

RESPONDER, RESTARTED = b"first...", b"second.."


def test_round_trips_are_ranks_and_jitter_their_mean_step() -> None:
    echoes = Echoes()
    for n in range(100):
        echoes.sent(n, now=n / 10)
        took = echoes.echoed(n, responder=RESPONDER, received=n + 1, now=n / 10 + (0.020 if n % 2 else 0.022))
        assert took is not None
    summary = echoes.summary(now=10.0)
    assert (summary.sent, summary.echoed) == (100, 100)
    assert round(summary.p50 or 0, 6) == 0.020
    assert round(summary.p99 or 0, 6) == 0.022
    assert round(summary.jitter or 0, 6) == 0.002
    assert echoes.last_at == 9.9 + 0.020


def test_a_late_echo_is_a_lost_one_and_one_on_its_way_is_not() -> None:
    echoes = Echoes()
    for n in range(3):
        echoes.sent(n, now=float(n))
    assert echoes.echoed(0, responder=RESPONDER, received=1, now=LATE_SECONDS + 0.1) is None
    summary = echoes.summary(now=LATE_SECONDS + 0.5)
    assert (summary.sent, summary.echoed, summary.loss) == (1, 0, Loss(1, 1))
    assert summary.p50 is summary.jitter is summary.forward is summary.back is None


def test_an_echo_counts_once_and_only_of_a_probe() -> None:
    echoes = Echoes()
    echoes.sent(0, now=0.0)
    assert echoes.echoed(1, responder=RESPONDER, received=1, now=0.1) is None
    assert echoes.echoed(0, responder=RESPONDER, received=1, now=0.1) == 0.1
    assert echoes.echoed(0, responder=RESPONDER, received=1, now=0.2) is None
    assert echoes.summary(now=0.3).echoed == 1


def test_the_responders_count_tells_the_directions_apart() -> None:
    echoes = Echoes()
    reached = 0
    for n in range(20):
        echoes.sent(n, now=n / 10)
        if n in (3, 4, 5):
            continue  # lost on the way there
        reached += 1
        if n in (8, 9):
            continue  # lost on the way back
        echoes.echoed(n, responder=RESPONDER, received=reached, now=n / 10 + 0.02)
    summary = echoes.summary(now=10.0)
    assert summary.loss == Loss(5, 20)
    assert summary.forward == Loss(3, 19)
    assert summary.back == Loss(2, 16)


def test_a_responder_that_restarts_counts_anew() -> None:
    echoes = Echoes()
    for n in range(10):
        echoes.sent(n, now=n / 10)
        who, received = (RESPONDER, 100 + n) if n < 5 else (RESTARTED, n - 4)
        echoes.echoed(n, responder=who, received=received, now=n / 10 + 0.02)
    summary = echoes.summary(now=1.0)
    assert summary.forward == summary.back == Loss(0, 4)


def test_the_window_is_a_minute() -> None:
    echoes = Echoes()
    echoes.sent(0, now=0.0)
    echoes.echoed(0, responder=RESPONDER, received=1, now=1.0)
    assert echoes.summary(now=WINDOW_SECONDS).sent == 1
    assert echoes.summary(now=WINDOW_SECONDS + 0.1).sent == 0
    assert echoes.last_at == 1.0
