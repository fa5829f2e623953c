"""Defects of native windows and of what is computed in them: ``native/temporal/src/windows`` and ``aggregates``.

The tests compare the operator with the definition of its windows, in ``native/temporal/tests/suite/windowed.rs``.
"""

from seeded import Defect

WINDOWS = "native/temporal/src/windows/"
GRID = WINDOWS + "grid.rs"
KINDS = WINDOWS + "kinds.rs"
OPERATOR = WINDOWS + "operator.rs"
SPANS = WINDOWS + "spans.rs"
COUNT = WINDOWS + "count.rs"
SESSION = WINDOWS + "session.rs"
SNAPSHOT = WINDOWS + "snapshot_group.rs"
MODULES = "native/temporal/src/aggregates/"
FINAL_GRID = "windows::final_windows_of_a_grid_are_emitted_at_their_ends"
EAGER_GRID = "windows::eager_windows_of_a_grid_are_emitted_when_they_begin"
FINAL_SNAPSHOTS = "windows::final_snapshots_are_emitted_when_they_are_closed"
SNAPSHOTS_BY_MARK = "windows::snapshots_are_emitted_when_the_watermark_has_come_to_their_ends"
BY_STARTS = "spans::count_windows_by_start_have_the_events_of_n_starts"
BY_ENDS = "spans::count_windows_by_end_have_the_events_of_n_ends"
SESSIONS = "spans::sessions_have_no_gap_that_is_longer_than_they_may_have"
COST = "cost::a_stable_point_does_not_visit_the_groups_of_windows"
PLACES = "aggregates::places_are_those_of_the_values_that_are_there"
MEANS = "aggregates::means_and_deviations_are_rounded_once"
NOT_FINITE = "aggregates::infinities_and_nan_leave_as_they_came"

