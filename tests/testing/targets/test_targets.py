"""Targets (TESTING 1, T4; 2, A6): a tree means the same plan in every language, and others register."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping

import pytest
from judged_world import ENGINE

import lmerge.temporal as lt
from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.testing.checking.session import every_operator
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.systems.system import SystemFailure
from lmerge.testing.targets.target import TARGETS
from lmerge.testing.transforming.transformer import transform


def test_both_targets_mean_the_plan_of_every_tree(seeds_of: Callable[[int, int], range]) -> None:
    """T3, A6 (1.1, 3): one scenario in two languages is one plan."""
    json_target, python_target = TARGETS.find("json"), TARGETS.find("python")
    for tree in transform(every_operator(), seed=5, strength=1, most=len(seeds_of(3000, 25))):
        outputs = dict(tree.outputs)
        assert json_target.read(json_target.written(outputs)) == outputs
        assert python_target.read(python_target.written(outputs)) == outputs


def test_the_program_reads_as_a_user_would_write_it() -> None:
    late = lt.source("flights", {"origin": "string", "delay": "int?"}).where(lt.col.delay > 15)
    text = TARGETS.find("python").written({"late": late.group_by("origin").tumbling(5).agg(n=lt.count()).node})
    assert "s2 = s1.where(col.delay > 15)" in text
    assert "outputs = {'late': s3}" in text


class ReversedJson:
    """A language of its own: plan JSON with its nodes last."""

    name = "reversed"

    def written(self, outputs: Mapping[str, PlanNode]) -> str:
        return json.dumps(dict(reversed(plan_to_json(outputs).items())))

    def read(self, text: str) -> dict[str, PlanNode]:
        return plan_from_json(json.loads(text))


def test_a_third_target_is_registered_and_passes() -> None:
    """T4 (1.2): a language joins without a change of any scenario."""
    TARGETS.register("reversed", ReversedJson())
    try:
        (tree,) = transform(every_operator(), strength=1, most=1)
        other = dataclasses.replace(tree, run={**tree.run, "target": "reversed"})
        assert ENGINE.run(other, inputs_of(other)).outputs == ENGINE.run(tree, inputs_of(tree)).outputs
    finally:
        TARGETS.forget("reversed")


class Forgetful(ReversedJson):
    """A language that loses what the result does."""

    name = "forgetful"

    def read(self, text: str) -> dict[str, PlanNode]:
        return {name: node.reads[0] for name, node in super().read(text).items()}


def test_a_target_that_means_another_plan_is_found() -> None:
    TARGETS.register("forgetful", Forgetful())
    try:
        (tree,) = transform(every_operator(), strength=1, most=1)
        other = dataclasses.replace(tree, run={**tree.run, "target": "forgetful"})
        with pytest.raises(SystemFailure, match="target 'forgetful' means another plan than the tree"):
            ENGINE.run(other, inputs_of(other))
    finally:
        TARGETS.forget("forgetful")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("json", "{", "the plan is no JSON"),
        ("python", "1 / 0", "the program failed: ZeroDivisionError"),
        ("python", "x = 1", "the program has no outputs"),
        ("python", "outputs = {'a': 3}", "a mapping of names to streams"),
        ("python", "def f(:", "the program failed: SyntaxError"),
    ],
)
def test_a_text_that_means_no_plan_is_an_error(name: str, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        TARGETS.find(name).read(text)


def test_an_error_of_the_plan_stays_one() -> None:
    with pytest.raises(PlanError, match="has no column 'b'"):
        TARGETS.find("python").read("from lmerge.temporal import source\nsource('a', {'a': 'int'})['b']")


def test_an_unknown_target_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="there is no target 'cql'; there are json, python"):
        TARGETS.find("cql")
