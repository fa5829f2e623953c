"""Defects of windows in plans: their nodes and JSON, what they promise, windows without events, and rewrites."""

from seeded import Defect

PLAN = "lmerge/temporal/plan"
WINDOWS = "lmerge/temporal/windows"
TESTS = "tests/temporal"
HERE = f"{TESTS}/test_plan_windows.py"
REFUSED = f"{TESTS}/test_plan_windows_refused.py"
REWRITES = f"{TESTS}/test_plan_rewriting.py"
APPLIED = f"{REWRITES}::test_a_rewrite_is_applied_and_keeps_the_table"
STAYS = f"{REWRITES}::test_a_filter_stays_where_it_would_change_the_table"
PROMISES = f"{TESTS}/test_window_promises.py::test_runs_keep_what_windows_promise"
DERIVED = f"{TESTS}/test_window_promises.py::test_the_algorithm_follows_from_window_form_and_groups"
JSON = f"{REFUSED}::test_every_node_and_policy_survives_json"
MISFITS = f"{REFUSED}::test_what_does_not_fit_is_an_error_that_names_it"
WRONG_WINDOWS = f"{REFUSED}::test_windows_that_do_not_fit_are_named"
EMPTY = f"{TESTS}/test_windows.py::test_windows_without_events_have_the_results_that_are_declared"
BROKEN = f"{REFUSED}::test_a_module_that_breaks_its_declaration_is_named"

NODES = (
    Defect(
        "plan windows: the JSON of a plan loses a policy",
        f"{PLAN}/windows.py",
        'fields | {"windows_max": self.windows_max, "rechecks": self.rechecks}\n',
        'fields | {"windows_max": self.windows_max, "rechecks": False}\n',
        JSON,
    ),
    Defect(
        "plan windows: the JSON of a rank loses its direction",
        f"{PLAN}/ranking.py",
        '"desc" if is_last else "asc"] for',
        '"asc"] for',
        JSON,
    ),
    Defect(
        "plan windows: the JSON of a grid loses its first window",
        f"{PLAN}/window_fields.py",
        '        since = whole(fields, "since") if "since" in fields else None\n',
        "        since = None\n",
        JSON,
    ),
    Defect(
        "plan windows: the recorded version of a module is ignored",
        "lmerge/temporal/modules/registry.py",
        "        if version is not None and version != declared.version:\n",
        "        if version is not None and version < declared.version:\n",
        f"{REFUSED}::test_json_of_windows_that_does_not_fit_is_named",
    ),
    Defect(
        "plan windows: parameters 1, 1.0 and True are one",
        f"{PLAN}/calls.py",
        "        return isinstance(other, CallParameters) and self._text == other._text\n",
        "        return isinstance(other, CallParameters) and self._values == other._values\n",
        f"{REFUSED}::test_parameters_differ_by_type",
    ),
    Defect(
        "plan windows: clipping does not reach the windows",
        f"{PLAN}/windows.py",
        "        policies = chosen.clip, chosen.stamp, chosen.form\n",
        "        policies = Clip.NONE, chosen.stamp, chosen.form\n",
        f"{HERE}::test_examples_of_the_paper_by_method_and_by_name",
    ),
    Defect(
        "plan windows: a module that needs starts is clipped at the left",
        f"{PLAN}/applying.py",
        "        self.call.check_policies(self.title, self.policies.clip, self.policies.stamp)\n",
        "        self.call.check_policies(self.title, Clip.NONE, self.policies.stamp)\n",
        f"{HERE}::test_a_pattern_needs_the_starts_that_events_have",
    ),
    Defect(
        "plan windows: a result is a point at the end of a session",
        f"{PLAN}/windows.py",
        "        if isinstance(self.window, (Snapshots, Sessions)) and self.policies",
        "        if isinstance(self.window, Snapshots) and self.policies",
        WRONG_WINDOWS,
    ),
    Defect(
        "plan windows: a module is not given the key of its group",
        f"{PLAN}/windows.py",
        "        return WindowContext(self.window, self.bound_keys.columns, self.can_be_empty)\n",
        "        return WindowContext(None, self.bound_keys.columns, self.can_be_empty)\n",
        f"{HERE}::test_a_module_learns_kind_and_key_of_its_window",
    ),
    Defect(
        "plan windows: an operator's own lifetimes are not the default",
        f"{PLAN}/grouped.py",
        "            output = Stamp.UNCHANGED if is_timed else Stamp.ALIGN\n",
        "            output = Stamp.ALIGN\n",
        f"{HERE}::test_a_pattern_needs_the_starts_that_events_have",
    ),
    Defect(
        "plan windows: inputs by name are taken in the order in which they are written",
        f"{PLAN}/grouped.py",
        "    return replace(call, arguments=tuple(_argument(of[one]) for one in names))\n",
        "    return replace(call, arguments=tuple(map(_argument, of.values())))\n",
        f"{HERE}::test_a_pattern_needs_the_starts_that_events_have",
    ),
    Defect(
        "plan windows: ranked rows have their keys twice",
        f"{PLAN}/ranking.py",
        "[name for name in schema.names if name not in keys])",
        "[*schema.names])",
        f"{HERE}::test_top_k_has_all_ties_and_the_rank",
    ),
)

