"""Defects of R0-R2 of the Python core, and of switches to a more general algorithm."""

from seeded import Defect

CORE = "lmerge/core/"
LAWS = "tests/core/test_laws.py::"
MISSED = "tests/core/test_missed_elements.py::"
BROKEN = "tests/core/test_broken_promises.py::"
RESTORE = "tests/core/test_restore_anywhere.py::"

DEFECTS = (
    Defect(
        "r0-r2 without the guard on MaxStable",
        CORE + "insert_only.py",
        "if new and vs >= self.max_stable:",
        "if new:",
        "tests/core/test_scenarios.py::test_scenario[python-r0_late_element_below_stable]",
    ),
    Defect(
        "a joining input's insert raises MaxVs",
        CORE + "insert_only.py",
        "                if inp.joined:",
        "                if True:",
        LAWS + "test_law_1_a_joining_inputs_insert_does_not_raise_max_vs",
    ),
    Defect(
        "r1 compares with the inputs' counters",
        CORE + "insert_only.py",
        "        if position < len(in_step):\n            if in_step",
        "        if position >= max(i.tie_count for i in self.inputs.values()):\n"
        "            inp.tie_count += 1\n            return True\n"
        "        if position < len(in_step):\n            if in_step",
        LAWS + "test_law_4_r1_after_a_replay_inside_a_slot_neither_doubles_nor_drops",
    ),
    Defect(
        "r1 without aligning by content",
        CORE + "insert_only.py",
        "        if before < copies:\n            return False\n        self.slot.append",
        "        self.slot.append",
        LAWS + "test_law_4_a_replay_that_begins_in_the_middle_of_a_slot_is_aligned",
    ),
    Defect(
        "r1 reports a broken promise for an element that came twice",
        CORE + "insert_only.py",
        "            if copies == 1:\n                self._check_order",
        "            if copies:\n                self._check_order",
        MISSED + "test_the_output_has_what_any_input_has_in_time_and_only_broken_promises_are_reported",
    ),
    Defect(
        "r1 never reports a broken promise",
        CORE + "insert_only.py",
        "            if after > other.tie_order[place]:",
        "            if False:",
        MISSED + "test_of_one_slot_in_two_orders_exactly_the_inversions_are_reported",
    ),
    Defect(
        "r1 keeps the mark of an input that has left",
        CORE + "insert_only.py",
        "            inp.tie_marks.pop(slot, None)\n",
        "            pass\n",
        MISSED + "test_an_input_that_leaves_takes_its_marks_with_it",
    ),
    Defect(
        "a step out of the order of ties scans the whole slot",
        CORE + "insert_only.py",
        "        copies = self.copies.get(place, 0)\n        if not before",
        "        copies = self.slot.count(element)\n        if not before",
        MISSED + "test_a_slot_costs_what_it_has",
    ),
    Defect(
        "elements that waited before a broken promise are merged",
        CORE + "insert_only.py",
        "            self.newly_joined.append(inp.name)\n            return\n",
        "",
        MISSED + "test_an_input_that_broke_its_promise_while_it_waited_moves_nothing",
    ),
    Defect(
        "an input that broke its promise counts for closing",
        CORE + "insert_only.py",
        "            inp.stable, inp.last_vs = NEG_INF, NEVER\n",
        "            inp.last_vs = NEVER\n",
        MISSED + "test_two_that_broke_their_promise_while_they_waited_do_not_close_the_output",
    ),
    Defect(
        "r0 takes -inf for no time",
        CORE + "insert_only.py",
        "        self.max_vs = NEVER\n\n    def is_new",
        "        self.max_vs = NEG_INF\n\n    def is_new",
        MISSED + "test_an_element_at_minus_infinity_is_one_as_any_other",
    ),
    Defect(
        "r2 takes an empty lifetime for an event",
        CORE + "insert_only.py",
        "        if ve > vs and (self.is_keyed or inp.keyed):\n            bit",
        "        if self.is_keyed or inp.keyed:\n            bit",
        MISSED + "test_an_empty_lifetime_hides_no_event_with_its_key_and_breaks_none",
    ),
    Defect(
        "r2 without a key outputs one copy only",
        CORE + "insert_only.py",
        "        if before < copies:\n            return False\n        self.copies[element]",
        "        if copies:\n            return False\n        self.copies[element]",
        MISSED + "test_the_output_has_what_any_input_has_in_time_and_only_broken_promises_are_reported",
    ),
    Defect(
        "r2 that loses its key does not merge the slot once more",
        CORE + "insert_only.py",
        "                if copies > known:\n",
        "                if False:\n",
        "tests/core/test_downgrade.py::test_where_the_key_is_lost_what_it_kept_from_the_output_at_this_vs_is_emitted",
    ),
    Defect(
        "r2 without a key does not check the keys that inputs promise",
        CORE + "insert_only.py",
        "        if ve > vs and (self.is_keyed or inp.keyed):\n            bit",
        "        if ve > vs and self.is_keyed:\n            bit",
        "tests/core/test_downgrade.py::test_where_the_key_is_lost_what_it_kept_from_the_output_at_this_vs_is_emitted",
    ),
    Defect(
        "r2 uses a key of which r1 has output two events",
        CORE + "switch.py",
        "            new.is_keyed = False\n",
        "            pass\n",
        "tests/core/test_downgrade.py::test_r1_that_has_output_a_key_twice_is_followed_by_r2_that_counts",
    ),
    Defect(
        "r2 in a snapshot without ends has none",
        CORE + "snapshot.py",
        "    return [ends.get(payload, INF) for",
        "    return [INF for",
        "tests/core/test_downgrade.py::test_r2_in_a_snapshot_of_the_version_before_finds_the_ends_again",
    ),
    Defect(
        "r0 lets an empty lifetime hide an event",
        CORE + "insert_only.py",
        "if vs == self.max_vs and (self.last is None or not self.last[1] == vs < ve):",
        "if vs == self.max_vs:",
        MISSED + "test_an_empty_lifetime_hides_no_event_with_its_key_and_breaks_none",
    ),
    Defect(
        "elements that an input skipped count as published when R1 becomes R2",
        CORE + "insert_only.py",
        "                self.hash[payload] = ve, 0\n",
        "                self.hash[payload] = ve, -1\n",
        "tests/core/test_downgrade.py::test_what_was_passed_over_before_the_order_of_ties_broke_counts_as_not_delivered[python]",
    ),
    Defect(
        "a switch loses what the inputs have delivered",
        CORE + "switch.py",
        "if event.vs < inp.last_vs for",
        "if False for",
        "tests/core/test_downgrade.py::test_an_input_that_promises_less_changes_a_running_merge_without_loss",
    ),
    Defect(
        "after a broken promise the stream is still taken to be ordered",
        CORE + "switch.py",
        "    if inp.delivered is not None:\n        return",
        "    if False:\n        return",
        BROKEN + "test_every_order_and_every_death[python-an end is corrected below a later Vs]",
    ),
    Defect(
        "a switch uses only the events that are still kept",
        CORE + "switch.py",
        "inp.delivered.since(min(inp.stable, max_stable))",
        "list(inp.delivered.events)",
        RESTORE + "test_a_switch_after_a_restore_forgets_what_has_ended[python]",
    ),
)
