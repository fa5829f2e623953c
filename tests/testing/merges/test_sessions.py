"""Sessions of drawn merges: each kind finds a defect of the merge (``tests/core`` plays them without one)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lmerge.core import properties
from lmerge.core.batch import Batch
from lmerge.core.engines import selection
from lmerge.core.engines.selection import native_problem
from lmerge.core.merge import Merge, Outcome
from lmerge.core.policy import Policy
from lmerge.core.r3 import R3
from lmerge.core.r4 import R4
from lmerge.testing.merges.judged import broken_session
from lmerge.testing.merges.lawful import cut_session, lawful_session
from lmerge.testing.merges.policies import policy_session
from lmerge.testing.merges.sessions import (
    crowded_session,
    downgraded_session,
    early_session,
    joining_session,
    restored_session,
    twin_session,
)

needs_native = pytest.mark.skipif(native_problem() is not None, reason="both engines are needed")


def hold_back_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the output of a policy with a lag stay one unit further behind, in Python."""
    right = Policy.held_back
    monkeypatch.setattr(Policy, "held_back", lambda self, t: right(self, t) - bool(self.lag))


def show_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one input be a quorum, in Python."""
    monkeypatch.setattr(Policy, "enough", lambda self, joined: 1)


def lose_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a restore lose an event, in Python."""
    right = R3.load_nodes
    monkeypatch.setattr(R3, "load_nodes", lambda self, rows: right(self, rows[1:]))


def adopt_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let R3 begin without the events that the output has when it is switched to, in Python."""
    monkeypatch.setattr(R3, "adopt", lambda self, event, copies: None)


def merge_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let elements of an incarnation that was replaced be merged, on one of two engines."""
    right = Merge.apply

    def applied(self: Merge, name: str, batch: Batch, incarnation: int | None = None) -> Outcome:
        return right(self, name, batch, incarnation if self.engine == selection.NATIVE else None)

    monkeypatch.setattr(Merge, "apply", applied)


def hold_to_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the algorithm be chosen by the promises alone, whatever has run before."""
    right = properties.choose

    def choose(promises: Mapping[str, properties.Properties], *, needs_index: str, runs: object) -> properties.Choice:
        return right(promises, needs_index=needs_index, runs=None)

    monkeypatch.setattr(properties, "choose", choose)


def lose_what_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an element be lost that is alone in its batch."""
    right = Merge.apply

    def applied(self: Merge, name: str, batch: Batch, incarnation: int | None = None) -> Outcome:
        return right(self, name, batch if batch.count > 1 else Batch.of([]), incarnation)

    monkeypatch.setattr(Merge, "apply", applied)


def note_nothing_that_is_lacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let R4 forget which inputs lack an end that it shows, in Python."""
    monkeypatch.setattr(R4, "_note_lacked", lambda self, node, slots, ve: None)


@pytest.mark.parametrize(
    ("play", "seed_defect"),
    [
        pytest.param(lambda seed: twin_session(seed, "r3"), hold_back_one_more, marks=needs_native),
        (lambda seed: policy_session("r3", "quorum:2", seed), show_early),
        (restored_session, lose_a_node),
        (broken_session, adopt_nothing),
        pytest.param(joining_session, merge_what_is_old, marks=needs_native),
        pytest.param(early_session, hold_back_one_more, marks=needs_native),
        pytest.param(downgraded_session, adopt_nothing, marks=needs_native),
        (lawful_session, hold_to_a_key),
        (cut_session, lose_what_is_alone),
        pytest.param(crowded_session, note_nothing_that_is_lacked, marks=needs_native),
    ],
    ids=[
        "twins",
        "policies",
        "restored",
        "broken",
        "joining-twins",
        "early-twins",
        "downgraded-twins",
        "lawful",
        "cut",
        "crowded-twins",
    ],
)
def test_a_session_finds_a_defect(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    play: Callable[[int], object],
    seed_defect: Callable[[pytest.MonkeyPatch], None],
) -> None:
    if "twins" not in request.node.name:
        monkeypatch.setattr(selection, "best", lambda: selection.PYTHON)
    for seed in range(40):
        play(seed)
    seed_defect(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        list(map(play, range(40)))
