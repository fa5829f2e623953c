"""Replicas that stand in for each other (TESTING 5, X7; 7, R3): one table, merged under interleavings and kills."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

import lmerge.temporal as lt
from lmerge.core.elements import INF, Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.temporal.row_forms import RowForms
from lmerge.testing import FunctionSystem, check_replicas
from lmerge.testing.streams.batches import InputBatch

FLIGHTS = lt.source("flights", {"origin": "string", "delay": "int?"})
LATE = FLIGHTS.where(lt.col.delay > 1).group_by("origin").tumbling(5).agg(n=lt.count())
COUNTED = lt.when(lt.col.delay > 1).then(1).otherwise(None)
OTHER = FLIGHTS.group_by("origin").tumbling(5).agg(n=lt.count(COUNTED), form="eager").where(lt.col.n > 0)
SLIGHTLY_OTHER = FLIGHTS.where(lt.col.delay >= 1).group_by("origin").tumbling(5).agg(n=lt.count(), form="watermark")


def test_two_plans_of_a_query_give_one_table_and_merge_to_it() -> None:
    """R3 (6.3): replicas give one table, merged as well."""
    verdict = check_replicas({"final": LATE, "eager": OTHER, "rewritten": LATE.rewritten("form-eager")})
    assert not verdict.is_bad, str(verdict)
    assert verdict.rounds == 20
    assert verdict.merges == 120
    assert str(verdict).startswith("final, eager, rewritten: 20 rounds, 120 merges: one table")


def test_a_replica_of_another_table_is_found_with_few_events() -> None:
    verdict = check_replicas({"final": LATE, "eager": OTHER, "other": SLIGHTLY_OTHER})
    assert verdict.is_bad
    finding = verdict.findings[0]
    assert finding.replica == "other"
    assert finding.inputs is not None
    assert len(finding.inputs["other"].elements("flights")) < 40
    assert "extra: " in str(verdict)
    assert "[--" in str(verdict)


Steps = Callable[[InputBatch], Iterable[Element]]


def passing(change: Callable[[list[Element]], list[Element]]) -> FunctionSystem:
    """Return a system that passes on the elements of its source, and changes them."""
    return FunctionSystem(lambda: lambda batch: change(list(batch.elements)), "passing")


SAME = FLIGHTS.shift(0)


def early(elements: list[Element]) -> list[Element]:
    """Let every finite stable be one unit too early."""
    return [Stable(one.vc + 1) if isinstance(one, Stable) and one.vc < INF else one for one in elements]


def dropping(elements: list[Element]) -> list[Element]:
    return [one for one in elements if not isinstance(one, Insert) or one.vs % 7 != 3]


def endless(elements: list[Element]) -> list[Element]:
    return [one for one in elements if one != Stable(INF)]


def failing(elements: list[Element]) -> list[Element]:
    raise ZeroDivisionError("1 / 0")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (early, "its output is no legal stream"),
        (dropping, "its table differs|no legal stream"),
        (endless, "its sources have ended, and it is at stable"),
        (failing, "passing raised at batch 1: ZeroDivisionError"),
    ],
)
def test_a_replica_that_breaks_a_law_is_found_and_shown(
    change: Callable[[list[Element]], list[Element]], problem: str
) -> None:
    """X7 (3): such as a stable point one tick too early."""
    verdict = check_replicas({"plan": SAME, "other": SAME.extend(0), "broken": passing(change)})
    assert verdict.is_bad
    assert {finding.replica for finding in verdict.findings} == {"broken"}
    assert any(part in str(verdict) for part in problem.split("|"))


def test_a_system_beside_a_plan_is_a_replica() -> None:
    assert not check_replicas({"plan": SAME, "function": passing(lambda elements: elements)}, rounds=8).is_bad


def test_data_that_is_stated_is_kept() -> None:
    verdict = check_replicas({"a": SAME, "b": passing(dropping)}, data={"values": "plain", "keys": "unique"}, seed=3)
    assert verdict.is_bad
    finding = verdict.findings[0]
    assert finding.inputs is not None
    forms = RowForms(SAME.schema)
    inserts = [one for one in finding.inputs["a"].elements("flights") if isinstance(one, Insert)]
    assert len({forms.of_payload(one.payload)[0] for one in inserts}) >= len({one.payload for one in inserts}) - 1


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ({"a": SAME}, "1 replica; two or more"),
        ({"a": passing(early), "b": passing(early)}, "none of the replicas is a plan"),
        ({"a": SAME, "b": LATE}, "has the columns"),
        ({"a": SAME, "b": lt.source("trains", {"origin": "string", "delay": "int?"}).shift(0)}, "reads trains"),
    ],
)
def test_what_cannot_be_compared_is_an_error(replicas: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_replicas(replicas)  # type: ignore[arg-type]  # a dict of either kind
