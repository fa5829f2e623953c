"""Plans of one query as inputs of a merge: every form and rewrite, other cuts, killed in turn: one table (law L13)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from history_world import collect
from implementations import built_implementations
from law_world import LEFTS, RIGHTS, THIRDS, B
from temporal_world import Item, random_stream

from lmerge.core.elements import INF
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.joining import join
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.rewriting import BETTER, REWRITES, rewrite
from lmerge.temporal.plan.stream import Stream, aggregate, count
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import ElementWriter, QueryRun

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))
TESTED = (col.a == col.a_2) & (col.b_2 <= col.b_3)

# A query, and which rewrites make another plan of it.
QUERIES: Mapping[str, tuple[Stream, Sequence[str]]] = {
    "windows": (
        LEFTS.group_by("a").tumbling(5).agg(n=count(), s=aggregate("sum", B)).where(col.a < 1),
        ["filter-below-window"],
    ),
    "snapshots": (LEFTS.group_by("a").snapshot().agg(n=count()), []),
    "windows of each group": (
        LEFTS.group_by(k=col.a).apply(lambda group: group.hopping(4, 2).agg(n=count())),
        ["group-windows"],
    ),
    "ranked rows": (
        LEFTS.union(RIGHTS).where(col.a >= 0).where(B < 2).group_by("a").tumbling(5).top(1, by="b"),
        ["merge-filters", "filter-below-union"],
    ),
    "a join": (
        RIGHTS.join(LEFTS.extend(1), "a").where(col.b_right < 2),
        ["filter-below-join", "filter-below-lifetime", "join-sides"],
    ),
    "a join of three": (join(LEFTS, RIGHTS, THIRDS, where=TESTED).where(col.b_3 > 0), ["filter-below-select"]),
    "a chain of joins": (
        LEFTS.join(RIGHTS, "a", where=col.b_right >= B).join(
            THIRDS, {"b_right": "b"}, where=col.a_right == col.a_3, suffix="_3"
        ),
        ["join-order"],
    ),
    "counts of what is not joined": (
        LEFTS.without(RIGHTS, "a").coalesce().where(B > 0).group_by("b").snapshot().agg(n=count()),
        ["filter-below-lifetime"],
    ),
}


def plans_of(stream: Stream) -> dict[str, PlanNode]:
    """Return the plans of a query that differ: as it is, with each rewrite that applies, and with all that are good."""
    found = {"as it is": stream.node}
    for names in (*((name,) for name in REWRITES), BETTER):
        rewritten, steps = rewrite(stream.node, names)
        if steps and rewritten not in found.values():
            found[" and ".join(dict.fromkeys(step.name for step in steps))] = rewritten
    return found


class PlanReplica:
    """A plan that runs over streams in cuts of its own, and what a merge gets of it."""

    def __init__(self, plan: PlanNode, streams: Mapping[str, list[Item]], random_: random.Random, native: str) -> None:
        self.promises = derive(plan)[plan].promises
        self._run, self._writer = QueryRun({"out": plan}, implementation=native), ElementWriter(plan)
        self._left = {name: list(streams[name]) for name in self._run.entrances}
        self._random = random_

    @property
    def has_more(self) -> bool:
        return any(self._left.values())

    def deliver(self, merge: Merge, name: str, output: Tdb) -> None:
        """Let the replica read some of a source, and the merge what it makes of it."""
        source = self._random.choice([source for source, items in self._left.items() if items])
        count_of = self._random.randint(1, 6)
        items, self._left[source] = self._left[source][:count_of], self._left[source][count_of:]
        steps = self._run.take(source, items)
        outcome = merge.apply(name, self._writer.batch([step["out"] for step in steps]))
        assert not outcome.detached, (name, outcome.detached)
        output.apply_batch(outcome.batch)


@pytest.mark.parametrize("query", QUERIES)
def test_replicas_of_all_plans_merge_to_one_table_while_all_but_one_are_killed(
    query: str, demand: Callable[[str], None], seeds_of: Callable[[int, int], range]
) -> None:
    stream, rewrites = QUERIES[query]
    plans, implementations = plans_of(stream), built_implementations(demand)
    assert {*rewrites} <= {one for name in plans for one in name.split(" and ")}, list(plans)
    for seed in seeds_of(80, 8):
        random_ = random.Random(seed)
        streams = {
            name: [item for item in random_stream(random_, 20, rows=ROWS) if item != INF] + [INF]
            for name in ("lefts", "rights", "thirds")
        }
        merge, output = Merge(), Tdb()
        replicas = {
            name: PlanReplica(plan, streams, random.Random(f"{seed} {name}"), random_.choice(implementations))
            for name, plan in plans.items()
        }
        for name, replica in replicas.items():
            merge.attach(name, replica.promises)
        survivor = random_.choice(list(replicas))
        while any(replica.has_more for replica in replicas.values()):
            name = random_.choice([name for name, replica in replicas.items() if replica.has_more])
            if name != survivor and random_.random() < 0.05:
                output.apply_batch(merge.detach(name).batch)
                del replicas[name]
                continue
            replicas[name].deliver(merge, name, output)
        judge(stream, streams, output)


def judge(stream: Stream, streams: Mapping[str, list[Item]], output: Tdb) -> None:
    forms = RowForms(stream.schema)
    found = Counter(Lifetime(forms.of_payload(event.payload), event.vs, event.ve) for event in output.events())
    names = QueryRun({"out": stream.node}).entrances
    assert output.stable_point == INF
    assert found == Counter(collect(stream.node, {name: streams[name] for name in names}))
