"""Defects of running queries: snapshots, queries that come and go, feedback, traces, tables and pictures."""

from seeded import Defect

RUNNING = "lmerge/temporal/running.py"
RUNS = "lmerge/temporal/runs"
PLAN = "lmerge/temporal/plan"
GRAPH_TESTS = "tests/temporal/test_graph.py"
INTERRUPTED = "tests/temporal/test_interrupted_runs.py"
ATTACHED = "tests/temporal/test_attached_queries.py"
SNAPSHOTS = "tests/temporal/test_run_snapshots.py"
ENTRANCE = "tests/temporal/test_entrance.py"
NATIVE_ENTRANCE = "tests/temporal/native/test_native_entrance.py"
TRACES = "tests/temporal/test_traces.py"
ARROW = "tests/temporal/test_arrow_tables.py"
PICTURES = "tests/temporal/test_pictures.py"
FINAL = "tests/temporal/operators/test_final.py"

RESTORED = f"{INTERRUPTED}::test_a_run_that_is_restored_at_every_boundary_goes_on_in_the_same_way"
RIGHT = f"{INTERRUPTED}::test_a_query_that_is_attached_is_right_where_it_promises_to_be"
LESS = f"{INTERRUPTED}::test_a_run_that_is_asked_for_less_is_right_where_it_is_asked"
BEGINS = f"{ATTACHED}::test_each_operator_begins_by_its_rule"
REFUSED = f"{ATTACHED}::test_a_plan_that_can_never_be_right_is_refused"
ALONE = f"{ATTACHED}::test_a_query_that_fails_ends_alone_with_its_error"
GOES_ON = f"{SNAPSHOTS}::test_a_run_goes_on_with_its_settings_and_its_counts_of_late_events"
DAMAGED = f"{SNAPSHOTS}::test_bytes_that_are_no_snapshot_are_named"
OTHER_PLAN = f"{SNAPSHOTS}::test_a_snapshot_of_another_plan_is_refused_with_what_differs"

CHECKED = "tests/temporal/test_checked_items.py"

