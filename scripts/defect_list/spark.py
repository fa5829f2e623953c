"""Defects of the connector for PySpark: the promises of plans, the merge as a query, a merge as a DataFrame."""

from seeded import Defect

BOUNDS = "lmerge/spark/plan/bounds.py"
LATENESS = "lmerge/spark/plan/lateness.py"
KEYING = "lmerge/spark/plan/keys.py"
SHARD = "lmerge/spark/merging/shard.py"
STATE_FILES = "lmerge/spark/merging/state_files.py"
FRAMES = "lmerge/spark/frames.py"
PACKS = "lmerge/spark/merging/packs.py"
TALLY = "lmerge/spark/source/decided_events.py"
COMMITTER = "lmerge/spark/sink/committer.py"
ELEMENTS = "lmerge/spark/sink/elements.py"
EXACT = "lmerge/spark/exact.py"
LINT = "lmerge/spark/plan/lint.py"
LINT_RULES = "lmerge/spark/plan/lint_rules.py"
PLAN_TREE = "lmerge/spark/plan/tree.py"
PUBLISHING = "lmerge/spark/publishing.py"
READING = "lmerge/spark/source/slice_reader.py"
QUERY_ENDS = "lmerge/spark/sink/query_ends.py"
SESSION = "lmerge/spark/session.py"
SOURCE = "lmerge/spark/source/readers.py"
TERMINAL = "lmerge/spark/terminal.py"
UPDATE_SINK = "lmerge/spark/sink/update_sink.py"
EXACT_EDGES = "tests/spark/test_exact.py::test_ties_cancellation_and_the_ends_of_the_range"
FOUND = "tests/spark/plan/test_lint.py::test_what_differs_between_replicas_is_found_and_named"
SOUND = "tests/spark/plan/test_lint.py::test_what_is_the_same_on_every_replica_passes"
WITH = "tests/spark/plan/test_lint.py::test_what_stands_in_a_with_clause_counts_as_a_view"
ONE_EPOCH = "tests/spark/source/test_epochs.py::test_a_query_reads_one_epoch_and_ends_by_name_in_the_next"
TEST_REFUSALS = "tests/spark/test_refusals.py::"
TEST_TERMINAL = "tests/spark/test_terminal.py::"
TEST_PLAN = "tests/spark/plan/test_plan.py::"
TEST_MERGING = "tests/spark/merging/test_merging.py::"
TEST_MERGE_STATE = "tests/spark/merging/test_merge_state.py::"
TEST_READ = "tests/spark/source/test_read.py::"
STABLE_RULE = TEST_PLAN + "test_the_stable_rule_follows_from_the_plan"
AS_THE_CORE = TEST_MERGING + "test_after_every_batch_it_means_what_the_core_means"
ALL_ROWS = TEST_READ + "test_all_ranges_together_are_the_tdb"

