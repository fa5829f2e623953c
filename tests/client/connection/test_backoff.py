"""Backoff: exponential, capped, with full jitter."""

from __future__ import annotations

from random import Random

from lmerge.client.connection.backoff import Backoff


def test_waits_are_spread_over_an_interval_that_doubles_up_to_the_cap() -> None:
    bounds = [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]
    waits = [[] for _ in bounds]  # type: list[list[float]]
    for seed in range(500):
        backoff = Backoff(random=Random(seed))
        for of_attempt in waits:
            of_attempt.append(backoff.next_s())
    for bound, of_attempt in zip(bounds, waits):
        assert 0 <= min(of_attempt) < 0.1 * bound
        assert 0.9 * bound < max(of_attempt) <= bound


def test_success_starts_it_again() -> None:
    backoff = Backoff(random=Random(1))
    for _ in range(10_000):
        assert backoff.next_s() <= 0.5
    backoff.reset()
    assert backoff.next_s() <= 0.05
