"""Defects of the temporal algebra that its sources lead to: the ways in which an easy version gets a sentence wrong.

``LISTED`` has each of these with the seeded defects in Python that are it, here and in the other modules. The native
ones are in ``temporal_native_listed``.
"""

from collections.abc import Mapping

from seeded import Defect

WINDOWS = "lmerge/temporal/windows"
OPERATOR = f"{WINDOWS}/window_operator.py"
GROUP = f"{WINDOWS}/group.py"
GRID = f"{WINDOWS}/grid_group.py"
SNAPSHOT = f"{WINDOWS}/snapshot_group.py"
COUNT = f"{WINDOWS}/count_group.py"
PAPER = "tests/temporal/paper"
DEPARTURES = f"{PAPER}/test_departures.py"
QUERIES = f"{PAPER}/test_query_writer.py"
STREAMS = f"{PAPER}/test_streams.py"
EXAMPLES = f"{PAPER}/test_examples.py"
INTERNALS = f"{PAPER}/test_internals.py"
CANONICAL = "tests/canonical/test_windows.py"
EVERY_CHOICE = f"{CANONICAL}::test_every_window_clipping_output_and_form_is_its_query_after_every_batch"

DEFECTS = (
    Defect(
        "listed: an event that ends where a window begins belongs to it",
        GRID,
        "            was, now = vs < old > start, vs < new > start\n",
        "            was, now = vs < old >= start, vs < new >= start\n",
        f"{EVERY_CHOICE}[tumbling-no time]",
    ),
    Defect(
        "listed: overlap includes the end",
        "lmerge/temporal/event_index.py",
        ".irange((start + 1,))",
        ".irange((start,))",
        f"{INTERNALS}::test_s4_the_event_index_is_in_order_of_ends_then_starts",
    ),
    Defect(
        "listed: a window on a grid closes behind its end",
        OPERATOR,
        "        return self._input_stable >= due\n",
        "        return self._input_stable > due\n",
        f"{DEPARTURES}::test_d4_on_a_grid_the_boundary_stands",
    ),
    Defect(
        "listed: an event that ends at the stable point is final for its windows (D2)",
        GROUP,
        "        return max(due, last if last == INF else last + 1)\n",
        "        return max(due, last)\n",
        f"{DEPARTURES}::test_d2_an_event_that_ends_at_the_stable_point_is_open",
    ),
    Defect(
        "listed: a window whose events have ended is closed before its own end (D3)",
        GROUP,
        "        return max(due, last if last == INF else last + 1)\n",
        "        return last if last == INF else last + 1\n",
        f"{DEPARTURES}::test_d3_a_window_whose_members_have_ended_is_open_until_it_ends_itself",
    ),
    Defect(
        "listed: a snapshot closes at its end (D4)",
        SNAPSHOT,
        "entry.end if entry.end == INF else entry.end + 1)\n",
        "entry.end)\n",
        f"{DEPARTURES}::test_d4_the_boundary_of_a_snapshot_can_vanish_at_the_stable_point",
    ),
    Defect(
        "listed: right clipping makes an event longer (D1)",
        GROUP,
        "            ve = min(ve, window.end)\n",
        "            ve = window.end if ve < window.end else ve\n",
        f"{DEPARTURES}::test_d1_right_clipping_cuts_what_ends_after_the_window",
    ),
    Defect(
        "listed: left clipping is taken for right clipping",
        f"{WINDOWS}/policies.py",
        "        return self in (Clip.LEFT, Clip.FULL)\n",
        "        return self in (Clip.RIGHT, Clip.FULL)\n",
        f"{EXAMPLES}::test_ex6_clipping_cuts_lifetimes_to_each_window",
    ),
    Defect(
        "listed: a window clips to the first window of its group",
        GROUP,
        "rules.clipped(*event, entry)",
        "rules.clipped(*event, self.windows.peekitem(0)[1])",
        f"{EXAMPLES}::test_ex6_clipping_cuts_lifetimes_to_each_window",
    ),
    Defect(
        "listed: hopping windows are stable to the last window that has ended (D5)",
        OPERATOR,
        "            stable = max(kind.first_over(stable), kind.start_above(NEG_INF))\n",
        "            stable = kind.first_over(stable) + kind.size - kind.hop\n",
        f"{DEPARTURES}::test_d5_hopping_windows_are_stable_to_the_first_that_can_still_change",
    ),
    Defect(
        "listed: a change affects the windows of the changed part alone (D7)",
        GRID,
        "        since = vs if self.rules.sees_ends else min(old, new)\n",
        "        since = min(old, new)\n",
        f"{DEPARTURES}::test_d7_a_change_affects_every_window_of_its_event_without_right_clipping",
    ),
    Defect(
        "listed: a change of an end does not reach the snapshots before it (D7)",
        SNAPSHOT,
        "        if self.rules.sees_ends and not (is_new or is_removed):\n",
        "        if self.rules.sees_ends and is_new and is_removed:\n",
        f"{EVERY_CHOICE}[snapshot-durations]",
    ),
    Defect(
        "listed: a result that goes on is taken back and inserted (D8)",
        "lmerge/temporal/changes.py",
        "        changes.append(Change(row, vs, before, after))\n",
        "        changes += [Change(row, vs, before, vs), Change(row, vs, vs, after)]\n",
        f"{DEPARTURES}::test_d8_a_result_that_goes_on_is_adjusted_and_not_taken_back",
    ),
    Defect(
        "listed: a stable passes results that were not emitted (D9)",
        OPERATOR,
        "None if must and is_settled else first_result(group, entry)",
        "None if is_settled else first_result(group, entry)",
        f"{DEPARTURES}::test_d9_a_stable_waits_for_what_was_not_emitted[watermark-output3]",
    ),
    Defect(
        "listed: the watermark is that of the last batch",
        OPERATOR,
        "        self._mark = max(self._mark, stable, NEG_INF if mark is None else mark)\n",
        "        self._mark = max(stable, NEG_INF if mark is None else mark)\n",
        f"{EXAMPLES}::test_ex9_each_form_has_its_trace[watermark-steps1]",
    ),
    Defect(
        "listed: the watermark is that of the group",
        OPERATOR,
        "        return entry.end <= self._mark or (first is not None and first < self.stable)\n",
        "        return entry.end <= group.windows.keys()[-1] or (first is not None and first < self.stable)\n",
        f"{PAPER}/test_operators.py::test_o8_groups_are_apart_and_their_time_is_that_of_the_stream",
    ),
    Defect(
        "listed: an event belongs to the window of its start alone",
        GRID,
        "min(max(old, new), begun + 1)):\n            was",
        "min(max(old, new), vs + 1)):\n            was",
        f"{EVERY_CHOICE}[tumbling-no time]",
    ),
    Defect(
        "listed: the grid is truncated below zero",
        f"{WINDOWS}/kinds.py",
        "((t - self.offset) // self.hop + 1)",
        "(int((t - self.offset) / self.hop) + 1)",
        f"{QUERIES}::test_q6_hopping_windows_are_a_grid_below_zero_with_gaps_and_offset",
    ),
    Defect(
        "listed: count windows count events and not their starts",
        COUNT,
        "            is_complete = index + self._count <= len(self._points)\n",
        "            is_complete = index + self._count <= self.live\n",
        f"{DEPARTURES}::test_d11_a_count_window_spans_n_distinct_starts",
    ),
    Defect(
        "listed: count windows have what overlaps them",
        COUNT,
        "self._points.irange(entry.start, entry.end, inclusive=(True, False))",
        "self._points.irange(None, entry.end, inclusive=(True, False))",
        f"{QUERIES}::test_q9_count_windows_by_start_have_the_events_that_start_in_them",
    ),
    Defect(
        "listed: +inf is counted as an end",
        COUNT,
        "        if point == INF:\n            return\n        if point in self._points:\n",
        "        point = min(point, 10**9)\n        if point in self._points:\n",
        f"{QUERIES}::test_q10_count_windows_by_end_count_ends_that_are_there",
    ),
    Defect(
        "listed: the windows before a new start are not computed anew",
        COUNT,
        "        for index in range(max(0, last - self._count + 1), last + 1):\n            start =",
        "        for index in range(max(0, last), last + 1):\n            start =",
        f"{QUERIES}::test_q9_one_more_start_makes_the_windows_before_it",
    ),
    Defect(
        "listed: results before their window pass",
        f"{WINDOWS}/stamping.py",
        "    if result.vs < entry.start:\n",
        "    if result.vs < entry.start - 10:\n",
        f"{QUERIES}::test_q15_unchanged_output_never_begins_before_its_window",
    ),
    Defect(
        "listed: an edge that two events have goes with the first of them",
        SNAPSHOT,
        "        if count > 1:\n",
        "        if count > 2:\n",
        f"{EVERY_CHOICE}[snapshot-no time]",
    ),
    Defect(
        "listed: an event is removed with its new end",
        GROUP,
        "        self._leave(entry, row, vs, old)\n",
        "        self._leave(entry, row, vs, new)\n",
        f"{EVERY_CHOICE}[tumbling-durations]",
    ),
    Defect(
        "listed: a group that is empty is kept",
        OPERATOR,
        "        if group.is_empty or self._input_stable == INF:\n",
        "        if self._input_stable == INF:\n",
        f"{INTERNALS}::test_s3_the_window_index_has_what_is_active_and_is_checked_after_every_step",
    ),
    Defect(
        "listed: a stable visits every group",
        OPERATOR,
        "        if self._input_stable == INF:\n            for group in self._groups.values():\n",
        "        if self._input_stable > NEG_INF:\n            for group in self._groups.values():\n",
        f"{INTERNALS}::test_s14_a_stable_costs_what_it_changes",
    ),
    Defect(
        "listed: a change at the stable point is refused",
        "lmerge/temporal/open_events.py",
        "        if min(old, new) < self.stable:\n",
        "        if min(old, new) <= self.stable:\n",
        "tests/temporal/test_entrance.py::test_changes_at_the_stable_point_are_legal",
    ),
    Defect(
        "listed: feedback of a part with several readers is the greatest",
        "lmerge/temporal/graph.py",
        "min(asked[self.sources + at], default=NEG_INF)",
        "max(asked[self.sources + at], default=NEG_INF)",
        f"{PAPER}/test_operators.py::test_o7_both_arms_of_a_diamond_have_each_stable_in_one_step",
    ),
    Defect(
        "listed: changes come in the order in which they were made",
        "lmerge/temporal/changes.py",
        "    return sorted(changes, key=lambda one: (one.is_insert, one.vs, key(one.row), one.old, one.new))\n",
        "    return list(changes)\n",
        "tests/temporal/operators/test_coalesce.py::test_rows_are_in_the_output_while_they_are_present",
    ),
    Defect(
        "listed: the form final emits windows that are open",
        OPERATOR,
        "            self._ready.note(group, start, self._has_reached(closes_at))\n",
        "            self._ready.note(group, start, True)\n",
        f"{EXAMPLES}::test_ex9_each_form_has_its_trace[final-steps2]",
    ),
    Defect(
        "listed: what an aggregate promises ignores its form",
        "lmerge/temporal/plan/window_promises.py",
        "    if form is Form.FINAL:\n        return",
        "    if form is not None:\n        return",
        f"{DEPARTURES}::test_d16_what_an_aggregate_promises_follows_from_its_form",
    ),
    Defect(
        "listed: a grouped snapshot promises an order",
        "lmerge/temporal/plan/window_promises.py",
        "    if node.keys and not is_grid:\n",
        "    if node.keys and not is_grid and not isinstance(kind, Snapshots):\n",
        f"{DEPARTURES}::test_d15_a_grouped_snapshot_is_not_ordered",
    ),
    Defect(
        "listed: where a stream is cut decides what has begun",
        "lmerge/temporal/graph.py",
        "    return found._replace(mark=operator.mark_of(max(marks))) if marks else found\n",
        "    return found\n",
        "tests/temporal/laws/test_l04_boundaries_of_batches_do_not_matter.py::"
        "test_l4_a_start_that_has_gone_within_a_batch_moves_the_watermark[python]",
    ),
    Defect(
        "listed: a change at the stable point is late",
        "lmerge/temporal/entrance.py",
        "        if end < stable:\n",
        "        if end <= stable:\n",
        f"{STREAMS}::test_e11_a_change_at_the_stable_point_is_in_time",
    ),
    Defect(
        "listed: a late event is counted and passed on",
        "lmerge/temporal/entrance.py",
        "        return _change_between(actual, goal)\n",
        "        return change\n",
        f"{STREAMS}::test_e11_stables_are_inserted_by_rule_and_late_events_counted",
    ),
    Defect(
        "listed: a point event may last two units of time",
        "lmerge/temporal/entrance.py",
        "item.new - item.vs not in (0, 1)",
        "item.new - item.vs not in (0, 1, 2)",
        f"{STREAMS}::test_e6_a_point_event_ends_one_unit_behind_its_start",
    ),
    Defect(
        "listed: what a source promises is believed and not checked",
        "lmerge/temporal/entrance.py",
        "        if not promises:\n            return\n",
        "        if promises is not None:\n            return\n",
        f"{PAPER}/test_properties_and_feedback.py::"
        "test_g1_a_source_declares_order_revisions_and_duplicates_and_is_held_to_it",
    ),
    Defect(
        "listed: a form that emits later is held to the change of the batch",
        OPERATOR,
        "        is_caused = self._rules.form is Form.EAGER and start",
        "        is_caused = start",
        f"{QUERIES}::test_q17_a_time_bound_module_is_right_in_every_form[watermark]",
    ),
    Defect(
        "listed: the smallest value stays when it leaves",
        "lmerge/temporal/modules/ordered.py",
        "            state.items.remove(value)\n        else:",
        "            if value != state.items[0]:\n                state.items.remove(value)\n        else:",
        "tests/canonical/test_aggregates.py::test_an_aggregate_in_windows_is_its_query_after_every_batch[min-tumbling]",
    ),
    Defect(
        "listed: a step opens one window more than it may",
        GRID,
        "    if count > windows_max:\n",
        "    if count > windows_max + 1:\n",
        f"{DEPARTURES}::test_d13_a_step_opens_as_many_windows_as_it_may_and_no_more",
    ),
    Defect(
        "listed: the watermark falls when the event that starts last is removed",
        OPERATOR,
        "        self._mark = max(self._mark, stable, NEG_INF if mark is None else mark)\n",
        "        if any(change.vs == change.new == self._mark for change in delta.changes):\n"
        "            self._mark = NEG_INF\n"
        "        self._mark = max(self._mark, stable, NEG_INF if mark is None else mark)\n",
        f"{INTERNALS}::test_s1_the_watermark_is_the_latest_stable_or_start_that_was_received",
    ),
    Defect(
        "listed: a window that has lost its events has a count of 0",
        OPERATOR,
        "            return differences(emitted, ())\n",
        "            return differences(emitted, [one._replace(row=(*group.shown_key, 0)) for one in emitted])\n",
        f"{EVERY_CHOICE}[tumbling-no time]",
    ),
    Defect(
        "listed: an event is removed with the values of another one",
        GROUP,
        "            left = module.remove(entry.state, self.rules.clipped(row, vs, ve, entry))\n",
        '            row, self.rules.__dict__["row"] = self.rules.__dict__.get("row", row), row\n'
        "            left = module.remove(entry.state, self.rules.clipped(row, vs, ve, entry))\n",
        "tests/temporal/test_windows_of_batches.py::test_new_events_by_window_give_what_each_by_itself_gives",
    ),
    Defect(
        "listed: a window drops an event that ends at the stable point (hf)",
        GRID,
        "        self.events.drop_ended(min(stable - 1, first))\n",
        "        self.events.drop_ended(min(stable, first))\n",
        f"{EVERY_CHOICE}[with gaps-own lifetimes]",
    ),
    Defect(
        "listed: a time-bound result is bound by the start of the event that changes it",
        OPERATOR,
        "                    self._changed(group, change.sync_time)\n",
        "                    self._changed(group, change.vs)\n",
        "tests/temporal/modules/test_time_bound_ends.py::test_a_result_before_the_end_that_moves_is_not_bound_by_time",
    ),
)