DEFECTS = (
    Defect(
        "a PySpark that pip does not know is not found",
        "lmerge_replicas/spark/session.py",
        "        from pyspark import __version__ as found",
        '        found = __import__("importlib.metadata").metadata.version("pyspark")',
        "tests/spark/test_replicas.py::test_pyspark_that_only_pythonpath_names_is_enough",
    ),
    Defect(
        "the start of a window counts as its end",
        BOUNDS,
        "return later_by(window, -window.window_us, reason)",
        "return later_by(window, 0, reason)",
        STABLE_RULE,
    ),
    Defect(
        "of several times the nearest bound holds",
        BOUNDS,
        "furthest = max(bounds,",
        "furthest = min(bounds,",
        STABLE_RULE,
    ),
    Defect("one exact bound makes all exact", BOUNDS, "exact=all(b.exact", "exact=any(b.exact", STABLE_RULE),
    Defect(
        "a time that is cut off keeps its bound",
        BOUNDS,
        "later_by(bound_of(e.children[1], flow), -unit_us,",
        "later_by(bound_of(e.children[1], flow), 0,",
        STABLE_RULE,
    ),
    Defect(
        "the first of united streams decides the bound",
        LATENESS,
        "bounds[column.expr_id] = weakest(parts)",
        "bounds[column.expr_id] = parts[0]",
        STABLE_RULE,
    ),
    Defect(
        "no bound counts as enforced by the dropping of late rows",
        LATENESS,
        "return column, Bound(lag_us, True, True,",
        "return column, Bound(lag_us, True, False,",
        STABLE_RULE,
    ),
    Defect(
        "a join's condition is read the wrong way round",
        LATENESS,
        "max(0, x_us - y_us)",
        "max(0, y_us - x_us)",
        TEST_PLAN + "test_a_join_of_two_streams_bounds_a_time_by_its_condition",
    ),
    Defect(
        "the watermark is used behind a join over a range of time",
        LATENESS,
        "watermark_us if conditions.equal else beyond",
        "watermark_us",
        TEST_PLAN + "test_behind_a_join_over_a_range_of_time_the_watermark_is_unknown",
    ),
    Defect(
        "rows without duplicates within the watermark are unique for ever",
        KEYING,
        "        names |= {c.expr_id: c.name for c in node.output if c.delay_ms is not None}\n",
        "        names = dict(names)\n",
        TEST_PLAN + "test_a_key_is_promised_where_vs_and_payload_identify_rows",
    ),
    Defect(
        "a part of the key that was projected away does not count",
        KEYING,
        "if key.parts is not None and len(carried) == len(found) else None",
        "if key.parts is not None else None",
        TEST_PLAN + "test_what_is_left_out_of_the_payload_identifies_nothing",
    ),
    Defect(
        "the stable of a merge is that of its fastest shard",
        FRAMES,
        "    stable = min(report.stable",
        "    stable = max(report.stable",
        TEST_MERGING + "test_what_a_shard_finds_ends_the_input_there_and_the_whole_stays_legal",
    ),
    Defect(
        "a shard begins its log one entry too late",
        SHARD,
        "for batch in range(start + 1, before):",
        "for batch in range(start + 2, before):",
        AS_THE_CORE,
    ),
    Defect(
        "a shard writes all of its state in each batch",
        SHARD,
        "head.log_bytes > max(LOG_PER_BASE * head.base_bytes, LOG_BYTES_MIN)",
        "head.log_bytes",
        TEST_MERGE_STATE + "test_what_is_written_follows_the_changes_not_the_live_events",
    ),
    Defect(
        "a state of other settings is continued",
        SHARD,
        "        if changed:\n",
        "        if len(changed) > 9:\n",
        TEST_MERGE_STATE + "test_a_state_of_other_settings_is_refused",
    ),
    Defect(
        "an order that goes back is taken",
        SHARD,
        "if last is not None and first < last:",
        "if last is not None and first < last - 2**40:",
        TEST_MERGING + "test_an_order_that_goes_back_ends_the_input",
    ),
    Defect(
        "a merge is stable when its first shard reports",
        FRAMES,
        "if not reports or len(reports) < reports[0].shards:",
        "if not reports:",
        TEST_MERGE_STATE + "test_reports_make_a_stable_only_together",
    ),
    Defect(
        "packs that a shard still needs are removed",
        STATE_FILES,
        "return self.oldest if self.oldest in self.bases else self.oldest - 1",
        "return self.oldest",
        TEST_MERGE_STATE + "test_packs_stay_as_long_as_a_shard_needs_them",
    ),
    Defect(
        "two merges of one query share a state",
        SHARD,
        "earlier[0].run == self._run and",
        'earlier[0].run == "" and',
        TEST_MERGE_STATE + "test_two_merges_of_a_query_need_different_names",
    ),
    Defect(
        "a batch begins without a state that cannot be found",
        SHARD,
        "            raise self._missing(before)\n",
        "            return Head(self._plan.settings()), self._plan.fresh()\n",
        TEST_MERGE_STATE + "test_a_missing_or_damaged_state_is_an_error",
    ),
    Defect(
        "a row that is no element goes to one shard",
        PACKS,
        "to_all = pc.or_(pc.greater_equal(kind, STABLE), backwards)",
        "to_all = pc.or_(pc.and_(pc.greater_equal(kind, STABLE), pc.less(kind, MALFORMED)), backwards)",
        TEST_MERGING + "test_a_row_that_is_no_element_ends_its_input_in_all_shards",
    ),
    Defect(
        "the report of an input's end is a stable for the next merge",
        PACKS,
        'pc.equal(table.column("vs"), NEG_INF)',
        'pc.equal(table.column("vs"), INF)',
        TEST_MERGING + "test_a_report_of_an_end_changes_nothing_in_the_next_merge",
    ),
    Defect(
        "an event that was removed is still read",
        TALLY,
        "pc.not_equal(kind, STABLE), pc.greater(ve, vs))",
        "pc.not_equal(kind, STABLE), pc.greater_equal(ve, vs))",
        ALL_ROWS,
    ),
    Defect(
        "an event that ends at the stable point is final",
        TALLY,
        "(table.num_rows) if t == INF else bisect_left(_Ends(table), t)",
        "(table.num_rows) if t == INF else bisect_left(_Ends(table), t + 1)",
        TEST_READ + "test_an_event_that_ends_at_the_stable_point_is_not_final",
    ),
    Defect(
        "of equal events one is read", TALLY, 'for n in range(1, bounds["max"] + 1)]', "for n in range(1, 2)]", ALL_ROWS
    ),
    Defect(
        "a query waits for an input that has left before its first stable",
        SHARD,
        "    return outcomes + _admit_if_stuck(merge)\n",
        "    return outcomes\n",
        TEST_MERGING + "test_an_input_that_leaves_before_anything_is_stable_leaves_the_merge_to_the_others",
    ),
    Defect(
        "a query whose inputs all begin late never begins",
        SHARD,
        "        _admit_if_stuck(merge)\n        return merge\n",
        "        return merge\n",
        TEST_MERGING + "test_where_no_input_is_right_from_the_beginning_the_merge_begins_with_the_earliest",
    ),
    Defect(
        "an exact sum forgets what lies below the bits that it keeps",
        EXACT,
        "    kept = kept.bitwiseOR(f.when(below, _whole(1)).otherwise(_whole(0)))\n",
        "",
        EXACT_EDGES,
    ),
    Defect(
        "an exact sum leaves out numbers that are very small or very large",
        EXACT,
        "f.collect_list(f.when(is_rare, x))",
        "f.collect_list(f.when(is_rare & f.isnan(x), x))",
        EXACT_EDGES,
    ),
    Defect(
        "a tie of an exact average is rounded up",
        EXACT,
        "(half == count) & (few % 2 == 1)",
        "(half == count)",
        EXACT_EDGES,
    ),
    Defect(
        "rounding makes a sum of floats the same",
        LINT_RULES,
        "return rule.soft if kind in rule.softened_by else rule",
        "return None if kind in rule.softened_by else rule",
        FOUND,
    ),
    Defect(
        "any function of array_sort makes a list the same",
        LINT_RULES,
        "rule is _UNORDERED and _orders_fully(above.children[1])",
        "rule is _UNORDERED",
        FOUND,
    ),
    Defect(
        "an interval of seconds needs a time zone",
        LINT_RULES,
        "    if shifted(e) is not None or _is_gap(e):\n",
        "    if _is_gap(e):\n",
        SOUND,
    ),
    Defect("the name of a file is a column like any other", PLAN_TREE, "bool(marks.get(FILE_KEY))", "False", FOUND),
    Defect(
        "a function that is an alias of others is not checked",
        LINT,
        "    if e.meaning is not None:\n",
        "    if e.meaning is not None and e.kind == e.meaning.kind:\n",
        FOUND,
    ),
    Defect(
        "a part of a WITH that is used twice keeps its names",
        PLAN_TREE,
        "            if old.expr_id != new.expr_id\n",
        "            if old.name != new.name\n",
        WITH,
    ),
    Defect(
        "a plan that Spark refuses is found in the first batch",
        PUBLISHING,
        "    if why is not None:\n",
        "    if why == output_mode:\n",
        TEST_REFUSALS + "test_what_publish_accepts_runs",
    ),
    Defect(
        "options are looked at in the first batch",
        UPDATE_SINK,
        "            sink_options(self.given)  # raises before there is a query\n",
        "",
        TEST_REFUSALS + "test_options_are_refused_before_there_is_a_query",
    ),
    Defect(
        "a declared lag that is broken loses rows",
        PUBLISHING,
        "DROP if stable_lag is None and not (facts",
        "DROP if not (facts",
        TEST_REFUSALS + "test_a_declared_lag_that_is_broken_ends_the_query",
    ),
    Defect(
        "Spark's workers run by whatever python3 there is",
        SESSION,
        "        context.pythonExec = sys.executable",
        "        context.pythonVer = context.pythonVer",
        TEST_TERMINAL + "test_a_program_runs_by_a_python_whose_environment_is_not_activated",
    ),
    Defect(
        "a mistake ends with a traceback",
        TERMINAL,
        "if message and isinstance(error, UsageError):",
        "if not message:",
        TEST_TERMINAL + "test_a_mistake_is_one_sentence_and_the_line_that_it_is_about",
    ),
    Defect(
        "a cutover ends the old query with an error",
        COMMITTER,
        "if options.ends_after_cutover and _SUCCEEDED in reason:",
        "if options.skips and _SUCCEEDED in reason:",
        TEST_TERMINAL + "test_a_cutover_ends_the_program_without_an_error",
    ),
    Defect(
        "a listener stops a query in the middle of a batch",
        QUERY_ENDS,
        "if str(event.progress.runId) not in _self_ending:",
        "if event.progress.runId:",
        "tests/spark/test_cutover_spark.py::"
        "test_a_replaced_query_is_stopped_by_who_can_see_that_no_batch_is_under_way[update]",
    ),
    Defect(
        "a position forgets the epoch",
        SOURCE,
        "format_token(options.merge, self.at, self.epoch or 0)",
        "format_token(options.merge, self.at)",
        ONE_EPOCH,
    ),
    Defect(
        "the available offsets are those of the newest epoch",
        SOURCE,
        "self._there.going_on(epoch, self._options).stable_point\n        if start",
        "self._there.of_epoch(None).stable_point\n        if start",
        ONE_EPOCH,
    ),
    Defect(
        "a task reads whatever epoch a server is in",
        READING,
        "if begin.epoch != self._epoch:",
        "if begin.epoch < 0:",
        "tests/spark/source/test_epochs.py::test_a_query_goes_on_at_a_server_that_was_not_reset_yet",
    ),
    Defect(
        "a late row is shown as its bytes",
        ELEMENTS,
        "row_formatter(None if self.plan.schema is None else self.plan.schema.to_message())",
        "row_formatter(None)",
        "tests/spark/sink/test_elements.py::test_a_late_row_is_shown_by_its_columns",
    ),
    Defect(
        "a finding of the lint that the page does not name",
        LINT_RULES,
        '"limit": Code(_ERROR, "`limit`: as many rows as come first")',
        '"limit": Code(_ERROR, "`limit`")',
        "tests/spark/test_docs.py::test_the_table_of_findings_is_that_of_the_lint",
    ),
    Defect(
        "a query continues the state of another one",
        SHARD,
        "if before is not None and before.query != self._query:",
        "if before is not None and before.query != before.query:",
        TEST_MERGE_STATE + "test_a_query_with_the_checkpoint_of_another_one_is_refused",
    ),
    Defect(
        "a query begins where another one has its state",
        SHARD,
        "            self._check_query(self._files.oldest_head())\n",
        "",
        TEST_MERGE_STATE + "test_a_query_with_the_checkpoint_of_another_one_is_refused",
    ),
)