EMPTY_WINDOWS = (
    Defect(
        "plan windows: windows without events are there without a first one",
        f"{PLAN}/windows.py",
        "        return isinstance(self.window, Hopping) and self.window.since is not None and not self.keys\n",
        "        return isinstance(self.window, Hopping) and not self.keys\n",
        MISFITS,
    ),
    Defect(
        "plan windows: windows without events are there in groups",
        f"{PLAN}/windows.py",
        "        return isinstance(self.window, Hopping) and self.window.since is not None and not self.keys\n",
        "        return isinstance(self.window, Hopping) and self.window.since is not None\n",
        WRONG_WINDOWS,
    ),
    Defect(
        "plan windows: an aggregate without a constant is computed over no events",
        f"{PLAN}/windows.py",
        "                values.append(COMPUTED if call.takes_empty else None)\n",
        "                values.append(COMPUTED)\n",
        f"{HERE}::test_windows_without_events_have_a_result_where_it_is_declared",
    ),
    Defect(
        "windows: a window whose last event leaves is dropped, though it has results without events",
        f"{WINDOWS}/grid_group.py",
        "            if not (entry.events or self.rules.keeps_empty):\n",
        "            if not entry.events:\n",
        EMPTY,
    ),
    Defect(
        "windows: a grid begins before its first window",
        f"{WINDOWS}/kinds.py",
        "        if self.since is not None and t < self.since:\n",
        "        if self.since is not None and t < NEG_INF:\n",
        f"{HERE}::test_windows_without_events_have_a_result_where_it_is_declared",
    ),
    Defect(
        "windows: an event from -inf on is taken without a first window",
        f"{WINDOWS}/grid_group.py",
        "        if self._grid.first_over(vs) <= NEG_INF:\n",
        "        if self._grid.first_over(vs) <= 2 * NEG_INF:\n",
        f"{HERE}::test_an_event_from_the_beginning_of_time_needs_a_first_window",
    ),
)

CHECKS = (
    Defect(
        "plan windows: insert_only is believed",
        f"{WINDOWS}/declared.py",
        "            if not change.is_insert:\n",
        "            if change.new == change.old:\n",
        BROKEN,
    ),
    Defect(
        "plan windows: preserves_order is believed",
        f"{WINDOWS}/declared.py",
        "change.vs < self._latest_result:\n",
        "change.vs < NEG_INF:\n",
        BROKEN,
    ),
    Defect(
        "plan windows: a module that is not deterministic is not named",
        f"{WINDOWS}/group.py",
        "            if repr(again) != repr(found):\n",
        "            if len(again) != len(found):\n",
        BROKEN,
    ),
)

PROMISED = (
    Defect(
        "promises: a session by watermark is emitted once",
        f"{PLAN}/window_promises.py",
        "given >= IN_ORDER and not (is_behind or isinstance(kind, Sessions)):\n",
        "given >= IN_ORDER and not is_behind:\n",
        PROMISES,
    ),
    Defect(
        "promises: the watermark passes no event that is held back",
        f"{PLAN}/window_promises.py",
        "given >= IN_ORDER and not (is_behind or isinstance(kind, Sessions)):\n",
        "given >= IN_ORDER and not isinstance(kind, Sessions):\n",
        f"{TESTS}/test_window_promises.py::test_where_events_are_held_back_the_watermark_promises_nothing",
    ),
    Defect(
        "promises: a derived promise ignores the form",
        f"{PLAN}/window_promises.py",
        "    if form is Form.FINAL:\n",
        "    if form is not Form.EAGER:\n",
        PROMISES,
    ),
    Defect(
        "promises: grouped snapshots promise an order",
        f"{PLAN}/window_promises.py",
        "    if node.keys and not is_grid:\n",
        "    if node.keys and isinstance(kind, Sessions):\n",
        PROMISES,
    ),
    Defect(
        "promises: results within windows that overlap promise an order",
        f"{PLAN}/window_promises.py",
        "    if stamp is Stamp.CLIP and not _are_disjoint(node):\n",
        "    if stamp is Stamp.CLIP and not is_grid:\n",
        PROMISES,
    ),
    Defect(
        "promises: results that outlive their window promise an order",
        f"{PLAN}/window_promises.py",
        "    if stamp in (Stamp.UNCHANGED, Stamp.TIME_BOUND):\n",
        "    if stamp is Stamp.TIME_BOUND:\n",
        PROMISES,
    ),
    Defect(
        "promises: several rows of a window promise a key",
        f"{PLAN}/window_promises.py",
        "is_single = node.policies.form, isinstance(node, AggregateNode)\n",
        "is_single = node.policies.form, True\n",
        PROMISES,
    ),
    Defect(
        "promises: ties are deterministic where they come as events arrive",
        f"{PLAN}/window_promises.py",
        "    if form is Form.EAGER:\n        return IN_ORDER",
        "    if form is Form.SETTLED:\n        return IN_ORDER",
        DERIVED,
    ),
    Defect(
        "promises: what a module declares counts for groups together",
        f"{PLAN}/window_promises.py",
        "        if stamp is Stamp.CLIP and not (is_one_group and",
        "        if stamp is Stamp.CLIP and not (",
        f"{TESTS}/test_window_promises.py::test_the_algorithm_follows_from_window_form_and_groups",
    ),
)