LISTED: Mapping[str, tuple[str, ...]] = {
    "<= for < in membership": (
        "listed: an event that ends where a window begins belongs to it",
        "listed: overlap includes the end",
    ),
    "<= for < in closing, hf and the snapshot's boundary (D2 to D4)": (
        "listed: a window on a grid closes behind its end",
        "listed: an event that ends at the stable point is final for its windows (D2)",
        "listed: a window whose events have ended is closed before its own end (D3)",
        "listed: a snapshot closes at its end (D4)",
        "listed: a window drops an event that ends at the stable point (hf)",
    ),
    "right clip (D1)": ("listed: right clipping makes an event longer (D1)",),
    "affected windows by the changed part only": (
        "listed: a change affects the windows of the changed part alone (D7)",
        "listed: a change of an end does not reach the snapshots before it (D7)",
    ),
    "full retraction instead of adjust": ("listed: a result that goes on is taken back and inserted (D8)",),
    "stable before results": ("listed: a stable passes results that were not emitted (D9)",),
    "m from live events": (
        "listed: the watermark is that of the last batch",
        "listed: the watermark falls when the event that starts last is removed",
    ),
    "m per group": ("listed: the watermark is that of the group",),
    "window of the start only": ("listed: an event belongs to the window of its start alone",),
    "truncating grid division": ("listed: the grid is truncated below zero",),
    "N events instead of N starts": ("listed: count windows count events and not their starts",),
    "overlap membership for count windows": ("listed: count windows have what overlaps them",),
    "inf as an end": ("listed: +inf is counted as an end",),
    "clip kept between windows": ("listed: a window clips to the first window of its group",),
    "left clip for right": ("listed: left clipping is taken for right clipping",),
    "unchanged lets the past through": ("listed: results before their window pass",),
    "empty window has a count of 0": (
        "listed: a window that has lost its events has a count of 0",
        "plan windows: windows without events are there without a first one",
    ),
    "coalesced neighbours": ("listed: an edge that two events have goes with the first of them",),
    "float sum by arrival": ("aggregates: floats are added as they come",),
    "NaN never removed": ("aggregates: NaN is never removed",),
    "removal with the new payload": ("listed: an event is removed with the values of another one",),
    "state shared": ("aggregates: a copied state is the same one", "aggregates: two columns share a sum"),
    "group never freed": ("listed: a group that is empty is kept",),
    "stable visits all groups": ("listed: a stable visits every group", "join: a stable visits every key"),
    "event deleted at RE = c": (
        "listed: a change at the stable point is refused",
        "join: an event that ends at its stable point is dropped",
    ),
    "join state dropped at RE < cl only": ("join: an event is dropped although its match can still come",),
    "anti-join right side dropped by feedback": (
        "anti-join: feedback leaves out right events that decide where a part starts",
    ),
    "skipped event adjusted instead of inserted": (
        "feedback: an event that was left out is adjusted instead of inserted",
    ),
    "snapshot without bits of skipped events": ("feedback: a restored operator has not left anything out",),
    "multicast feedback takes the max": ("listed: feedback of a part with several readers is the greatest",),
    "union takes the max stable": ("union: the stable point is that of the input ahead",),
    "ended input holds time": ("union: an input that has ended holds time",),
    "top-k by row_number": ("top-k: rows are numbered, and ties at k are cut",),
    "join column order by plan": ("join: the columns of the input that changes come first",),
    "hash order in output": ("listed: changes come in the order in which they were made",),
    "form final emits an open window": ("listed: the form final emits windows that are open",),
    "derived property ignores the form": ("listed: what an aggregate promises ignores its form",),
    "grouped snapshot promises ordered": ("listed: a grouped snapshot promises an order",),
    "sequence of batches changes the TDB": ("listed: where a stream is cut decides what has begun",),
    "module exception swallowed": ("users' modules: an exception goes on as it is",),
    "non-deterministic module not named": ("plan windows: a module that is not deterministic is not named",),
    "late policy off by one": ("listed: a change at the stable point is late",),
    "point event with RE = LE": ("listed: a point event may last two units of time",),
    "late edge sample ignored": ("edges: a late sample does not cut the one before it short",),
    "two samples at one time by arrival": ("edges: of two samples at one time the one that came last holds",),
    "the N-1 windows before a new start not computed anew": (
        "listed: the windows before a new start are not computed anew",
    ),
    "clipped lifetime removed with the new RE": ("listed: an event is removed with its new end",),
    "time-bound compares LE instead of sync time": (
        "listed: a time-bound result is bound by the start of the event that changes it",
        "checks: the time of a change is the start of its event",
    ),
    "set_duration passes the input's Vold on": ("lifetimes: a set duration passes the event's own end on",),
    "shift forgets the stable, or the feedback": (
        "lifetimes: a shift forgets the stable point",
        "lifetimes: a shift forgets the feedback",
    ),
    "fused operators call a UDF twice": ("expressions: an equal part behind two conditions is evaluated twice",),
    "a shared part fast-forwards for one consumer": ("feedback: a shared part goes by one of its results",),
    "attached query misses live events": ("attach: the live events are not given",),
    "cleanse releases at Ve = Vc": ("cleanse: an event is released at Ve = Vc",),
    "percentile rank off by one": ("aggregates: the rank of a percentile is off by one",),
    "integer average truncated": ("aggregates: the average of integers is truncated",),
    "left join has match and NULL piece for one instant": (
        "outer join: a match and its absence are in the output at one time",
    ),
    "late event counted and passed on": ("listed: a late event is counted and passed on",),
    "JSON of a plan loses a policy": ("plan windows: the JSON of a plan loses a policy",),
    "spanning event counted once per pane": ("panes: a spanning event counts once per pane",),
    "min not computed anew when the minimum leaves": ("listed: the smallest value stays when it leaves",),
    "windows_max not enforced": ("listed: a step opens one window more than it may",),
    "source seek skips a half-frozen event": (
        "Parquet: a row group whose last event ends at the time that is needed is left out",
    ),
    "restart repeats a batch": ("a source: a restart reads the last items again",),
    "a module's declared version ignored at restore": ("users' modules: a state of another version is restored",),
}
"""Each way, and the names of the seeded defects that are it, of the algebra and its replicas."""
