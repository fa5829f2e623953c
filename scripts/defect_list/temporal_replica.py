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
LIVE = "tests/replica/test_live_sources.py"
SEEKS = f"{LIVE}::test_a_reader_that_is_behind_what_is_needed_leaves_out_what_lies_between"
BECOMES = f"{LIVE}::test_a_reader_becomes_what_another_subscription_has_by_legal_changes"

RESUMING = "tests/replica/test_resuming.py"
IDLE = "tests/replica/test_idle_sources.py"
LIVE_FEEDS = "tests/replica/test_live_feeds.py"
DRIVEN = "tests/replica/test_driven_plans.py"
OPTIONS = "tests/cli/test_replica_options.py"

DEFECTS = (
    Defect(
        "a driven replica: --raw has no effect on a query",
        "lmerge/cli/query_replica.py",
        "        chosen.is_raw,\n",
        "        False,\n",
        f"{DRIVEN}::test_a_plan_publishes_raw_payloads",
    ),
    Defect(
        "a driven replica: a parent receives -inf for a replica that begins at the beginning",
        f"{REPLICA}/replica_run.py",
        "        return None if self.joined_at == NEG_INF else self.joined_at\n",
        "        return self.joined_at\n",
        f"{DRIVEN}::test_a_parent_drives_a_plan",
    ),
    Defect(
        "a driven replica: the operator that hangs is not named",
        f"{REPLICA}/present_step.py",
        "isinstance(place, PlanOperator)",
        "isinstance(place, str)",
        f"{DRIVEN}::test_a_run_that_hangs_names_the_operator",
    ),
    Defect(
        "a driven replica: late events are not reported",
        "lmerge/cli/query_replica.py",
        " if dropped else",
        " if moved else",
        f"{DRIVEN}::test_the_last_line_counts_late_events",
    ),
    Defect(
        "a driven replica: days of the flights are taken for a query",
        "lmerge/cli/plan_options.py",
        "    _check_not_given(days,",
        "    _check_not_given({},",
        f"{OPTIONS}::test_options_without_an_effect_on_a_query_are_refused[first]",
    ),
    Defect(
        "live feeds: chunks before and behind a seek of a merge are taken as one",
        f"{REPLICA}/feeds.py",
        " or chunk.end != following.begin:\n",
        ":\n",
        f"{LIVE_FEEDS}::test_what_a_restart_would_confuse_is_taken_one_by_one[a seek]",
    ),
    Defect(
        "live feeds: what waits is taken item by item",
        f"{REPLICA}/feeds.py",
        "len(items) < READ_AHEAD_ITEMS and",
        "len(items) < 1 and",
        f"{LIVE_FEEDS}::test_items_that_wait_are_taken_at_once[None]",
    ),
    Defect(
        "live feeds: a thread reads ahead without a limit",
        f"{REPLICA}/feeds.py",
        "or self._waiting_items < READ_AHEAD_ITEMS\n",
        "or True\n",
        f"{LIVE_FEEDS}::test_a_thread_reads_no_more_ahead_than_it_may",
    ),
    Defect(
        "idle sources: a source goes on only when no other has an item",
        f"{REPLICA}/replica_run.py",
        "            self._pass_idle()\n",
        "            if self._next_feed()[0] is None:\n                self._pass_idle()\n",
        f"{IDLE}::test_a_source_that_always_has_something_does_not_keep_an_idle_one_from_going_on",
    ),
    Defect(
        "idle sources: those that have ended count for nothing",
        f"{REPLICA}/idling.py",
        "        return min(busy) if busy else max(rest, default=None)\n",
        "        return min(busy, default=None)\n",
        f"{IDLE}::test_a_source_that_has_ended_counts_by_its_latest_start_when_nothing_else_goes_on",
    ),
    Defect(
        "idle sources: the wall clock counts for a stream in seconds",
        f"{REPLICA}/idling.py",
        "        if abs(now - latest) > FAR_US:\n",
        "        if latest - now > FAR_US:\n",
        f"{IDLE}::test_units_that_are_no_microseconds_are_refused[None]",
    ),
    Defect(
        "a replica: a restart reads Python items again",
        f"{SOURCES}/iterables.py",
        "islice(self._synchronous(held), self._taken, None)",
        "islice(self._synchronous(held), 0, None)",
        f"{RESUMING}::test_a_restart_passes_over_items_that_come_again[list]",
    ),
    Defect(
        "a replica: what an asynchronous stream holds is left to the garbage collector",
        f"{SOURCES}/iterables.py",
        "held.enter_context(closing(_OwnLoop(self._items)))",
        "_OwnLoop(self._items)",
        f"{LIVE_FEEDS}::test_an_asynchronous_stream_with_a_bad_item_is_closed_by_the_thread_that_reads",
    ),
    Defect(
        "a replica: a closed source waits for its next item",
        f"{SOURCES}/iterables.py",
        "            self._waits.cancel()",
        "            pass",
        f"{LIVE_FEEDS}::test_an_asynchronous_stream_that_waits_is_ended_when_its_source_is_closed",
    ),
    Defect(
        "a replica: a source that waits when it is closed has ended",
        f"{SOURCES}/iterables.py",
        "            if self._closed.is_set():  # while it waited: this is no end of the stream",
        "            if False:",
        f"{LIVE_FEEDS}::test_an_asynchronous_stream_that_waits_is_ended_when_its_source_is_closed",
    ),
    Defect(
        "a replica: a source that is read directly is left to the garbage collector",
        "lmerge/replica/feeds.py",
        "            self._chunks.close()",
        "            pass",
        f"{LIVE_FEEDS}::test_an_asynchronous_stream_that_is_read_directly_is_closed_with_its_source",
    ),
    Defect(
        "a replica: a step that does not end is not logged",
        f"{REPLICA}/slow_steps.py",
        "            elif took_s >= reported_at_s",
        "            elif took_s < reported_at_s",
        f"{DRIVEN}::test_a_step_that_does_not_end_is_logged_with_its_operator",
    ),
    Defect(
        "a replica: a run that waits is logged as a slow step",
        f"{REPLICA}/slow_steps.py",
        "and (doing := self._doing()):",
        "and ((doing := self._doing()) or True):",
        f"{DRIVEN}::test_a_run_that_waits_is_not_logged",
    ),
    Defect(
        "a replica: an iterator allows a checkpoint",
        f"{SOURCES}/iterables.py",
        "        if iter(self.items) is self.items:\n",
        "        if False:\n",
        f"{RESUMING}::test_what_is_run_through_once_allows_no_checkpoint",
    ),
    Defect(
        "a replica: --join-at is ignored with a checkpoint",
        f"{REPLICA}/replica_run.py",
        "        return begins if self._begun is None else max(begins, self._begun.complete_from)\n",
        "        return begins if self._begun is None else self._begun.complete_from\n",
        f"{RESUMING}::test_join_at_counts_for_a_file_with_a_checkpoint_too",
    ),
    Defect(
        "a replica: a socket goes on from a checkpoint as if nothing had been sent meanwhile",
        f"{REPLICA}/resuming.py",
        "    if join_at is None:\n",
        "    if False:\n",
        f"{RESUMING}::test_what_a_socket_has_lost_is_never_claimed[json]",
    ),
    Defect(
        "a replica: a run that was stopped before its merge began writes a checkpoint",
        f"{REPLICA}/replica_run.py",
        "            if found is None:\n                return None\n",
        "            if found is None:\n                found = NEG_INF\n",
        f"{RESUMING}::test_a_run_that_is_stopped_before_its_merge_begins_writes_no_checkpoint",
    ),
    Defect(
        "a replica: a merge of which nothing was taken begins where it has begun before",
        f"{REPLICA}/replica_run.py",
        "            goes_on = self._begun is not None and self._begun.positions.get(feed.name) is not None\n",
        "            goes_on = self._begun is not None\n",
        f"{RESUMING}::test_a_merge_of_which_nothing_was_taken_begins_anew",
    ),
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
    Defect(
        "a merge as a source: feedback is not heard",
        f"{SOURCES}/merge_stream.py",
        "        self._needed_from = max(self._needed_from, t)\n",
        "        pass\n",
        SEEKS,
    ),
    Defect(
        "a merge as a source: a seek repeats what the reader has",
        f"{SOURCES}/merge_stream.py",
        "self._items(batch if held is None else held.changes_to(batch))",
        "self._items(batch)",
        SEEKS,
    ),
    Defect(
        "a merge as a source: an event that ended while it sought lasts",
        f"{SOURCES}/merge_stream.py",
        "                if end >= self.needed_from:\n",
        "                if end == self.needed_from:\n",
        BECOMES,
    ),
    Defect(
        "a merge as a source: an event that ended while it sought is taken back",
        f"{SOURCES}/merge_stream.py",
        "builder.adjust(payload, vs, end, max(vs, self.stable))",
        "builder.adjust(payload, vs, end, vs)",
        BECOMES,
    ),
)