REWRITTEN = (
    Defect(
        "windows: results that are emitted late are bound by the change that lets them come",
        f"{WINDOWS}/window_operator.py",
        "        is_caused = self._rules.form is Form.EAGER and start",
        "        is_caused = start",
        f"{REWRITES}::test_a_time_bound_module_has_the_same_table_in_every_form",
    ),
    Defect(
        "rewrites: a filter of the right side goes below a left join",
        f"{PLAN}/pushing.py",
        "    if how in (JoinKind.INNER, JoinKind.RIGHT):\n",
        "    if how in (JoinKind.INNER, JoinKind.RIGHT, JoinKind.LEFT):\n",
        STAYS,
    ),
    Defect(
        "rewrites: a filter that can fail is evaluated for more rows",
        f"{PLAN}/pushing.py",
        "        is_free = (sees_the_same and not kept) or not can_fail(part, node.input_schema)\n",
        "        is_free = True\n",
        STAYS,
    ),
    Defect(
        "rewrites: a conjunct passes the one that guards it",
        f"{PLAN}/pushing.py",
        "        is_free = (sees_the_same and not kept) or not",
        "        is_free = sees_the_same or not",
        f"{REWRITES}::test_a_conjunct_that_can_fail_stays_behind_the_one_that_guards_it",
    ),
    Defect(
        "rewrites: the windows of an event without an end stop where the events that are left do",
        f"{PLAN}/pushing.py",
        "    return not isinstance(node.window, Hopping) or stops_alike(node.reads[0])\n",
        "    return True\n",
        STAYS,
    ),
    Defect(
        "entrance: a source that ends does not bring its last finite end",
        "lmerge/temporal/entrance.py",
        "            if last > self._latest:\n",
        "            if last > INF:\n",
        APPLIED,
    ),
    Defect(
        "rewrites: what several read is computed twice",
        f"{PLAN}/pushing.py",
        "    if not isinstance(node, FilterNode) or not node.is_plain or is_shared(node.reads[0]):\n",
        "    if not isinstance(node, FilterNode):\n",
        f"{REWRITES}::test_what_several_read_is_computed_once_and_stays",
    ),
    Defect(
        "rewrites: a filter goes below a module whose windows other events cut",
        f"{PLAN}/pushing.py",
        "not isinstance(below, ApplyNode) or not isinstance(below.window, Hopping):\n",
        "not isinstance(below, ApplyNode):\n",
        STAYS,
    ),
    Defect(
        "rewrites: a filter goes below a module by any column",
        f"{PLAN}/pushing.py",
        "        if name in below.declared.filter_commutes and kept",
        "        if kept",
        f"{REWRITES}::test_a_filter_by_a_column_that_is_not_declared_stays",
    ),
    Defect(
        "rewrites: groups that are computed apart show their key",
        f"{PLAN}/applying.py",
        "replace(self.rules, key_columns=len(self.keys)) if apart else self.rules\n",
        "self.rules\n",
        APPLIED,
    ),
    Defect(
        "rewrites: time-bound on windows that other events cut",
        f"{PLAN}/reordering.py",
        "    if not node.declared.time_bound or not isinstance(node.window, Hopping):\n",
        "    if not node.declared.time_bound:\n",
        STAYS,
    ),
    Defect(
        "rewrites: a join of three loses the predicate of the first two",
        f"{PLAN}/reordering.py",
        "        outer = replace(outer, predicate=_over(lower.predicate, of_lower))\n",
        "        outer = replace(outer, predicate=None)\n",
        APPLIED,
    ),
    Defect(
        "rewrites: a left join that is turned around stays a left join",
        f"{PLAN}/reordering.py",
        "    how = _MIRRORED.get(node.how, node.how)\n",
        "    how = node.how\n",
        APPLIED,
    ),
    Defect(
        "rewrites: merged filters are evaluated in another order",
        f"{PLAN}/pushing.py",
        "    parts = (*conjuncts(below.predicate), *conjuncts(node.predicate))\n",
        "    parts = (*conjuncts(node.predicate), *conjuncts(below.predicate))\n",
        f"{REWRITES}::test_a_merged_filter_guards_as_before",
    ),
)

DEFECTS = (*NODES, *EMPTY_WINDOWS, *CHECKS, *PROMISED, *REWRITTEN)