DEFECTS = (
    Defect(
        "history: a table without ends has events that last for ever",
        "lmerge/temporal/arrow_tables.py",
        "if vs in names and ve is not None and ve not in names and source.shape is SourceShape.INTERVAL:",
        "if False:",
        f"{ARROW}::test_a_table_without_ends_is_asked_for",
    ),
    Defect(
        "a graph: an error of a step does not name its operator",
        "lmerge/temporal/graph.py",
        '        error.args = (f"{name}: {text}", *error.args[1:])\n',
        "        pass\n",
        f"{GRAPH_TESTS}::test_errors_of_windows_name_their_operator",
    ),
    Defect(
        "a graph: a step that breaks ends all queries",
        "lmerge/temporal/graph.py",
        '        raise OperatorFailed(f"{name}: it failed with {type(error).__name__}: {error!s:.400}") from error\n',
        "        raise error\n",
        f"{GRAPH_TESTS}::test_a_step_that_breaks_ends_its_query_alone",
    ),
    Defect(
        "history: an error of a table does not name its source",
        "lmerge/temporal/arrow_tables.py",
        '        error.args = (f"source {source.label!r:.64}, {error}", *error.args[1:])\n',
        "",
        f"{ARROW}::test_errors_of_a_table_name_its_source",
    ),
    Defect(
        "a run goes on with half of a batch behind an error of an entrance",
        RUNNING,
        "            self._broken = error  # what came before the item was taken, and no query has it\n",
        "",
        f"{CHECKED}::test_no_query_goes_on_behind_an_error_of_an_entrance",
    ),
    Defect(
        "items: floats pass in every form that they have",
        f"{RUNS}/checked.py",
        "set(map(type, values)) == {float} and 0.0 not in values and not any(map(isnan, values))",
        "set(map(type, values)) == {float}",
        f"{CHECKED}::test_floats_have_one_form_behind_the_entrance",
    ),
    Defect(
        "items: text passes without UTF-8",
        f"{RUNS}/checked.py",
        '        "".join(values).encode()',
        '        "".join(values)',
        f"{CHECKED}::test_an_item_that_does_not_fit_is_named_and_nothing_is_taken",
    ),
    Defect(
        "a graph: a step that fails does not end what reads it",
        "lmerge/temporal/graph.py",
        "        self._spread_failures()\n        return streams\n",
        "        return streams\n",
        f"{GRAPH_TESTS}::test_a_step_that_fails_ends_itself_and_what_reads_it",
    ),
    Defect(
        "a graph: an error of a step is lost",
        "lmerge/temporal/graph.py",
        "        for error in self.failures.values():\n            raise error\n",
        "",
        f"{GRAPH_TESTS}::test_a_graph_of_one_query_raises",
    ),
    Defect(
        "snapshot: live events of a source are not kept",
        "lmerge/temporal/open_events.py",
        '        for plain, vs, ends in state["events"]:\n',
        '        for plain, vs, ends in state["events"][:0]:\n',
        RESTORED,
    ),
    Defect(
        "snapshot: the counts of late events begin anew",
        "lmerge/temporal/entrance.py",
        '        self.dropped, self.moved = state["late"]\n',
        "",
        GOES_ON,
    ),
    Defect(
        "snapshot: what became of a late event is forgotten",
        "lmerge/temporal/entrance.py",
        '            for claimed, actuals in state["other"]\n',
        '            for claimed, actuals in state["other"][:0]\n',
        f"{ENTRANCE}::test_a_restored_entrance_goes_on_in_the_same_way",
    ),
    Defect(
        "snapshot: the rule of progress counts from zero",
        "lmerge/temporal/entrance.py",
        '        self._latest, self._since_stable = state["latest"], state["since_stable"]\n',
        '        self._latest = state["latest"]\n',
        f"{ENTRANCE}::test_a_restored_entrance_goes_on_in_the_same_way",
    ),
    Defect(
        "snapshot: operators begin anew",
        f"{RUNS}/parts.py",
        '    restore_state(part.operator, fields["state"])\n',
        "",
        RESTORED,
    ),
    Defect(
        "snapshot: another plan is taken",
        f"{RUNS}/snapshots.py",
        "    _check_none(plan_differences(snapshot, plan))\n",
        "    plan_differences(snapshot, plan)\n",
        OTHER_PLAN,
    ),
    Defect(
        "snapshot: a parameter that differs is not seen",
        f"{PLAN}/differences.py",
        "        if old.get(field) != new.get(field):\n",
        "        if field not in old or field not in new:\n",
        OTHER_PLAN,
    ),
    Defect(
        "snapshot: only the first node is compared",
        f"{PLAN}/differences.py",
        '    for pair in zip(old["reads"], new["reads"]):\n',
        '    for pair in zip(old["reads"][:0], new["reads"]):\n',
        OTHER_PLAN,
    ),
    Defect(
        "snapshot: other settings of a source are taken",
        f"{RUNS}/snapshots.py",
        "            if source in were and chosen != were[source]\n",
        "            if source not in were\n",
        f"{SNAPSHOTS}::test_other_settings_are_refused",
    ),
    Defect(
        "snapshot: damaged bytes are read",
        f"{RUNS}/snapshots.py",
        "    if _digest(body) != data[len(_MAGIC) : start]:\n",
        "    if len(body) < 1:\n",
        DAMAGED,
    ),
    Defect(
        "snapshot: contents that make no sense escape as they are",
        RUNNING,
        "        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:\n",
        "        except ZeroDivisionError as problem:\n",
        DAMAGED,
    ),
    Defect("snapshot: the queries that were attached are lost", RUNNING, "        self._queries = queries\n", "", LESS),
    Defect(
        "snapshot: the first query is taken for another",
        RUNNING,
        "        if name not in documents:\n",
        "        if not documents:\n",
        f"{SNAPSHOTS}::test_a_snapshot_without_the_query_is_refused",
    ),
    Defect(
        "attach: the live events are not given",
        f"{RUNS}/place_tables.py",
        "        changes = ordered((Change(row, vs, vs, ve) for row, vs, ve in self.live), self._key)\n",
        "        changes: list[Change] = []\n",
        RIGHT,
    ),
    Defect(
        "attach: the watermark of a source is not given",
        RUNNING,
        "            self._tables[source].mark = self.entrances[source.label].mark\n",
        "            _ = source\n",
        f"{ATTACHED}::test_windows_that_have_begun_are_there_at_once",
    ),
    Defect(
        "attach: results that are wrong are not left out",
        "lmerge/temporal/operators/since.py",
        "[change for change in found.changes if change.vs >= self._since]",
        "list(found.changes)",
        RIGHT,
    ),
    Defect(
        "attach: a stream that was asked for less begins as if it were whole",
        f"{RUNS}/parts.py",
        "        gone = max(self.operator.stable, self.operator.fast_forwarded)\n",
        "        gone = self.operator.stable\n",
        f"{ATTACHED}::test_a_query_over_a_stream_that_was_asked_for_less_begins_there",
    ),
    Defect(
        "attach: a source that was asked for less begins as if it were whole",
        RUNNING,
        "            passed_on = self._passed_on.get(source.label, NEG_INF)\n",
        "            passed_on = NEG_INF\n",
        f"{ATTACHED}::test_a_query_over_a_stream_that_was_asked_for_less_begins_there",
    ),
    Defect(
        "attach: a part that runs is computed again",
        f"{RUNS}/parts.py",
        "        for name, nodes in chains_of(outputs, there, [part.name for part in self.parts]):\n",
        "        for name, nodes in chains_of(outputs, self.sources, [part.name for part in self.parts]):\n",
        f"{ATTACHED}::test_a_common_part_is_computed_once_and_its_live_events_are_the_beginning",
    ),
    Defect(
        "attach: a source that has ended begins again",
        RUNNING,
        "            if isinstance(node, SourceNode) and self._has_ended(node):\n",
        "            if isinstance(node, SourceNode) and not self.entrances:\n",
        f"{ATTACHED}::test_what_cannot_be_attached_is_named",
    ),
    Defect(
        "attach: two queries have one result",
        RUNNING,
        "        if taken is not None:\n",
        "        if taken == name:\n",
        f"{ATTACHED}::test_what_cannot_be_attached_is_named",
    ),
    Defect(
        "attach: a grid begins one window too early",
        f"{PLAN}/beginnings.py",
        "    first = window.start_above(t - 2)\n",
        "    first = window.start_above(t - 2 - window.hop)\n",
        BEGINS,
    ),
    Defect(
        "attach: the result of a set duration is right too early",
        f"{PLAN}/beginnings.py",
        "else plus(t, d - 1)))\n",
        "else t))\n",
        BEGINS,
    ),
    Defect(
        "attach: an extended event is right at once",
        f"{PLAN}/beginnings.py",
        'plus(t, d) if node.alteration == "extend" else',
        't if node.alteration == "extend" else',
        BEGINS,
    ),
    Defect(
        "attach: snapshots begin in the middle of a window",
        f"{PLAN}/beginnings.py",
        "    return _from_start(plus(t, window.gap) if isinstance(window, Sessions) else t)\n",
        "    return Opening(StreamBeginning(t))\n",
        RIGHT,
    ),
    Defect(
        "attach: a session begins within the gap",
        f"{PLAN}/beginnings.py",
        "    return _from_start(plus(t, window.gap) if isinstance(window, Sessions) else t)\n",
        "    return _from_start(t)\n",
        BEGINS,
    ),
    Defect(
        "attach: parts without a partner are right at once",
        f"{PLAN}/beginnings.py",
        "if all(inputs[side].is_whole for side in covers) else _from_start(t)\n",
        "if covers is not None else _from_start(t)\n",
        f"{ATTACHED}::test_parts_without_a_partner_begin_where_one_can_have_gone",
    ),
    Defect(
        "attach: a partner that started long ago is not missed",
        f"{PLAN}/beginnings.py",
        "        return None  # a partner that started long ago can be missing for any event\n",
        "        pass\n",
        REFUSED,
    ),
    Defect(
        "attach: the last sample of a key is not missed",
        f"{PLAN}/beginnings.py",
        "    if node.within is None:\n        return None\n",
        "    if node.within is None:\n        return Opening(inputs[0])\n",
        REFUSED,
    ),
    Defect(
        "attach: coalesced rows are right at once",
        f"{PLAN}/beginnings.py",
        "    return _from_start(inputs[0].t) if inputs[0].by_end else None\n",
        "    return Opening(inputs[0])\n",
        RIGHT,
    ),
    Defect(
        "a query that fails ends the others",
        RUNNING,
        "            if errors:\n                self.failed[name] = errors[0]\n",
        "            if failures:\n                self.failed[name] = next(iter(failures.values()))\n",
        ALONE,
    ),
    Defect(
        "a query that fails goes without an error",
        RUNNING,
        "                self.failed[name] = errors[0]\n",
        "",
        ALONE,
    ),
    Defect(
        "detach: what only the query has read is computed on",
        RUNNING,
        "        self._parts = self._parts.needed_for(list(self._results().values()))\n",
        "",
        f"{ATTACHED}::test_what_only_a_query_reads_goes_with_it",
    ),
    Defect(
        "feedback: a shared part goes by one of its results",
        "lmerge/temporal/graph.py",
        "            least = min(asked[self.sources + at], default=NEG_INF)\n",
        "            least = max(asked[self.sources + at], default=NEG_INF)\n",
        f"{ATTACHED}::test_what_results_share_goes_by_the_least_that_they_ask_for",
    ),
    Defect(
        "feedback: what was asked for is forgotten when a query leaves",
        RUNNING,
        "            list(results.values()), [self._needed.get(output, NEG_INF) for output in results]\n",
        "            list(results.values()), [NEG_INF for output in results]\n",
        f"{ATTACHED}::test_what_results_share_goes_by_the_least_that_they_ask_for",
    ),
    Defect(
        "trace: other operators are in it",
        f"{RUNS}/tracing.py",
        "        if self._operators is not None and part.name not in self._operators:\n",
        "        if self._operators is not None and not self._operators:\n",
        f"{TRACES}::test_a_trace_is_of_some_operators_and_rows",
    ),
    Defect(
        "trace: other rows are in it",
        f"{RUNS}/tracing.py",
        "changes=[change for change in delta.changes if self._is_selected(names, change)]",
        "changes=list(delta.changes)",
        f"{TRACES}::test_a_trace_is_of_some_operators_and_rows",
    ),
    Defect(
        "trace: it grows without a bound",
        f"{RUNS}/tracing.py",
        "deque(maxlen=most)",
        "deque()",
        f"{TRACES}::test_a_trace_is_bounded_and_ends",
    ),
    Defect(
        "final: an event that ends at the stable point is final",
        "lmerge/temporal/operators/final.py",
        "        until = INF if stable == INF else stable - 1\n",
        "        until = stable\n",
        f"{FINAL}::test_every_event_comes_when_it_is_final",
    ),
    Defect(
        "final: the stable point passes an event that waits",
        "lmerge/temporal/operators/final.py",
        "        free = min(stable, self._starts[0]) if self._starts else stable\n",
        "        free = stable\n",
        f"{FINAL}::test_every_event_comes_when_it_is_final",
    ),
    Defect(
        "final: a table takes an event that ends at the stable point for final",
        f"{RUNS}/results.py",
        "        return event.ve < self.stable or self.stable == INF\n",
        "        return event.ve <= self.stable\n",
        f"{FINAL}::test_a_table_marks_what_is_final",
    ),
    Defect(
        "final: a query that is attached emits what is not final",
        RUNNING,
        "        firsts = self._final({output: first[node] for output, node in outputs.items()})\n",
        "        firsts = {output: first[node] for output, node in outputs.items()}\n",
        f"{FINAL}::test_a_query_that_is_attached_to_such_a_run_emits_final_results_as_well",
    ),
    Defect(
        "history: a batch's stable point passes the next one",
        "lmerge/temporal/arrow_tables.py",
        "            yield Delta(batch, following[0].vs, batch[-1].vs)\n",
        "            yield Delta(batch, following[0].vs + 1, batch[-1].vs)\n",
        f"{ARROW}::test_history_gives_the_table_of_a_live_run",
    ),
    Defect(
        "history: nothing is freed before the end",
        "lmerge/temporal/arrow_tables.py",
        "            yield Delta(batch, following[0].vs, batch[-1].vs)\n",
        "            yield Delta(batch, None, batch[-1].vs)\n",
        f"{ARROW}::test_a_history_is_read_in_batches_that_free_what_is_final",
    ),
    Defect(
        "history: a lifetime that is empty is taken",
        "lmerge/temporal/arrow_tables.py",
        "        if start >= end or (",
        "        if start > end or (",
        f"{ARROW}::test_a_history_that_does_not_fit_is_named",
    ),
    Defect(
        "rows of users have a NaN of their own",
        "lmerge/temporal/row_forms.py",
        '    if column.type == "float":\n',
        '    if column.type == "NaN":\n',
        f"{ARROW}::test_every_type_comes_in_and_goes_out",
    ),
    Defect(
        "picture: an edge goes through the boxes between its ends",
        f"{PLAN}/layout.py",
        "    points = [_Spot(layer, _POINT, 0) for layer in range(start.layer + 1, end.layer)]\n",
        "    points = [_Spot(layer, _POINT, 0) for layer in range(start.layer, start.layer)]\n",
        f"{PICTURES}::test_an_edge_goes_around_the_boxes_between_its_ends",
    ),
    Defect(
        "picture: boxes overlap",
        f"{PLAN}/layout.py",
        "    return (one.width + other.width) / 2 + GAP_X\n",
        "    return GAP_X\n",
        f"{PICTURES}::test_boxes_stand_apart_and_edges_go_down",
    ),
    Defect(
        "picture: the order of the layers is that of the plan",
        f"{PLAN}/layout.py",
        "            if crossings < least:\n",
        "            if crossings < 0:\n",
        f"{PICTURES}::test_a_plan_that_can_be_drawn_without_crossings_is",
    ),
    Defect(
        "picture: text is read as markup",
        f"{PLAN}/drawing.py",
        "{escape(text)}</text>",
        "{text}</text>",
        f"{PICTURES}::test_text_is_text",
    ),
    Defect(
        "picture: a step counts what it emits as what it takes",
        "lmerge/temporal/graph.py",
        "                        counters.taken += sum(map(streams.changes, reads))\n",
        "                        counters.taken += _changes(found)\n",
        f"{PICTURES}::test_a_run_shows_its_counters",
    ),
    Defect(
        "replicas: the time of events that were left out decides how many computed ones are a step",
        "lmerge/replica/replica_run.py",
        "        if unneeded:  # the plan",
        "        if False:  # the plan",
        "tests/replica/test_steps_of_a_run.py::test_a_plan_that_has_caught_up_begins_with_small_steps",
    ),
    Defect(
        "a column entrance forgets how many changes were late",
        "lmerge/temporal/native/entrance.py",
        "            self.dropped, self.moved = self._native.late\n",
        "",
        NATIVE_ENTRANCE + "::test_rules_decide_change_by_change_in_both",
    ),
    Defect(
        "floats of Arrow enter as they are",
        "lmerge/temporal/native/arriving.py",
        "    values = pc.add(values, 0.0)\n",
        "",
        NATIVE_ENTRANCE + "::test_arrow_tables_enter_a_run_as_their_rows",
    ),
    Defect(
        "an Arrow table enters with ends before its starts",
        "lmerge/temporal/native/arriving.py",
        " or not pc.all(pc.less(starts, ends)).as_py()",
        "",
        "tests/temporal/test_arrow_tables.py::test_errors_of_a_table_name_its_source[native]",
    ),
)
