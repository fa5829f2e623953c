"""Defects that simulations of whole systems find: each names twenty seeds, of which one must fail."""

from seeded import Defect

RUNS = "tests/sim/test_runs.py::test_nothing_is_lost_or_doubled_or_contradicted"
SEEDS_0 = f"{RUNS}[0]"
SEEDS_20 = f"{RUNS}[20]"
SEEDS_120 = f"{RUNS}[120]"
FAMILIES = "tests/sim/test_families.py::test_nothing_is_lost_or_doubled_or_contradicted"
WRONG_0 = f"{FAMILIES}[wrong-0]"
WRONG_10 = f"{FAMILIES}[wrong-10]"
KEPT_WRONG = f"{RUNS.partition('::')[0]}::test_seeds_that_have_found_something_find_nothing_any_more[wrong]"
DOUBT = "tests/sim/test_families.py::test_a_doubt_reaches_to_the_stable_that_the_merge_followed"

DEFECTS = (
    Defect(
        "simulated: a joining input's stable counts",
        "lmerge/core/algorithm.py",
        "            return  # law 1: it is joining; or its stable is held",
        "            pass",
        SEEDS_0,
    ),
    Defect(
        "simulated: r3 without its guard",
        "lmerge/core/r3.py",
        "if vs < max_stable:  # IV.D line 6",
        "if False:",
        SEEDS_0,
    ),
    Defect(
        "simulated: a restart loses the tail of the journal",
        "lmerge/service/output/durable_merges.py",
        "        for data in found.last:\n",
        "        for data in found.last[:-1]:\n",
        SEEDS_0,
    ),
    Defect(
        "simulated: output is released before it is committed",
        "lmerge/service/output/release_queue.py",
        "        if not self._groups and not group.changes:\n            self._out(group)\n            return\n",
        "        self._out(group)\n        group = group._replace(entries=[])\n"
        "        if not self._groups and not group.changes:\n            return\n",
        SEEDS_0,
    ),
    Defect(
        "simulated: acks and progress lack the released stable point",
        "lmerge/service/output/release_queue.py",
        "        self._fanout.reach(group.stable_point)\n",
        "",
        SEEDS_0,
    ),
    Defect(
        "simulated: a token resumes one unit too late",
        "lmerge/service/output/journal.py",
        "            if segment.complete_from <= t:\n",
        "            if segment.complete_from <= t + 1:\n",
        SEEDS_20,
    ),
    Defect(
        "simulated: a new connection does not publish the live events again",
        "lmerge/client/publish/outbox.py",
        "            return Taken([prelude], outbox.published)\n",
        "            return Taken([], outbox.published)\n",
        SEEDS_0,
    ),
    Defect(
        "simulated: an observer counts as redundant",
        "lmerge/service/merge/redundancy.py",
        "        if state is not LifeState.JOINED:\n",
        "        if state not in (LifeState.JOINED, LifeState.OBSERVING):\n",
        SEEDS_0,
    ),
    Defect(
        "simulated: a skipping input counts as redundant",
        "lmerge/service/merge/lifecycle.py",
        "status.stable_point < self.skipped_until:\n            return LifeState.SKIPPING",
        "status.stable_point < self.skipped_until:\n            return LifeState.JOINED",
        SEEDS_0,
    ),
    Defect(
        "simulated: a subscriber's place in the queue comes after its snapshot",
        "lmerge/service/output/pipeline.py",
        "        self.then(lambda: self.fanout.add(subscriber))\n",
        "        asyncio.get_running_loop().call_later(0.02, self.fanout.add, subscriber)\n",
        SEEDS_0,
    ),
    Defect(
        "simulated: a new merge does not report from where on it is right",
        "lmerge/service/merge/outcomes.py",
        "        state.output.begin_from(first.join_at)\n",
        "",
        SEEDS_0,
    ),
    Defect(
        "simulated: subscribers that rely on earlier times get no notice of a gap",
        "lmerge/service/output/pipeline.py",
        "        self.then(lambda: self.fanout.finish(error, complete_from))\n",
        "",
        SEEDS_120,
    ),
    Defect(
        "simulated: a doubt ends where final-only has emitted, not where it has decided",
        "lmerge/testing/sim/watch.py",
        "        if self.policy.show is Show.FINAL and self.watch.doubt is not None:\n",
        "        if False:\n",
        DOUBT,
    ),
    Defect(
        "simulated: a doubt covers what is not decided",
        "lmerge/testing/sim/verdict.py",
        "            self.ends_at = max(self.ends_at, stable_point)\n",
        "            self.ends_at = max(self.ends_at, stable_point + 1)\n",
        DOUBT,
    ),
    Defect(
        "simulated: what inputs deliver is not compared",
        "lmerge/service/merge/divergence_policy.py",
        "            if self.monitor is not None and not outcome.refused:\n",
        "            if False:\n",
        WRONG_10,
    ),
    Defect(
        "simulated: intervals that differ are not reported",
        "lmerge/core/divergence/monitor.py",
        "            self.divergences += 1\n",
        "            pass\n",
        WRONG_0,
    ),
    Defect(
        "simulated: a server is judged by what it has not acked",
        "lmerge/testing/sim/wrong.py",
        "    return link.is_connected and link.lane.acked >= publisher.outbox.published\n",
        "    return True\n",
        KEPT_WRONG,
    ),
)
