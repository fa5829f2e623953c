"""How long an input is behind, in seconds, from a bounded number of moments."""

from __future__ import annotations

import random

from lmerge.core.elements import NEG_INF
from lmerge.service.merge.stable_history import StableHistory


def test_an_input_is_behind_since_the_output_passed_it() -> None:
    history = StableHistory()
    for now_s, point in ((1.0, 10), (2.0, 20), (2.5, 20), (4.0, 30)):
        history.note(now_s, point)
    behind = {point: history.behind_s(point, 5.0) for point in (NEG_INF, 9, 10, 19, 20, 29, 30, 31)}
    assert behind == {NEG_INF: 4.0, 9: 4.0, 10: 3.0, 19: 3.0, 20: 1.0, 29: 1.0, 30: 0.0, 31: 0.0}


def test_nothing_is_behind_an_output_without_a_stable_point() -> None:
    assert StableHistory().behind_s(NEG_INF, 5.0) == 0.0


def test_a_lag_is_never_too_large_and_too_small_by_a_sixteenth_at_most() -> None:
    draw = random.Random(7)
    history, exact = StableHistory(), []
    now_s = 0.0
    for point in range(60_000):
        now_s += draw.expovariate(1.0) if point % 10_000 else 3_000.0
        history.note(now_s, point)
        exact.append(now_s)
        if point % 997 == 0 or point > 59_990:
            for back in (0, 1, 2, 10, 100, 1_000, 10_000, 50_000):
                if point - back - 1 >= 0:
                    true_s = now_s - exact[point - back]
                    assert true_s * (1 - 1 / 16) - 1e-6 <= history.behind_s(point - back - 1, now_s) <= true_s
        assert len(history._points) <= 1024
