"""The cost of a turn beside the merge, counted in calls: a limit that does not depend on the machine's speed.

Every Python function and every function of a C extension that the hub's turns call is counted, with all features as a
server has them by default. A new cost per batch is a new call per batch, so a test fails however short the call is.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import Insert, Stable
from lmerge.core.engines.selection import NATIVE, PYTHON, native_problem
from lmerge.core.inputs import InputRole
from lmerge.service.merge.attachments import AttachRequest
from lmerge.service.merge.hub import Hub
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.settings import Settings
from lmerge.testing.sim.loop import run_virtual

ROWS = 200
WARM = 20
TURNS = 100
INPUTS = 3


class QuietSession:
    """A session that takes every call of the hub and does nothing."""

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        pass

    def end(self, error: Exception, detached: Any = None) -> None:
        raise AssertionError(error)

    def fast_forward(self, until: int) -> None:
        pass

    def change_role(self, role: str) -> None:
        pass


def batch_of(engine: str, number: int) -> AnyBatch:
    start = number * ROWS
    batch = Batch.of([*(Insert(b"%d" % at, at, at + 500) for at in range(start, start + ROWS)), Stable(start)])
    if engine == PYTHON:
        return batch
    from lmerge.core.engines.native_engine import columns_of

    return columns_of("a", batch)


async def calls_a_batch(engine: str, batches_a_turn: int, settings: Settings) -> float:
    """Return the calls of a turn per batch, counted from when the batches wait to the end of the turn."""
    hub = Hub("flights", settings)
    hub.start(_raise)
    reader = SubscriberQueue("reader", "here", 2**25)
    await hub.subscriptions.subscribe(reader)
    sessions = [QuietSession() for _ in range(INPUTS)]
    for name, session in zip("abc", sessions, strict=True):
        await hub.inputs.attach(session, AttachRequest(name, None, frozenset({"key"}), None, InputRole.ACTIVE, None))
    work = [[batch_of(engine, number) for number in range((WARM + TURNS) * batches_a_turn)] for _ in sessions]
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for turn in range(WARM + TURNS):
        for at in range(turn * batches_a_turn, (turn + 1) * batches_a_turn):
            for session, batches in zip(sessions, work, strict=True):
                await hub.put(session, at + 1, batches[at], 64, received_s=0.0)
        if turn >= WARM:
            threading.setprofile(count)
            sys.setprofile(count)
        try:
            await hub._turn()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        while reader.queued_bytes:
            await reader.take()
    assert reader.sent_elements > 0
    await hub.close()
    return counted / (TURNS * batches_a_turn * INPUTS)


def _raise(problem: BaseException) -> None:
    raise problem


# By engine and batches of each input in a turn: the most calls for a batch, a tenth above what they are. In Python the
# merge and the comparison call functions for each of its 201 elements, and its table counts the bytes of payloads. Of
# each batch 4 calls measure what it has added to the bytes of the merge, which must be charged to its input.
MOST = {(NATIVE, 1): 126, (NATIVE, 8): 84, (PYTHON, 1): 2_920, (PYTHON, 8): 2_520}


@pytest.mark.parametrize(("engine", "batches_a_turn"), MOST)
def test_a_turn_calls_no_more_functions_than_it_did(engine: str, batches_a_turn: int) -> None:
    if engine == NATIVE and (problem := native_problem()):
        pytest.skip(problem)
    settings = Settings(http_port=None, engine=engine)
    most = MOST[engine, batches_a_turn]
    calls = run_virtual(calls_a_batch(engine, batches_a_turn, settings))
    assert 0.7 * most < calls <= most, "above: a new cost in each turn; far below: make the limit as tight again"


@pytest.mark.parametrize("batches_a_turn", [1, 8])
def test_the_comparison_of_inputs_costs_a_few_calls_a_batch(batches_a_turn: int) -> None:
    """On every engine the digests of a batch are made in one call."""
    if problem := native_problem():
        pytest.skip(problem)
    calls = {
        policy: run_virtual(
            calls_a_batch(NATIVE, batches_a_turn, Settings(http_port=None, engine=NATIVE, divergence=policy))
        )
        for policy in ("none", "alarm")
    }
    assert 5 < calls["alarm"] - calls["none"] < 26
