"""Defects that real load found, and defects of the decisions of benchmarks."""

from seeded import Defect

PACE = "lmerge/service/merge/turn_pace.py"
LINK = "lmerge/client/publish/link.py"
LINGER = "lmerge/linger.py"
OF_PUBLISHERS = "tests/client/publish/test_linger.py::test_messages_are_rarer_where_each_takes_long"
AGAINST = "tests/bench/test_against.py::"

DEFECTS = (
    Defect(
        "many subscribers get as many messages as one",
        PACE,
        "max(self._linger.seconds, self._per_subscriber_s * subscribers)",
        "self._linger.seconds",
        "tests/service/merge/test_turns.py::test_turns_are_apart_by_what_their_messages_cost[100-20]",
    ),
    Defect(
        "a short turn among long ones is followed like one among short ones",
        PACE,
        "        self._linger.took(took_s)\n",
        "",
        "tests/service/merge/test_turns.py::test_a_short_turn_among_long_ones_is_followed_as_they_are",
    ),
    Defect(
        "a request to hurry waits for the end of the pause",
        PACE,
        "            await self._hurry.wait()\n",
        "            await asyncio.sleep(pause_s)\n",
        "tests/service/merge/test_turns.py::test_a_pause_ends_when_there_is_a_hurry",
    ),
    Defect(
        "a publisher sends a message without waiting for more elements",
        LINK,
        "            if self.lane.waiting_bytes < ENOUGH_BYTES and",
        "            if not self.lane.waiting_bytes and",
        f"{OF_PUBLISHERS}[0.0-2]",
    ),
    Defect(
        "a publisher does not measure its messages",
        LINK,
        "                linger.took(ended_s - began_s)\n",
        "",
        f"{OF_PUBLISHERS}[0.003-6]",
    ),
    Defect(
        "a message after a pause waits like all others",
        LINK,
        "                due_s = ended_s + linger.seconds\n",
        "                due_s = ended_s + 9.0\n",
        "tests/client/publish/test_linger.py::test_what_comes_after_a_pause_is_sent_at_once",
    ),
    Defect(
        "a wait grows without a bound",
        LINGER,
        "(min(seconds, self._most_s) - self._taken_s)",
        "(seconds - self._taken_s)",
        "tests/test_linger.py::test_it_is_bounded_whatever_a_message_takes",
    ),
    Defect(
        "the inputs are compared in every turn",
        "lmerge/service/merge/divergence_policy.py",
        "        if outcome.joined or outcome.detached:\n            self._changed = True",
        "        self._changed = True",
        "tests/service/merge/test_turn_cost.py::test_a_turn_calls_no_more_functions_than_it_did[native-1]",
    ),
    Defect(
        "a rate that falls is an improvement",
        "bench/against.py",
        'more_is_better=figure.endswith("/s")',
        "more_is_better=False",
        AGAINST + "test_a_rate_is_better_when_it_is_more_and_a_latency_when_it_is_less",
    ),
    Defect(
        "a probe that fails on this side is no error",
        "bench/against.py",
        "int(is_worse or lost or not found or not is_whole)",
        "int(is_worse or lost or not found)",
        AGAINST + "test_what_the_other_commit_cannot_measure_decides_nothing_and_what_this_one_cannot_is_an_error",
    ),
    Defect(
        "a change that is not committed makes no result stale",
        "bench/stale.py",
        '"--name-only", commit, "--"',
        '"--name-only", commit, "HEAD", "--"',
        "tests/bench/test_stale.py::test_a_change_of_what_is_measured_or_of_the_bench_makes_it_stale",
    ),
    Defect(
        "a probe's rate is named like a latency",
        "bench/probe.py",
        '{payload_bytes} bytes, elements/s"',
        '{payload_bytes} bytes, elements"',
        AGAINST + "test_a_probe_names_its_figures_so_that_their_direction_is_known",
    ),
    Defect(
        "events are expected that need not have come yet",
        "bench/cluster_faults.py",
        "truth.due(stable) - 1 - truth.life_max)",
        "truth.due(stable) + truth.life_min)",
        "tests/bench/test_cluster_faults.py::test_a_stream_that_goes_on_is_judged_up_to_what_has_ended",
    ),
    Defect(
        "after a drain a cut may leave no replica on one side",
        "bench/cluster_faults.py",
        "return [kind, REPLICA_KILLED] if kind == DRAINED else [kind]",
        "return [kind]",
        "tests/bench/test_cluster_faults.py::test_after_a_drain_a_replica_comes_back_to_the_node",
    ),
    Defect(
        "a pause that begins before the next fault counts to no fault",
        "bench/cluster_faults.py",
        "until_s = min(until_s, following.at_s)",
        "until_s = min(until_s, fault.at_s)",
        "tests/bench/test_cluster_faults.py::test_a_pause_belongs_to_the_fault_in_whose_window_it_begins",
    ),
)
