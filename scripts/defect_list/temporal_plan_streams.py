"""Defects of plans of streams: their nodes, group-and-apply, joins of several streams, and what they promise."""

from seeded import Defect

PLAN = "lmerge/temporal/plan"
APPLY = "lmerge/temporal/operators/group_apply.py"
OPERATORS = "lmerge/temporal/operators"
GROUPS = "tests/temporal/test_group_apply.py"
SQL = "tests/canonical/test_groups.py"
STREAMS = "tests/temporal/test_plan_streams.py"
PLANS = "tests/temporal/test_plans.py"
RUNNING = "tests/temporal/test_running.py"
EQUAL = f"{GROUPS}::test_groups_have_what_a_filter_of_each_key_has"

DEFECTS = (
    Defect(
        "calls of windows: text is a constant",
        "lmerge/temporal/plan/grouped.py",
        "return ColumnReference(value) if isinstance(value, str) else node_of(value)",
        "return node_of(value)",
        "tests/temporal/test_slips.py::test_text_is_a_column_in_calls_of_windows",
    ),
    Defect(
        "durations: text is read without its sign",
        "lmerge/temporal/durations.py",
        'return -total if given.startswith("-") else total',
        "return total",
        "tests/temporal/test_durations.py::test_text_is_a_duration",
    ),
    Defect(
        "durations: a broken number passes",
        "lmerge/temporal/durations.py",
        "if isinstance(given, bool) or not isinstance(given, int):",
        "if isinstance(given, bool):",
        "tests/temporal/test_durations.py::test_every_duration_of_a_plan_can_be_text",
    ),
    # Group-and-apply.
    Defect(
        "groups: the watermark is that of the group",
        APPLY,
        "            changes += self._run(group, own, *now)\n",
        "            changes += self._run(group, own, now[0], group.mark)\n",
        f"{GROUPS}::test_the_watermark_is_that_of_the_stream",
    ),
    Defect(
        "groups: the stable point is the idle copy's, whatever a group holds",
        APPLY,
        "        return min(stable, self._held[0]) if self._held else stable\n",
        "        return stable\n",
        f"{EQUAL}[snapshot, final]",
    ),
    Defect(
        "groups: the stable point is that of the group that is furthest",
        APPLY,
        "        return min(stable, self._held[0]) if self._held else stable\n",
        "        return min(stable, self._held[-1]) if self._held else stable\n",
        f"{EQUAL}[snapshot, final]",
    ),
    Defect(
        "groups: time visits no group",
        APPLY,
        "                    due.append(group)\n",
        "                    pass\n",
        f"{EQUAL}[snapshot, settled]",
    ),
    Defect(
        "groups: every stable visits all groups",
        APPLY,
        "        due = []\n        for slot, calendar",
        "        due = list(self._groups.values())\n        for slot, calendar",
        f"{GROUPS}::test_a_stable_visits_only_the_groups_for_which_it_is_time[snapshot, final]",
    ),
    Defect(
        "groups: a group without events is kept",
        APPLY,
        "        if group.is_idle or group.stable == INF:\n",
        "        if group.stable == INF:\n",
        f"{GROUPS}::test_a_group_without_events_frees_everything",
    ),
    Defect(
        "groups: a dropped group goes on holding the stable point",
        APPLY,
        "        del self._groups[group.key]\n        self._hold(group, None)\n",
        "        del self._groups[group.key]\n",
        f"{EQUAL}[snapshot, final]",
    ),
    Defect(
        "groups: the watermark makes no group due",
        APPLY,
        "            if due.mark < INF:\n",
        "            if False:\n",
        f"{EQUAL}[hopping, watermark]",
    ),
    Defect(
        "groups: a group is not due where its input comes to hold its output behind a window",
        APPLY,
        "                self._wait(group, (at, False), stables[at] + 1)\n",
        "                pass\n",
        f"{GROUPS}::test_a_group_holds_the_stable_point_that_its_input_has_held_within_a_window",
    ),
    Defect(
        "groups: an input that is held back does not hold the output of a join",
        APPLY,
        "        if held and len(held) < len(reads):\n",
        "        if False:\n",
        f"{EQUAL}[what one side alone holds]",
    ),
    Defect(
        "groups: a new group computes what is not needed",
        APPLY,
        "        if self.fast_forwarded > NEG_INF:\n",
        "        if False:\n",
        f"{GROUPS}::test_a_span_sub_plan_evaluates_no_event_that_is_not_needed",
    ),
    Defect(
        "groups: the feedback is that of the copy without events",
        APPLY,
        "            needed += group.graph.fast_forward(0, self.fast_forwarded)\n",
        "            group.graph.fast_forward(0, self.fast_forwarded)\n",
        f"{GROUPS}::test_the_feedback_is_the_least_that_a_group_needs",
    ),
    Defect(
        "groups: operators are shared by all groups",
        APPLY,
        "        group = self._groups[key] = AppliedGroup(key, self._make())\n        if",
        "        group = self._groups[key] = AppliedGroup(key, self._idle.graph)\n        if",
        f"{EQUAL}[edges]",
    ),
    Defect(
        "groups: a restored operator has no groups",
        APPLY,
        '        for plain, kept in state["groups"]:\n',
        '        for plain, kept in state["groups"][:0]:\n',
        f"{EQUAL}[edges]",
    ),
    Defect(
        "groups: a window that begins to hold the stable point is not due",
        "lmerge/temporal/windows/window_operator.py",
        "            if holds_from > self._input_stable:\n",
        "            if False:\n",
        f"{EQUAL}[snapshot, final]",
    ),
    Defect(
        "groups: cleanse is not due when an event begins to hold others",
        f"{OPERATORS}/cleanse.py",
        "        if self._starts and self._starts[0] >= self._input_stable:\n",
        "        if False:\n",
        f"{EQUAL}[cleansed]",
    ),
    Defect(
        "groups: an event that is left out does not make its group due",
        f"{OPERATORS}/skipping.py",
        "        if self._holds and self._holds[0] >= self._stable:\n",
        "        if False:\n",
        f"{GROUPS}::test_an_event_that_is_left_out_holds_the_stable_point_when_that_comes_to_it",
    ),
    Defect(
        "groups: a sub-plan may read another stream",
        f"{PLAN}/groups.py",
        "        if other is not None:\n",
        "        if False:\n",
        f"{GROUPS}::test_what_is_no_sub_plan_is_an_error_where_it_is_built",
    ),
    Defect(
        "groups: the stream of a group inside a group is that of the outer one",
        f"{PLAN}/groups.py",
        'return cls((), "group" if depth == 1 else f"group {depth}", node.schema)',
        'return cls((), "group", node.schema)',
        f"{GROUPS}::test_a_sub_plan_is_shown_in_the_tree_and_in_the_picture",
    ),
    Defect(
        "groups: results of groups promise the order of each",
        f"{PLAN}/properties.py",
        "    kept = one.promises & {INSERT_ONLY, KEY}\n",
        "    kept = one.promises\n",
        f"{GROUPS}::test_promises_are_those_of_each_group_in_no_order",
    ),
    Defect(
        "groups: groups without their keys promise a key",
        f"{PLAN}/properties.py",
        '        return Derived(kept - {KEY}, "groups emit',
        '        return Derived(kept, "groups emit',
        f"{GROUPS}::test_promises_are_those_of_each_group_in_no_order",
    ),
    Defect(
        "groups: windows of each group lose the inner keys when they are rewritten",
        f"{PLAN}/reordering.py",
        "keys=(*node.keys, *windows.keys))",
        "keys=node.keys)",
        f"{GROUPS}::test_a_sub_plan_of_windows_becomes_windows_by_the_key",
    ),
    # Joins of several streams.
    Defect(
        "joins: the columns come in the order of the joins",
        f"{PLAN}/joining.py",
        "        if joined.schema.names == self._columns:\n",
        "        if True:\n",
        f"{STREAMS}::test_a_join_of_three_streams_has_the_events_of_every_order",
    ),
    Defect(
        "joins: a conjunct is tested before the one that guards it",
        f"{PLAN}/joining.py",
        "            latest = max(latest, *map(order.index, needed), 1)\n",
        "            latest = max(1, *map(order.index, needed), 1)\n",
        f"{STREAMS}::test_a_conjunct_guards_those_behind_it_in_every_order",
    ),
    Defect(
        "joins: JSON loses the limit of pairs",
        f"{PLAN}/joins.py",
        'fields.get("pairs_max", PAIRS_MAX)',
        "PAIRS_MAX",
        f"{PLANS}::test_a_plan_survives_json",
    ),
    Defect(
        "joins: the limit of pairs does not reach the operator",
        f"{PLAN}/joins.py",
        "JoinRules(self.how, *self.inputs(), pairs_max=self.pairs_max)",
        "JoinRules(self.how, *self.inputs())",
        f"{STREAMS}::test_a_theta_join_of_too_many_pairs_ends_with_a_named_error",
    ),
    # Nodes.
    Defect(
        "plans: a diamond is hashed by its paths",
        f"{PLAN}/nodes.py",
        '            object.__setattr__(self, "_hash", found)\n',
        "            pass\n",
        f"{STREAMS}::test_a_plan_of_many_diamonds_is_compared_and_compiled_by_its_nodes",
    ),
    Defect(
        "plans: edges forget how long a sample lasts",
        f"{PLAN}/shaping.py",
        "self.bound_by.evaluate, self.ties, self.lasts)",
        "self.bound_by.evaluate, self.ties)",
        f"{STREAMS}::test_signals_and_the_latest_sample_by_a_run",
    ),
    Defect(
        "plans: an as-of join forgets how long ago a sample may be",
        f"{PLAN}/joins.py",
        "is_outer=self.is_outer, within=self.within",
        "is_outer=self.is_outer",
        f"{STREAMS}::test_signals_and_the_latest_sample_by_a_run",
    ),
    Defect(
        "plans: a source of points may have other events",
        "lmerge/temporal/entrance.py",
        "        if self._has_points and ",
        "        if False and ",
        f"{RUNNING}::test_a_source_of_points_has_nothing_else",
    ),
    Defect(
        "promises: a filter keeps the order of ties, however they are cut into batches",
        f"{PLAN}/properties.py",
        "    if DETERMINISTIC_TIES in promises and STRICTLY_ORDERED not in promises and not given.is_tied:\n",
        "    if False:\n",
        f"{PLANS}::test_promises_are_derived_through_the_tree",
    ),
    Defect(
        "promises: a projection without a column of the key keeps it",
        f"{PLAN}/properties.py",
        "    if lost or KEY not in given.promises:\n",
        "    if KEY not in given.promises:\n",
        f"{PLANS}::test_promises_are_derived_through_the_tree",
    ),
    Defect(
        "group-and-apply: a group gets its own watermark, and not the stream's",
        APPLY,
        "        delta = Delta(own, stable if stable > group.stable else None, mark if mark > group.mark else None)\n",
        "        delta = Delta(own, stable if stable > group.stable else None, None)\n",
        f"{SQL}::test_a_sub_plan_is_its_query_with_the_group_as_a_partition_after_every_batch",
    ),
    Defect(
        "group-and-apply: a group whose changes cancel what waits is forgotten",
        APPLY,
        "        if group.is_idle or group.stable == INF:\n",
        "        if not group.graph.live() or group.stable == INF:\n",
        f"{SQL}::test_a_sub_plan_is_its_query_with_the_group_as_a_partition_after_every_batch",
    ),
)
