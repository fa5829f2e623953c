"""The distance of turns, in virtual time: a millisecond, and more if each output goes to many subscribers, or if
turns take long.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import Insert
from lmerge.core.inputs import InputRole
from lmerge.service.merge.attachments import AttachRequest
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.turn_pace import TurnPace
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.settings import Settings
from lmerge.testing.sim.loop import later, run_virtual

BATCHES = 1_000  # one every millisecond


class PacedSession:
    """A session that ignores the hub's calls."""

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        assert sequence > 0

    def end(self, error: Exception, detached: Any = None) -> None:
        raise AssertionError(error)

    def fast_forward(self, until: int) -> None:
        raise AssertionError("no feedback was expected")

    def change_role(self, role: str) -> None:
        raise AssertionError("no change of role was expected")


async def turns_with(subscribers: int) -> tuple[int, list[int]]:
    """Return the turns of a second with a batch every millisecond, and the messages sent to each subscriber."""
    hub = Hub("flights", Settings(http_port=None))
    crashes: list[BaseException] = []
    hub.start(crashes.append)
    readers = [SubscriberQueue(f"r{at}", "here", 2**25) for at in range(subscribers)]
    for reader in readers:
        await hub.subscriptions.subscribe(reader)
    session = PacedSession()
    await hub.inputs.attach(session, AttachRequest("a", None, frozenset(), None, InputRole.ACTIVE, None))
    before = hub.state.turns
    for at in range(BATCHES):
        await hub.put(session, at + 1, Batch.of([Insert(b"%d" % at, at, at + 10)]), 64, received_s=0.0)
        await later(0.001)
    turns = hub.state.turns - before
    await later(0.2)
    messages = []
    for reader in readers:
        count = 0
        while reader.queued_bytes:
            await reader.take()
            count += 1
        messages.append(count)
        assert reader.sent_elements == BATCHES
    await hub.close()
    assert not crashes
    return turns, messages


@pytest.mark.parametrize(("subscribers", "apart_ms"), [(1, 1), (10, 2), (50, 10), (100, 20), (200, 40)])
def test_turns_are_apart_by_what_their_messages_cost(subscribers: int, apart_ms: int) -> None:
    turns, messages = run_virtual(turns_with(subscribers))
    assert turns == pytest.approx(BATCHES / apart_ms, rel=0.05)
    assert all(count == pytest.approx(turns, abs=2) for count in messages)


async def starts(*took_s: float) -> list[float]:
    """Return when the turns of a second begin, if they take ``took_s``, by turns."""
    pace, began = TurnPace(Settings(http_port=None)), []
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.0
    while loop.time() < end:
        await pace.pause()
        pace.begin()
        began.append(loop.time())
        await later(took_s[len(began) % len(took_s)])
        pace.end(1)
    return began


@pytest.mark.parametrize(("took_s", "apart_ms"), [(0.0001, 1), (0.0005, 1), (0.002, 2), (0.005, 5), (0.040, 40)])
def test_turns_follow_one_another_where_each_takes_long(took_s: float, apart_ms: int) -> None:
    began = run_virtual(starts(took_s))
    assert (began[-1] - began[-11]) / 10 == pytest.approx(apart_ms / 1_000, rel=0.02)


def test_a_short_turn_among_long_ones_is_followed_as_they_are() -> None:
    """On a machine that is short of CPU, so that fewer and larger turns do the same work."""
    began = run_virtual(starts(0.0, 0.008, 0.008, 0.008))
    apart = [after - before for before, after in pairwise(began[100:])]
    assert min(apart) == pytest.approx(0.0056, abs=0.001)


async def hurried() -> float:
    """Return how long a pause takes that ``hurry`` ends after half a millisecond."""
    pace = TurnPace(Settings(http_port=None))
    pace.begin()
    pace.end(1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(0.0005, pace.hurry)
    await pace.pause()
    return loop.time() - began


def test_a_pause_ends_when_there_is_a_hurry() -> None:
    assert run_virtual(hurried()) == pytest.approx(0.0005)
