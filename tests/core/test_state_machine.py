"""Hypothesis drives a merge: inputs attach, join, publish, leave, break promises; it is restored in between.

The elements are drawn step by step, so inputs are not consistent with each other. Nevertheless the invariants of the
index hold (check), the output is a legal stream, and the live events are right. Each algorithm has a machine.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.testing.merges.declared import INDEX_POLICIES, PROMISES
from lmerge.testing.oracle import Follow

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
times = st.integers(-3, 12)
payloads = st.sampled_from([b"p", b"q"])
inserts = st.builds(Insert, payloads, times, st.one_of(times, st.just(INF)))
adjusts = st.builds(Adjust, payloads, times, st.one_of(times, st.just(INF)), st.one_of(times, st.just(INF)))
elements = st.one_of(inserts, inserts, adjusts, st.builds(Stable, st.one_of(times, times, st.just(INF))))


class MergeMachine(RuleBasedStateMachine):
    """One merge and the table of each input so far."""

    algorithm = "r3"

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        policies = INDEX_POLICIES if self.algorithm in ("r3", "r4") else ("lazy", "eager")
        auto = data.draw(st.booleans())
        self.follow = Follow(
            Merge(
                MergeConfig(
                    "auto" if auto else self.algorithm,
                    data.draw(st.sampled_from(policies)),
                    data.draw(st.sampled_from(["all", "any", "quorum:2"])),
                    allow_downgrade=auto and data.draw(st.booleans()),
                )
            ),
            compatible=False,
        )
        self.streams: dict[str, Tdb] = {}

    @rule(name=names, join_at=st.one_of(st.none(), times), role=st.sampled_from(["active"] * 4 + ["observe"]))
    def attach(self, name: str, join_at: int | None, role: str) -> None:
        if not self.follow.merge.is_attached(name):
            self.follow.attach(name, PROMISES[self.algorithm], join_at=join_at, role=role)
            self.streams[name] = Tdb(name)

    @rule(name=st.sampled_from(NAMES), stream=st.lists(elements, min_size=1, max_size=6))
    def publish(self, name: str, stream: list[Element]) -> None:
        """Publish mostly legal elements: illegal ones of a single stream are left out, except sometimes."""
        merge = self.follow.merge
        if not merge.is_attached(name):
            return
        legal = []
        for element in stream:
            try:
                self.streams[name].apply(element)
            except InputViolation:
                continue
            legal.append(element)
        for element in legal:
            self.follow._current[name] = Tdb(name)  # the copy of the oracle is not needed here
            outcome = merge.apply(name, _batch(element))
            self.follow._checked(outcome)
            if any(d.input == name for d in outcome.detached):
                return

    @rule(name=st.sampled_from(NAMES), element=elements)
    def publish_anything(self, name: str, element: Element) -> None:
        """Publish legal or illegal elements; an input that ends here must not disturb the rest."""
        if self.follow.merge.is_attached(name):
            outcome = self.follow.merge.apply(name, _batch(element))
            self.follow._checked(outcome)
            violation = _violation(self.streams[name], element)
            # Below the output's stable point it is not known whether an event existed.
            ignorable = violation is None or violation.code == "unknown-event"
            assert ignorable or outcome.detached, f"{violation} was not noticed"

    @precondition(lambda self: any(self.follow.merge.is_attached(name) for name in NAMES))
    @rule(name=st.sampled_from(NAMES))
    def detach(self, name: str) -> None:
        if self.follow.merge.is_attached(name):
            self.follow.detach(name)

    @rule(name=st.sampled_from(NAMES))
    def admit(self, name: str) -> None:
        if self.follow.merge.is_attached(name):
            self.follow.admit(name)

    @rule()
    def restore(self) -> None:
        self.follow.restore()

    @invariant()
    def in_order(self) -> None:
        if hasattr(self, "follow"):
            self.follow.merge.check()


def _violation(stream: Tdb, element: Element) -> InputViolation | None:
    try:
        stream.apply(element)
    except InputViolation as violation:
        return violation
    return None


def _batch(element: Element) -> Batch:
    return Batch.of([element])


@pytest.mark.parametrize("sessions", [60, pytest.param(600, marks=pytest.mark.long)])
@pytest.mark.parametrize("algorithm", PROMISES)
def test_a_merge_stays_in_order_whatever_happens(algorithm: str, sessions: int) -> None:
    machine = type(f"Machine{algorithm}", (MergeMachine,), {"algorithm": algorithm})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sessions,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
