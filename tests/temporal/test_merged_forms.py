"""Plans of one query as inputs of a merge: every form, other batch cuts, killed in turn: one table (law L13)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from history_world import collect
from temporal_world import Item, random_stream

from lmerge.core.elements import INF
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import ElementWriter, QueryRun
from lmerge.temporal.windows.policies import Form

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def numbers() -> Stream:
    return source("numbers", {"a": "int", "b": "int"})


def per_window(form: str) -> Stream:
    return numbers().group_by("a").tumbling(5).agg(form=form, n=count(), s=aggregate("sum", numbers()["b"]))


def per_snapshot(form: str) -> Stream:
    return numbers().group_by("a").snapshot().agg(form=form, n=count())


QUERIES: dict[str, Callable[[str], Stream]] = {"windows": per_window, "snapshots": per_snapshot}


class PlanReplica:
    """A plan that runs over a stream in cuts of its own, and what a merge gets of it."""

    def __init__(self, plan: Stream, stream: list[Item], random_: random.Random) -> None:
        self.promises = derive(plan.node)[plan.node].promises
        self._run, self._writer = QueryRun({"out": plan.node}), ElementWriter(plan.node)
        self._left, self._random = list(stream), random_

    @property
    def has_more(self) -> bool:
        return bool(self._left)

    def deliver(self, merge: Merge, name: str, output: Tdb) -> None:
        """Let the replica read some of its source, and the merge what it makes of it."""
        count_of = self._random.randint(1, 6)
        items, self._left = self._left[:count_of], self._left[count_of:]
        steps = self._run.take("numbers", items)
        outcome = merge.apply(name, self._writer.batch([step["out"] for step in steps]))
        assert not outcome.detached, outcome.detached
        output.apply_batch(outcome.batch)


@pytest.mark.parametrize("query", QUERIES)
def test_replicas_of_all_forms_merge_to_one_table_while_all_but_one_are_killed(query: str) -> None:
    for seed in range(40):
        random_ = random.Random(seed)
        stream = [item for item in random_stream(random_, 25, rows=ROWS) if item != INF] + [INF]
        plan = QUERIES[query]("final")
        forms = RowForms(plan.schema)
        merge, output = Merge(), Tdb()
        replicas = {
            str(form): PlanReplica(QUERIES[query](str(form)), stream, random.Random(f"{seed} {form}")) for form in Form
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
        found = Counter(Lifetime(forms.of_payload(event.payload), event.vs, event.ve) for event in output.events())
        assert output.stable_point == INF
        assert found == Counter(collect(plan.node, {"numbers": stream}))
