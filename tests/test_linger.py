"""The wait for more elements is longer where messages take long, and no longer than its bound."""

from __future__ import annotations

import pytest

from lmerge.linger import MESSAGES_AVERAGED, Linger

LEAST_S, MOST_S = 0.002, 0.010


def after(*took_s: float) -> float:
    linger = Linger(LEAST_S, MOST_S)
    for seconds in took_s:
        linger.took(seconds)
    return linger.seconds


def test_it_is_short_where_messages_are() -> None:
    assert after() == LEAST_S
    assert after(*[LEAST_S / 2] * 1_000) == LEAST_S


def test_it_grows_with_what_a_message_takes() -> None:
    assert after(*[0.006] * 1_000) == pytest.approx(0.006)


def test_it_is_bounded_whatever_a_message_takes() -> None:
    assert after(*[3600.0] * 1_000) == pytest.approx(MOST_S)


def test_one_message_that_was_held_up_changes_little() -> None:
    assert after(*[0.0] * 100, 3600.0) <= max(LEAST_S, MOST_S / MESSAGES_AVERAGED)


def test_it_is_short_again_soon_after_the_delays() -> None:
    assert after(*[3600.0] * 1_000, *[0.0] * 3 * MESSAGES_AVERAGED) == LEAST_S
