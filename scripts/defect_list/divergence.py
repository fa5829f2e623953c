"""Defects of the comparison of inputs: ``lmerge/core/divergence/`` to ``lmerge/service/admin/cutover.py``."""

from seeded import Defect

DIGESTS = "lmerge/core/divergence/digests.py"
COMPARED_INPUT = "lmerge/core/divergence/compared_input.py"
MONITOR = "lmerge/core/divergence/monitor.py"
CERTIFY = "lmerge/service/merge/divergence_policy.py"
GATE = "lmerge/service/merge/stable_gate.py"
CUTOVER = "lmerge/service/admin/cutover.py"
CORE_TEST = "tests/core/divergence/test_divergence.py::"
TEST = "tests/service/merge/test_divergence_policy.py::"

DEFECTS = (
    Defect(
        "events that are agreed on and not frozen are not required of inputs that join",
        GATE,
        "                self.agreed_until = min(self.agreed_until, frozen_until)\n",
        "",
        "tests/service/merge/test_wrong_replicas.py::"
        "test_one_that_comes_late_changes_nothing_that_was_agreed_on_and_waits[python-majority-lost]",
    ),
    Defect(
        "the digest is an exclusive or, which cancels an event that is there twice",
        DIGESTS,
        "            total += from_bytes(",
        "            total ^= from_bytes(",
        CORE_TEST + "test_two_doubled_pairs_do_not_cancel_out[python]",
    ),
    Defect(
        "the boundary of an interval belongs to the earlier one",
        DIGESTS,
        "index, events, total = ve // interval, 0, 0",
        "index, events, total = (ve - 1) // interval, 0, 0",
        CORE_TEST + "test_an_end_on_the_boundary_belongs_to_the_later_interval[python]",
    ),
    Defect(
        "an interval that began before join_at is compared",
        DIGESTS,
        "    return INF_INTERVAL if t == INF else -(-t // interval)\n",
        "    return INF_INTERVAL if t == INF else t // interval\n",
        CORE_TEST + "test_an_interval_that_begins_before_join_at_is_not_compared[python]",
    ),
    Defect(
        "an adjust leaves the old end in the digest",
        DIGESTS,
        "        if was:\n            _add",
        "        if was and not now:\n            _add",
        CORE_TEST + "test_equivalent_streams_raise_no_alarm_whatever_their_elements[python]",
    ),
    Defect(
        "intervals that were complete before a reconnect are not compared any more",
        COMPARED_INPUT,
        "            self.spans.append((self.first, self.completed, self.life))\n",
        "            pass\n",
        CORE_TEST + "test_what_was_completed_before_a_reconnect_is_still_compared[python]",
    ),
    Defect(
        "evidence of an earlier life is mixed with that of the present one",
        "lmerge/core/divergence/evidence.py",
        "if lives.get(kept.name) == kept.life and kept.first <= index]",
        "if kept.name in lives and kept.first <= index]",
        CORE_TEST + "test_evidence_is_that_of_the_life_that_completed_the_interval[python]",
    ),
    Defect(
        "a majority is found before more than half of the inputs have delivered",
        MONITOR,
        "if 2 * delivered.count(digest) > len(able)), None)",
        "if 2 * delivered.count(digest) > len(delivered)), None)",
        CORE_TEST + "test_no_majority_is_seen_before_more_than_half_have_delivered[python]",
    ),
    Defect(
        "an observer is counted in a majority",
        MONITOR,
        "            and record.role is InputRole.ACTIVE\n            and record.is_comparable\n",
        "            and record.is_comparable\n",
        CORE_TEST + "test_an_observer_is_compared_and_counts_in_no_majority[python]",
    ),
    Defect(
        "an interval is compared a unit of time too early",
        DIGESTS,
        "    return ALL if stable_point == INF else stable_point // interval\n",
        "    return ALL if stable_point == INF else (stable_point + 1) // interval\n",
        CORE_TEST + "test_an_interval_is_compared_only_when_both_stables_have_reached_its_end[python]",
    ),
    Defect(
        "the first input of a fresh merge counts as complete from the beginning",
        "lmerge/service/merge/membership.py",
        "state.certifier.attached(name, status.incarnation, request.role, request.join_at)",
        "state.certifier.attached(name, status.incarnation, request.role, None)",
        TEST + "test_the_first_input_of_a_fresh_merge_is_not_compared_before_its_join_at",
    ),
    Defect(
        "majority gives stables back before inputs agree",
        GATE,
        "time_of(min(self._monitor.completed(name), self.agreed_until), self._monitor.interval)",
        "time_of(self._monitor.completed(name), self._monitor.interval)",
        TEST + "test_majority_prevents_it_and_quarantines_the_minority",
    ),
    Defect(
        "majority compares ends only, so an event that ends far ahead can be removed now",
        CERTIFY,
        "starts=gated,",
        "starts=False,",
        TEST + "test_majority_keeps_an_event_whose_end_lies_far_ahead",
    ),
    Defect(
        "a quarantined name may attach",
        CERTIFY,
        "        why = self.quarantined.get(name)\n        if why is not None:\n",
        "        why = self.quarantined.get(name)\n        if False:\n",
        TEST + "test_quarantine_refuses_the_name_until_it_is_released",
    ),
    Defect(
        "a cutover that keeps the old replica ends it",
        CUTOVER,
        "            if not self._keeps:\n                await self._hub.task.settled",
        "            if True:\n                await self._hub.task.settled",
        "tests/service/admin/test_cutover.py::test_the_old_replica_can_be_kept_beside_the_new_one",
    ),
    Defect(
        "a cutover ends the old replica at the first of two servers",
        "lmerge/client/admin.py",
        "request.keep_from = target != servers[-1]",
        "request.keep_from = False",
        "tests/cli/test_certify.py::test_a_cutover_at_two_servers_ends_the_old_replica_when_the_new_one_counts_at_both",
    ),
    Defect(
        "a cutover that one server rolls back leaves the new replica promoted at the other",
        "lmerge/client/admin.py",
        "text += _demoted(promoted, request, security)",
        "pass",
        "tests/cli/test_certify.py::test_a_cutover_that_one_server_rolls_back_is_undone_at_those_before_it",
    ),
    Defect(
        "a cutover that is left while the old replica leaves takes the new one back",
        "lmerge/client/admin.py",
        "not in (LEAVING, DONE, ROLLED_BACK)",
        "not in (DONE, ROLLED_BACK)",
        "tests/cli/test_certify.py::test_a_cutover_that_is_left_while_the_old_replica_leaves_keeps_the_new_one",
    ),
    Defect(
        "a cutover promotes before it has certified",
        CUTOVER,
        "            if self._equal >= self._intervals:\n",
        "            if self._equal >= 0:\n",
        "tests/service/admin/test_cutover.py::test_a_difference_rolls_back_and_nothing_has_changed",
    ),
    Defect(
        "a cutover that is rolled back leaves the new one promoted",
        CUTOVER,
        "            if not done:\n                self._give_role_back()\n",
        "            if not done:\n                pass\n",
        "tests/service/admin/test_cutover.py::test_a_promotion_that_does_not_end_in_time_is_taken_back",
    ),
    Defect(
        "a cutover counts what an earlier incarnation of the new one delivered",
        MONITOR,
        "for index in sorted(index for index in self._indices if mine.first <= index < mine.completed):",
        "for index in sorted(index for index in self._indices if mine.covers(index)):",
        CORE_TEST + "test_certified_intervals_in_a_row_begin_again_after_a_difference[python]",
    ),
)
