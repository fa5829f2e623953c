"""Defects of output policies, of C1-C3 with late inputs, and of the adapters, in both engines."""

from seeded import Defect

CORE = "lmerge/core/"
ADAPTERS = "tests/core/test_adapters.py::"
COMPATIBLE = "tests/core/test_compatible.py::"
CONSISTENT = "tests/core/test_consistent.py::"
POLICIES = "tests/core/test_policies.py::"
LEADS = "tests/core/test_lead.py::test_one_that_runs_ahead_ruins_nothing_and_without_the_bound_it_does"
MANY_ENDS = "tests/core/test_many_ends.py::"
PROMISED = POLICIES + "test_what_is_shown_is_what_the_policy_promises_at_each_step"
NATIVE = "native/core/src/"

DEFECTS = (
    Defect(
        "signed tuples are paired as they arrive",
        CORE + "adapters.py",
        "if not self.unmatched and bisect_right(self.starts, t) >= len(self.ends):",
        "if not self.unmatched:",
        ADAPTERS + "test_every_order_of_a_small_bag_gives_the_table_of_the_bag",
    ),
    Defect(
        "a stable passes an unmatched negative tuple without an error",
        CORE + "adapters.py",
        "if self.unmatched and self.unmatched[0] < vc:",
        "if False:",
        ADAPTERS + "test_an_unmatched_negative_tuple_stands_for_no_event_until_a_stable_passes_it",
    ),
    Defect(
        "C2 and C3 use events of a late input that end before its join_at",
        CORE + "compatible.py",
        "if min(event.ve, last) >= max(prefix.join_at, right_from):",
        "if min(event.ve, last) >= right_from:",
        COMPATIBLE + "test_every_right_output_is_accepted_where_inputs_join_late",
    ),
    Defect(
        "R4 uses only the input that is furthest, though it joined late",
        CORE + "compatible.py",
        "                decided = low\n",
        "                decided = -(2**63)\n",
        COMPATIBLE + "test_every_wrong_output_is_found_where_inputs_join_late",
    ),
    Defect(
        "C1 counts the stable of a joining input",
        CORE + "compatible.py",
        "if prefix.join_at <= max(reach, right_from):",
        "if True:",
        COMPATIBLE + "test_a_stable_that_only_a_joining_input_has_reached_is_found",
    ),
    Defect(
        "inputs that differ below a join_at contradict each other",
        CORE + "consistent.py",
        "low = max(view.join_at, vs + 1)",
        "low = vs + 1",
        CONSISTENT + "test_inputs_of_one_table_are_consistent",
    ),
    Defect(
        "a half-frozen event contradicts no input",
        CORE + "consistent.py",
        "if claim.low <= x <= claim.high]",
        "if claim.low <= x < claim.high]",
        CONSISTENT + "test_prefixes_are_consistent_exactly_if_some_table_is_reached_by_all",
    ),
    Defect(
        "events of an insert-only input may change",
        CORE + "consistent.py",
        "high = INF if view.insert_only else view.stable",
        "high = view.stable",
        CONSISTENT + "test_prefixes_are_consistent_exactly_if_some_table_is_reached_by_all",
    ),
    Defect(
        "a wrong output is attributed to inputs that contradict each other elsewhere",
        "lmerge/cli/replay.py",
        "        if wrong:\n",
        "        if False:\n",
        "tests/cli/test_replay.py::test_check_distinguishes_a_wrong_output_from_inputs_that_contradict_each_other",
    ),
    Defect(
        "a fraction of the inputs is rounded down",
        CORE + "policy.py",
        "-(-self.quorum_percent * joined // 100)",
        "self.quorum_percent * joined // 100",
        PROMISED + "[python-r3-quorum:34%]",
    ),
    Defect(
        "an input that leaves lowers the quorum of later events only",
        CORE + "algorithm.py",
        "        self._recount(out)\n        if self.policy.lead_max",
        "        if self.policy.lead_max",
        POLICIES + "test_an_event_that_only_joining_inputs_have_makes_no_quorum",
    ),
    Defect(
        "two inputs that have ended release the stable of one behind them",
        CORE + "lead.py",
        "may_hold and (leads or inp.stable == INF)",
        "may_hold and leads",
        "tests/core/test_lead.py::test_two_that_have_ended_do_not_confirm_a_stable_that_is_no_end[python]",
    ),
    Defect(
        "the last input that goes on decides against those that have ended",
        CORE + "lead.py",
        "    return ranked[0]\n",
        "    return inp\n",
        LEADS + "[python-lazy-all]",
    ),
    Defect(
        "R4 freezes an event with a wrong end of an input that was admitted early",
        CORE + "r4.py",
        "    return _minus(input_ends, sorted(doubtful[:excess]))",
        "    return input_ends",
        "tests/core/test_admitted_early.py::test_the_output_is_right_from_its_join_at_on[python-r4]",
    ),
    Defect(
        "an end that the output shows again is not noted for inputs that lack it",
        CORE + "r4.py",
        "            self._note_lacked(node, tuple(self.lacked.get(node[KEY], ())), ve)",
        "            pass",
        MANY_ENDS + "test_the_end_that_is_shown_is_the_one_that_a_look_at_all_of_them_finds[python-eager]",
    ),
    Defect(
        "an end that an input gives up is not noted as one that it lacks",
        CORE + "r4.py",
        "                    self._note_lacked(node, (slot,), vold)",
        "                    pass",
        MANY_ENDS + "test_the_end_that_is_shown_is_the_one_that_a_look_at_all_of_them_finds[python-eager]",
    ),
    Defect(
        "each element scans all ends of its key",
        CORE + "r4.py",
        "if len(shown or ()) <= SCANNED_MAX:",
        "if True:",
        MANY_ENDS + "test_an_element_costs_no_look_at_all_ends_of_its_key",
    ),
    Defect(
        "of equal inputs the latest attached leads",
        CORE + "index.py",
        "self._rank(other) > self._rank(best)",
        "self._rank(other) >= self._rank(best)",
        PROMISED + "[python-r3-leading-input-only:furthest-stable]",
    ),
    Defect(
        "the highest insert of an unordered input is not noted",
        CORE + "r3.py",
        "elif by_insert and vs > inp.last_vs:",
        "elif False:",
        PROMISED + "[python-r3-leading-input-only:highest-insert]",
    ),
    Defect(
        "half-frozen events are counted as unfrozen",
        CORE + "index.py",
        "                self.unfrozen[other.slot] -= self.copies(node, other.slot)",
        "                pass",
        PROMISED + "[python-r3-leading-input-only:most-unfrozen]",
    ),
    Defect(
        "one input moves an end that a quorum must agree on",
        CORE + "r3.py",
        "        if self.policy.show is not Show.QUORUM:",
        "        if True:",
        PROMISED + "[python-r3-quorum:2+adjusts]",
    ),
    Defect(
        "half-frozen-only shows an unfrozen event when its end changes",
        CORE + "r4.py",
        "elif vold is not None and unfrozen and self._should_show_another(node, inp, slot):",
        "elif vold is not None and unfrozen and len(input_ends) > len(shown):",
        PROMISED + "[python-r4-half-frozen-only+adjusts]",
    ),
    Defect(
        "a fraction of the inputs is rounded down",
        NATIVE + "policy.rs",
        ".div_ceil(100)",
        " / 100",
        "policy::a_quorum_is_of_one_at_least_and_of_all_at_most",
    ),
    Defect(
        "half-frozen events are counted as unfrozen",
        NATIVE + "index.rs",
        "shell.inputs.get_mut(slot).unfrozen -= self.copies(id, slot);",
        "let _ = self.copies(id, slot);",
        "oracle::r3_gives_the_reference_under_every_policy",
    ),
)
