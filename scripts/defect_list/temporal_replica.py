"""Defects of plans that run as replicas: their sources, checkpoints, feedback and commands."""

from seeded import Defect

COLUMN_ITEMS = "tests/replica/test_column_items.py"
REPLICA = "lmerge/replica"
SOURCES = f"{REPLICA}/sources"
SOURCE_TESTS = "tests/replica/test_sources.py"
RUNNING = "tests/replica/test_running_plans.py"
RESTARTS = "tests/replica/test_restarting_plans.py"
METRICS = "tests/replica/test_plan_metrics.py"
FLIGHTS = "tests/replicas/test_flights_temporal.py"
PLANS = "tests/cli/test_query_plans.py"

DEFECTS = (
    Defect(
        "a source: a point event has no lifetime",
        f"{SOURCES}/row_changes.py",
        "            end = start + 1\n",
        "            end = start\n",
        f"{SOURCE_TESTS}::test_rows_become_point_events_and_an_end[json]",
    ),
    Defect(
        "a source: an event without an end ends at its start",
        f"{SOURCES}/row_changes.py",
        "            end = INF\n",
        "            end = start + 1\n",
        f"{SOURCE_TESTS}::test_intervals_have_ends_or_do_not_end",
    ),
    Defect(
        "a source: a restart reads the last items again",
        f"{REPLICA}/feeds.py",
        "            self._taken = min(self._passes_over, len(following.items))\n",
        "            self._taken = 0\n",
        f"{SOURCE_TESTS}::test_a_restart_goes_on_behind_what_was_taken[700-csv]",
    ),
    Defect(
        "a source: a restart passes over the items of the next chunk as well",
        f"{REPLICA}/feeds.py",
        "        return [self._chunk.end, 0] if self._is_used_up() else [self._chunk.begin, self._taken]\n",
        "        return [self._chunk.end, self._taken] if self._is_used_up() else [self._chunk.begin, self._taken]\n",
        f"{SOURCE_TESTS}::test_a_restart_goes_on_behind_what_was_taken[512-csv]",
    ),
    Defect(
        "a source: text that is no UTF-8 is read with replacements",
        f"{SOURCES}/line_files.py",
        'yield line.decode("utf-8-sig" if self.number == 1 else "utf-8")\n',
        'yield line.decode("utf-8", "replace")\n',
        f"{SOURCE_TESTS}::test_a_wrong_line_of_csv_is_named",
    ),
    Defect(
        "a source: a time without a zone is one in UTC",
        f"{SOURCES}/value_forms.py",
        "        if value.tzinfo is None or value.utcoffset() is None:\n",
        "        value = value if value.tzinfo else value.astimezone(EPOCH.tzinfo)\n        if False:\n",
        f"{SOURCE_TESTS}::test_a_wrong_line_of_csv_is_named",
    ),
    Defect(
        "Parquet: a row group whose last event ends at the time that is needed is left out",
        f"{SOURCES}/parquet.py",
        "end + shape.is_point >= self._needed_from",
        "end + shape.is_point > self._needed_from",
        f"{SOURCE_TESTS}::test_a_row_group_that_ends_when_it_is_needed_is_read",
    ),
    Defect(
        "Parquet: row groups are left out though that moves the stable point",
        f"{SOURCES}/parquet.py",
        "        if self._may_skip:\n",
        "        if True:\n",
        f"{SOURCE_TESTS}::test_a_row_group_that_ends_when_it_is_needed_is_read",
    ),
    Defect(
        "Parquet: row groups that are left out do not move the stable point",
        f"{SOURCES}/parquet.py",
        "                yield Chunk([], [group, begin], [group + 1, 0], latest=latest)\n",
        "                yield Chunk([], [group, begin], [group + 1, 0])\n",
        f"{SOURCE_TESTS}::test_parquet_leaves_out_row_groups_that_nothing_needs",
    ),
    Defect(
        "a replica: it does not join where the merge is",
        f"{REPLICA}/replica_run.py",
        "        self.joined_at = max(begins, merged)\n",
        "        self.joined_at = begins\n",
        f"{METRICS}::test_feedback_that_saves_evaluations_is_counted",
    ),
    Defect(
        "a replica: the plan does not receive where the merge is",
        f"{REPLICA}/replica_run.py",
        "        if self.joined_at > NEG_INF:\n            self._leave_out(min(self.joined_at, INF - 1))\n",
        "",
        f"{METRICS}::test_feedback_that_saves_evaluations_is_counted",
    ),
    Defect(
        "a replica: what a checkpoint has of published events is not published again",
        f"{REPLICA}/replica_run.py",
        "            self.publisher.publish(self._begun.published)\n",
        "            pass\n",
        f"{RESTARTS}::test_a_killed_replica_goes_on_from_its_checkpoint[eager]",
    ),
    Defect(
        "a replica: a checkpoint of another merge is taken",
        f"{REPLICA}/replica_run.py",
        "        if (self._begun.merge, self._begun.plan) != (self.merge, self.plan):\n",
        "        if False:\n",
        f"{RESTARTS}::test_a_checkpoint_of_another_plan_or_merge_is_refused",
    ),
    Defect(
        "a replica: a damaged checkpoint is read",
        f"{REPLICA}/checkpoints.py",
        "        if _digest(body) != data[len(_MAGIC) : start]:\n",
        "        if False:\n",
        f"{RESTARTS}::test_a_damaged_checkpoint_is_refused[cut]",
    ),
    Defect(
        "a replica: it promises nothing",
        f"{REPLICA}/replica_run.py",
        "            properties=self.promises,\n",
        "",
        f"{RUNNING}::test_what_a_plan_promises_decides_the_algorithm",
    ),
    Defect(
        "a replica: a replica that was stopped reports that it is complete",
        "lmerge/cli/query_replica.py",
        "    return 0 if is_complete else INTERRUPTED\n",
        "    return 0\n",
        f"{RESTARTS}::test_a_stopped_replica_leaves_and_goes_on",
    ),
    Defect(
        "a query: plans with other results are one query",
        f"{REPLICA}/query.py",
        "            if nodes[name].schema != nodes[first].schema:\n",
        "            if len(nodes[name].schema.names) != len(nodes[first].schema.names) and False:\n",
        f"{PLANS}::test_a_query_that_does_not_fit_is_an_error_with_its_line[results]",
    ),
    Defect(
        "a plan as JSON: a source loses its rule of progress",
        f"{SOURCES}/declared.py",
        '            document["progress"] = _progress_fields(self.progress)\n',
        "            pass\n",
        f"{PLANS}::test_plans_are_shown_in_every_form",
    ),
    Defect(
        "the flights: a branch of a plan is missing",
        "lmerge_replicas/temporal/plans.py",
        "_BRANCHES[0].union(*_BRANCHES[1:])",
        "_BRANCHES[0].union(*_BRANCHES[2:])",
        f"{FLIGHTS}::test_every_plan_gives_the_table[by-airport]",
    ),
    Defect(
        "the flights: a replica that joins reads the flights before as well",
        "lmerge_replicas/temporal/source.py",
        "        if source.join_at is not None:\n",
        "        if source.join_at is None:\n",
        f"{FLIGHTS}::test_a_replica_that_joins_is_right_from_there[revising]",
    ),
    Defect(
        "a file's rows as columns are released without a look at the clock",
        "lmerge/replica/feeds.py",
        "            if clock is not None:\n",
        "            if False:\n",
        COLUMN_ITEMS + "::test_pace_feedback_and_positions_are_those_of_rows",
    ),
    Defect(
        "a restart passes over no more than one chunk",
        "lmerge/replica/feeds.py",
        "            self._passes_over -= self._taken\n",
        "            self._passes_over = 0\n",
        COLUMN_ITEMS + "::test_pace_feedback_and_positions_are_those_of_rows",
    ),
    Defect(
        "an interval of a file without an end ends at once",
        "lmerge/replica/sources/column_items.py",
        "pc.fill_null(given, INF)",
        "pc.fill_null(given, 10)",
        COLUMN_ITEMS + "::test_times_are_read_as_by_rows",
    ),
    Defect(
        "text of a file that is no UTF-8 is taken as it is",
        "lmerge/temporal/native/arriving.py",
        "        values.validate(full=True)\n",
        "        pass\n",
        COLUMN_ITEMS + "::test_every_type_of_arrow_is_read_as_by_rows_or_refused",
    ),
)