DEFECTS = (
    # A grid.
    Defect(
        "native windows: an event that is cut short stays in the window that begins at its end",
        GRID,
        "(vs < old && old > start, vs < new && new > start)",
        "(vs < old && old >= start, vs < new && new >= start)",
        EAGER_GRID,
    ),
    Defect(
        "native windows: an event belongs to the window of its start alone",
        GRID,
        "old.max(new).min(after_begun)",
        "old.max(new).min(after_begun).min(vs + 1)",
        EAGER_GRID,
    ),
    Defect(
        "native windows: a window on a grid closes behind its end",
        GRID,
        "if !time.has_reached(end) {",
        "if !time.has_reached(end + 1) {",
        FINAL_GRID,
    ),
    Defect(
        "native windows: hopping windows are stable to the last window that has ended (D5)",
        KINDS,
        "let first = self.first_over(stable);",
        "let first = self.first_over(stable) + self.size - self.hop;",
        FINAL_GRID,
    ),
    Defect(
        "native windows: the grid is truncated below zero",
        KINDS,
        "((t - self.offset).div_euclid(self.hop) + 1)",
        "((t - self.offset) / self.hop + 1)",
        EAGER_GRID,
    ),
    Defect(
        "native windows: a step opens one window more than it may",
        KINDS,
        "if count <= windows_max {",
        "if count <= windows_max + 1 {",
        "windows::a_step_opens_as_many_windows_as_it_may_and_no_more",
    ),
    Defect(
        "native windows: an event leaves with the values of the one before it",
        GRID,
        "            if has_terms {\n                changes.terms(at",
        "            if has_terms && (old == vs || terms.is_empty()) {\n                changes.terms(at",
        EAGER_GRID,
    ),
    Defect(
        "native windows: all windows of a grid share their states",
        MODULES + "mod.rs",
        "        self.count - 1\n",
        "        0\n",
        EAGER_GRID,
    ),
    # Time.
    Defect(
        "native windows: the watermark is that of the last batch",
        OPERATOR,
        "self.mark = self.mark.max(stable)",
        "self.mark = stable",
        EAGER_GRID,
    ),
    Defect(
        "native windows: the watermark falls when the event that starts last is removed",
        OPERATOR,
        "        self.mark = self.mark.max(stable)",
        "        let mut changes = batch.vs.iter().zip(batch.new.iter());\n"
        "        if changes.any(|(vs, new)| vs == new && *vs == self.mark) {\n"
        "            self.mark = stable;\n"
        "        }\n"
        "        self.mark = self.mark.max(stable)",
        EAGER_GRID,
    ),
    Defect(
        "native windows: the last start of a batch is its watermark, not the greatest",
        OPERATOR,
        "batch.vs.iter().copied().max()",
        "batch.vs.last().copied()",
        EAGER_GRID,
    ),
    Defect(
        "native windows: the watermark is that of the group",
        SPANS,
        "    spans.touched.sort_unstable();\n",
        "    spans.touched.sort_unstable();\n"
        "    let last = spans.windows.keys().next_back().copied().unwrap_or(INF);\n"
        "    let time = &Time { mark: time.mark.min(last), ..*time };\n",
        SESSIONS,
    ),
    Defect(
        "native windows: a point result ends where it begins",
        OPERATOR,
        "{ (end - 1, end) }",
        "{ (end, end) }",
        "windows::results_of_a_grid_can_be_points_at_the_ends_of_windows",
    ),
    Defect(
        "native windows: the failure of a module is swallowed",
        OPERATOR,
        "        output.checked()?;\n",
        "        let _ = output.checked();\n",
        "windows::the_first_group_that_fails_is_named_and_in_it_the_first_window",
    ),
    Defect(
        "native windows: a group that is empty is kept",
        WINDOWS + "groups.rs",
        "                self.keys.release(group);\n",
        "",
        "windows::a_group_is_dropped_when_its_windows_are_closed",
    ),
    Defect(
        "native windows: a stable visits every group of count windows and sessions",
        SPANS,
        "        if time.stable == INF {\n            for number",
        "        if time.stable > NEG_INF {\n            for number",
        COST,
    ),
    Defect(
        "native windows: a stable visits every group of snapshots",
        WINDOWS + "snapshot.rs",
        "        if time.stable == INF {\n            for number",
        "        if time.stable > 0 {\n            for number",
        COST,
    ),
    # Snapshots.
    Defect(
        "native windows: a snapshot closes at its end (D4)",
        SNAPSHOT,
        "    end < time.stable || time.stable == INF\n",
        "    end <= time.stable || time.stable == INF\n",
        FINAL_SNAPSHOTS,
    ),
    Defect(
        "native windows: the form final emits snapshots that are open",
        SNAPSHOT,
        "Form::Final => is_closed(end, time),",
        "Form::Final => start < time.stable,",
        FINAL_SNAPSHOTS,
    ),
    Defect(
        "native windows: a stable passes snapshots that were not emitted (D9)",
        SNAPSHOT,
        "Form::Final => group.first_with_members(NEG_INF),",
        "Form::Final => None,",
        FINAL_SNAPSHOTS,
    ),
    Defect(
        "native windows: a revision takes back a snapshot that the stable point has passed (D9)",
        SNAPSHOT,
        "Form::Watermark => end <= time.mark || start < time.emitted_stable,",
        "Form::Watermark => end <= time.mark,",
        SNAPSHOTS_BY_MARK,
    ),
    Defect(
        "native windows: an edge that two events have goes with the first of them",
        SNAPSHOT,
        "if window.edge == 0 {",
        "if window.edge <= 1 {",
        SNAPSHOTS_BY_MARK,
    ),
    Defect(
        "native windows: a snapshot without events has a count of 0",
        SNAPSHOT,
        "        let now = if group.members > 0 {\n",
        "        let now = if group.members >= 0 {\n",
        FINAL_SNAPSHOTS,
    ),
    Defect(
        "native windows: an edge that is new does not reach the snapshot before it (D7)",
        SNAPSHOT,
        "        self.touch(edge);\n        self.touch_before(edge);\n",
        "        self.touch(edge);\n",
        "windows::eager_snapshots_are_emitted_when_they_begin",
    ),
    # Count windows and sessions.
    Defect(
        "native windows: count windows count events and not their starts",
        COUNT,
        ".nth(kind.count - 1).map(|(&last, _)| last)",
        ".flat_map(|(&at, events)| events.iter().map(move |_| at)).nth(kind.count - 1)",
        BY_STARTS,
    ),
    Defect(
        "native windows: count windows have what overlaps them",
        COUNT,
        "self.points.range(start..end).flat_map(|(_, events)| events)",
        "self.points.range(..end).flat_map(|(_, events)| events).filter(|event| event.ve > start)",
        BY_STARTS,
    ),
    Defect(
        "native windows: +inf is counted as an end",
        COUNT,
        "if self.by_ends { event.ve } else",
        "if self.by_ends { event.ve.min(1 << 40) } else",
        BY_ENDS,
    ),
    Defect(
        "native windows: the windows before a new start are not computed anew",
        COUNT,
        "            .take(kind.count)\n",
        "            .take(1)\n",
        BY_STARTS,
    ),
    Defect(
        "native windows: a stable passes count windows that were not emitted (D9)",
        SPANS,
        "first.map_or(INF, |(&start, window)| rules.first_result(start, window.end))",
        "first.map_or(INF, |(_, window)| window.end)",
        BY_STARTS,
    ),
    Defect(
        "native windows: an event the gap away begins another session",
        SESSION,
        "if vs <= end.saturating_add(gap) =>",
        "if vs < end.saturating_add(gap) =>",
        SESSIONS,
    ),
    Defect(
        "native windows: a new event the gap behind a session does not reach it",
        SESSION,
        "window.end >= vs.saturating_sub(gap)",
        "window.end > vs.saturating_sub(gap)",
        SESSIONS,
    ),
    Defect(
        "native windows: a session closes when the stable point is the gap behind its end",
        SESSION,
        "plus(plus(end, gap), 1)",
        "plus(end, gap)",
        SESSIONS,
    ),
    # What is computed.
    Defect(
        "native aggregates: floats are added as they come",
        MODULES + "moment.rs",
        "        self.total.add(value, is_added);\n        if has_squares",
        "        self.total.add(value, is_added);\n"
        "        if let Integer::Small(total) = self.total {\n"
        "            self.total = Integer::Small(total as f64 as i128);\n"
        "        }\n"
        "        if has_squares",
        "aggregates::sums_of_floats_do_not_depend_on_their_order",
    ),
    Defect(
        "native aggregates: NaN is never removed",
        MODULES + "moment.rs",
        "self.special.nan += sign,",
        "self.special.nan += sign.max(0),",
        NOT_FINITE,
    ),
    Defect(
        "native aggregates: an infinity is never removed",
        MODULES + "moment.rs",
        "self.special.minus_inf += sign,",
        "self.special.minus_inf += sign.max(0),",
        NOT_FINITE,
    ),
    Defect(
        "native aggregates: two infinities of one sign are NaN",
        MODULES + "moment.rs",
        "(plus_inf > 0 && minus_inf > 0)",
        "(plus_inf > 0 && plus_inf + minus_inf > 1)",
        NOT_FINITE,
    ),
    Defect(
        "native aggregates: the rank of a percentile is off by one",
        MODULES + "finish.rs",
        "(up * values.len() + down - 1) / down",
        "up * values.len() / down",
        PLACES,
    ),
    Defect(
        "native aggregates: a percentile between two values takes the lower one",
        MODULES + "finish.rs",
        "(&low * down + (high - &low) * rest)",
        "(&low * down + (high - &low) * BigInt::ZERO)",
        MEANS,
    ),
    Defect(
        "native aggregates: the average of integers is truncated",
        MODULES + "finish.rs",
        "fn average(moment: &Moment, scale: &Scale) -> f64 {\n",
        "fn average(moment: &Moment, scale: &Scale) -> f64 {\n"
        "    if moment.power == 0 && moment.special_sum().is_none() {\n"
        "        let whole = moment.total.big() * &scale.up / (&scale.down * moment.count);\n"
        "        return rounded_ratio(&whole, &BigInt::from(1));\n"
        "    }\n",
        MEANS,
    ),
    Defect(
        "native aggregates: the deviation of a sample is that of all",
        MODULES + "finish.rs",
        " * count * (count - of_sample);",
        " * count * count;",
        MEANS,
    ),
    Defect(
        "native aggregates: the smallest value stays when it leaves",
        MODULES + "values.rs",
        "=> numbers.remove(number),",
        "if numbers.iter().next() != Some(number) => numbers.remove(number),\n"
        "            (Values::Numbers(_), Key::Number(_)) => {}",
        PLACES,
    ),
    Defect(
        "native aggregates: the last event is the last by its row",
        MODULES + "terms.rs",
        "Term::Event(vs, rows",
        "Term::Event(vs.min(0), rows",
        PLACES,
    ),
    Defect(
        "native top-k: rows are numbered, and ties at k are cut",
        MODULES + "top_k.rs",
        "if rank > self.k {",
        "if place >= self.k {",
        "aggregates::rows_of_one_rank_are_all_among_the_first",
    ),
)
