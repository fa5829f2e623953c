"""Whole systems with hostile clients, wrong replicas and full disks; and the promises of each family."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import Any

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.testing.sim.families import BOUNDED, FAMILIES, KINDS, PLAIN, PREVENTING, WRONG, in_family
from lmerge.testing.sim.run import run
from lmerge.testing.sim.scenario import scenario
from lmerge.testing.sim.verdict import Checked, Contradiction, Doubt, ReferenceEvents
from lmerge.testing.sim.watch import MergeWatch, WatchedSettings

SEEDS = 40
CHUNK = 10
ADDED = tuple(family for family in FAMILIES if family != PLAIN)


def assert_good(family: str, seeds: range) -> None:
    reports = [result.report() for result in (run(seed, family=family) for seed in seeds) if not result.is_good]
    assert not reports, "\n\n".join(reports[:2])


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.parametrize("family", ADDED)
def test_nothing_is_lost_or_doubled_or_contradicted(family: str, first: int) -> None:
    assert_good(family, range(first, first + CHUNK))


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("family", ADDED)
def test_nothing_goes_wrong_over_many_seeds(family: str, part: int) -> None:
    count = int(os.environ.get("LMERGE_SEEDS", "1000"))
    assert_good(family, range(2_000_000 + part, 2_000_000 + count, 4))


@pytest.mark.parametrize("family", ADDED)
def test_the_same_seed_is_the_same_run(family: str) -> None:
    for seed in (3, 5):
        assert run(seed, family=family).digest == run(seed, family=family).digest


@pytest.mark.parametrize("family", ADDED)
def test_the_seeds_of_the_suite_use_every_kind(family: str) -> None:
    plans = [in_family(scenario(seed), family) for seed in range(SEEDS)]
    used = {fault.kind for plan in plans for fault in plan.faults}
    assert set(KINDS[family]) <= used


def test_the_suite_has_every_divergence_policy_with_a_wrong_replica() -> None:
    plans = [in_family(scenario(seed), WRONG) for seed in range(SEEDS)]
    assert {plan.divergence for plan in plans} == {"alarm", "quarantine", *PREVENTING}
    assert {plan.replicas for plan in plans} == {3}


def test_wrong_replicas_are_judged_by_what_servers_report_or_quarantine() -> None:
    lines = [line for seed in range(SEEDS) for line in run(seed, family=WRONG).lines]
    assert sum(": differs at s" in line for line in lines) > 3
    assert sum("wrong.1" in line and "was quarantined" in line for line in lines) > 3


def test_a_bound_of_the_lead_is_set_where_nothing_else_protects() -> None:
    plans = [in_family(scenario(seed), WRONG) for seed in range(SEEDS)]
    for plan in plans:
        assert (plan.lead_max is not None) == (BOUNDED in plan.allowed)
        assert plan.divergence not in PREVENTING or plan.lead_max is None


@pytest.mark.parametrize("seed", range(20))
def test_a_plain_seed_is_what_it_was(seed: int) -> None:
    plan = scenario(seed)
    assert in_family(plan, PLAIN) is plan
    for family in ADDED:
        assert in_family(plan, family).events == plan.events
        assert in_family(plan, family, ()) == plan


def test_kinds_can_be_chosen() -> None:
    plans = [in_family(scenario(seed), "disks", ("record-full",)) for seed in range(30)]
    assert {fault.kind for plan in plans for fault in plan.faults} & set(KINDS["disks"]) == {"record-full"}
    for family, kind in (("hostile", "far-stable"), ("no-such-family", "mute")):
        with pytest.raises(UsageError, match="there is no family"):
            in_family(scenario(0), family, (kind,))


def test_a_doubt_covers_what_begins_below_a_stable_of_its_time_and_nothing_else() -> None:
    events = [Event(1, b"a", 5), Event(7, b"b", 20), Event(12, b"c", 25)]
    for is_in_force in (True, False):
        in_force = [is_in_force]
        stream = Checked("s", ReferenceEvents(events), NEG_INF, Doubt(partial(in_force.__getitem__, 0)))
        lost = Batch.of([Stable(10)])  # neither a nor b
        if not is_in_force:
            with pytest.raises(Contradiction, match="lost"):
                stream.take(lost)
            continue
        stream.take(lost)
        in_force[0] = False
        stream.take(Batch.of([Insert(b"c", 12, 25), Stable(INF)]))
        assert stream.is_complete


def test_after_a_doubt_nothing_may_be_lost() -> None:
    in_force = [True]
    reference = ReferenceEvents([Event(1, b"a", 5), Event(12, b"c", 25)])
    stream = Checked("s", reference, NEG_INF, Doubt(lambda: in_force[0]))
    stream.take(Batch.of([Stable(10)]))
    in_force[0] = False
    with pytest.raises(Contradiction, match="lost c"):
        stream.take(Batch.of([Stable(INF)]))


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("policy", ["lazy", "final-only"])
@pytest.mark.parametrize(("lost", "problem"), [(Event(4, b"c", 8), None), (Event(6, b"d", 9), "lost d [6, 9)")])
def test_a_doubt_reaches_to_the_stable_that_the_merge_followed(
    lost: Event, problem: str | None, policy: str, engine: str
) -> None:
    """The wrong replica has completed 6. Final-only holds its own stable until the wrong replica has ended."""
    long, *later = events = [Event(1, b"a", 20), Event(4, b"c", 8), Event(6, b"d", 9)]
    in_force = [True]
    watch = MergeWatch(ReferenceEvents(events), Random(1), "s", inputs_are_complete=False)
    watch.doubt = Doubt(lambda: in_force[0])
    settings = WatchedSettings(policy=policy, engine=engine, watch=watch)
    merge: Any = settings.new_merge()
    for name in ("wrong", "right"):
        merge.attach(name, ["key"])
        merge.apply(name, Batch.of([Insert(long.payload, long.vs, long.ve)]))
    merge.apply("wrong", Batch.of([Stable(6)]))
    merge.detach("wrong")
    in_force[0] = False
    delivered = [Insert(event.payload, event.vs, event.ve) for event in later if event != lost]
    merge.apply("right", Batch.of([*delivered, Stable(INF)]))
    merge.check_output()
    assert [found.rpartition("stable at 9223372036854775807: ")[2] for found in watch.problems] == (
        [] if problem is None else [f"{problem}; wrong nothing"]
    )
