"""Defects of the connector for PySpark: the commits of a sink, its stable point, the rows of a source."""

from seeded import Defect

AGENT = "lmerge/spark/sink/agent.py"
COMMITTER = "lmerge/spark/sink/committer.py"
ENVELOPES = "lmerge/spark/source/envelope_rows.py"
FEED = "lmerge/spark/source/feed.py"
HEARTBEATS = "lmerge/spark/heartbeats.py"
LINT_RULES = "lmerge/spark/plan/lint_rules.py"
NEWS = "lmerge_replicas/spark/news.py"
PROMISES = "lmerge/spark/plan/promises.py"
SHARD = "lmerge/spark/merging/shard.py"
SINK = "lmerge/spark/sink/writers.py"
STARTS = "lmerge/spark/sink/starts.py"
UPDATE_SINK = "lmerge/spark/sink/update_sink.py"
WATERMARK = "lmerge/spark/sink/watermark.py"
WORKERS = "lmerge/spark/sink/workers.py"
TEST_EXACTLY_ONCE = "tests/spark/sink/test_exactly_once.py::"
TEST_READ = "tests/spark/source/test_read.py::"
TEST_SINK = "tests/spark/sink/test_sink.py::"
TEST_STARTS = "tests/spark/sink/test_starts.py::"
WITHOUT_ROWS = TEST_STARTS + "test_a_replica_without_rows_joins_stays_and_takes_part_when_rows_come"
FAILED_BATCH = TEST_EXACTLY_ONCE + "test_a_batch_that_fails_is_published_once_when_it_is_run_again"
EDGES = "tests/spark/plan/test_stable_edges.py::"
ALL_RANGES = TEST_READ + "test_a_range_has_the_same_rows_at_every_server"

DEFECTS = (
    Defect(
        "a stable is a microsecond too late in the query's time",
        PROMISES,
        "return self.lag_us - (1 if",
        "return self.lag_us - 1 - (1 if",
        EDGES + "test_windows_in_append_mode_come_out_above_the_watermark_less_their_length",
    ),
    Defect(
        "rows without duplicates may come at the watermark",
        PROMISES,
        "- (1 if self.strict else 0)",
        "- (2 if self.strict else 0)",
        EDGES + "test_rows_without_duplicates_come_out_above_the_watermark",
    ),
    Defect(
        "a publisher that begins anew has published the batch already",
        COMMITTER,
        "live = spool.live_before(batch)",
        "live = spool.live_before(batch + 1)",
        FAILED_BATCH,
    ),
    Defect(
        "a batch publishes the watermark of the next one",
        COMMITTER,
        "batch_watermark_us(options.checkpoint, commit.batch)",
        "batch_watermark_us(options.checkpoint, commit.batch + 1)",
        EDGES + "test_rows_without_state_are_let_in_from_the_watermark_on_and_dropped_below_it",
    ),
    Defect(
        "a restart uses the clock",
        COMMITTER,
        "return max(clock.wall_us(), *(number + _INCARNATIONS_PER_LIFE for number in before), 0)",
        "return max(clock.wall_us(), *(number - number for number in before), 0)",
        TEST_SINK + "test_a_clock_that_went_back_does_not_keep_a_restart_out",
    ),
    Defect(
        "a replica joins at its own stable point",
        COMMITTER,
        "    complete_from = min(complete_from, max((row[1] for row in stables), default=NEG_INF))\n",
        "    complete_from = max((row[1] for row in stables), default=NEG_INF)\n",
        TEST_SINK + "test_a_replica_that_was_ahead_of_the_merge_joins_where_the_merge_is",
    ),
    Defect(
        "a commit does not wait for a server",
        COMMITTER,
        "    await _reached(publisher, lambda: publisher.outbox.acked >= published)\n",
        "    assert published >= 0\n",
        "tests/spark/test_skip.py::test_a_commit_comes_back_when_a_server_has_merged_its_batch",
    ),
    Defect(
        "an agent outlives its owner",
        AGENT,
        "        wait_for_end(owner)\n",
        "        wait_for_end(os.getpid())\n",
        TEST_SINK + "test_an_agent_ends_with_its_owner",
    ),
    Defect(
        "a query attaches with its first rows",
        UPDATE_SINK,
        "                starts.attach_soon(query, prepared.sparkSession, sink_options(self.given))\n",
        "                assert query.id\n",
        WITHOUT_ROWS,
    ),
    Defect("the first batch attaches anew", COMMITTER, "self._batch = batch - 1", "self._batch = batch", WITHOUT_ROWS),
    Defect(
        "a commit does not find the agent of its query's start",
        SINK,
        "self.options.driver_pid or os.getppid()",
        "os.getppid()",
        WITHOUT_ROWS,
    ),
    Defect(
        "a query without rows goes on although a server refused it",
        STARTS,
        "                    self._end_with(error)\n",
        "                    assert error\n",
        TEST_STARTS + "test_a_refused_attach_ends_a_query_without_rows",
    ),
    Defect(
        "a query without rows that was replaced goes on",
        STARTS,
        "                    end_if_replaced(self._start.query, self._start.run)\n",
        "                    assert done.ended\n",
        TEST_STARTS + "test_a_query_without_rows_that_was_replaced_is_stopped_and_does_not_fail",
    ),
    Defect(
        "a query that is stopped while its agent starts stays attached",
        STARTS,
        "                agent.leave(self._start.query, self._start.run)\n",
        "                assert self._start.run\n",
        TEST_STARTS + "test_a_query_that_is_stopped_at_once_leaves_nothing_attached",
    ),
    Defect(
        "an idle query stays attached when its session was stopped",
        STARTS,
        "return context is not None and not context.sc().isStopped() and bool(self._query.isActive)",
        "return bool(self._query.isActive)",
        TEST_STARTS + "test_an_idle_query_detaches_with_its_session_and_with_its_driver",
    ),
    Defect(
        "the incarnation of an idle life is forgotten",
        COMMITTER,
        "    before.append(spool.newest_life())\n",
        "",
        TEST_STARTS + "test_an_idle_life_keeps_no_later_one_out_whose_clock_went_back",
    ),
    Defect(
        "an agent that ends answers the start of the next run",
        AGENT,
        'if reply is None or (request == "attach" and self._ended.is_set()):',
        "if reply is None:",
        TEST_STARTS + "test_an_attach_that_meets_the_end_of_an_earlier_run_reaches_another_agent",
    ),
    Defect(
        "two processes start an agent at once",
        AGENT,
        "fcntl.flock(turn, fcntl.LOCK_EX)",
        "fcntl.flock(turn, fcntl.LOCK_SH)",
        TEST_STARTS + "test_who_start_an_agent_at_once_start_one",
    ),
    Defect(
        "a batch that Spark has not recorded counts as done",
        WATERMARK,
        "return begun[-1] + 1 if is_done else begun[-1]",
        "return begun[-1] + 1",
        TEST_STARTS + "test_the_next_batch_is_the_one_that_spark_has_not_recorded",
    ),
    Defect(
        "a commit leaves out what its batch wrote",
        SINK,
        "parts=tuple(one.part for one in written),",
        "parts=(),",
        TEST_SINK + "test_a_dataframe_of_elements_is_published_unchanged",
    ),
    Defect(
        "ticks are filtered before the watermark has seen them",
        HEARTBEATS,
        "NOT {_IS_TICK} OR `{time}` < TIMESTAMP'0001-01-02 00:00:00'",
        "NOT {_IS_TICK}",
        "tests/spark/test_publish.py::test_a_heartbeat_closes_windows_of_a_silent_source",
    ),
    Defect(
        "an event that begins at the end of a range has begun",
        ENVELOPES,
        "goes_on = events.going_on(high, requested.begun_from, high)",
        "goes_on = events.going_on(high, requested.begun_from, high + 1)",
        TEST_READ + "test_an_event_that_begins_at_the_end_of_a_range_has_not_begun",
    ),
    Defect(
        "an end that can change is shown",
        ENVELOPES,
        "        if not requested.current_ends:\n",
        "        if not requested.current_ends and requested.fresh:\n",
        ALL_RANGES,
    ),
    Defect(
        "a driver that holds enough wakes no waiting thread",
        FEED,
        "self._events_read.stable_point > before or self._is_full():",
        "self._events_read.stable_point > before:",
        "tests/spark/source/test_source.py::test_a_full_driver_wakes_a_waiting_query_though_nothing_new_is_stable",
    ),
    Defect(
        "a shard continues from a failed attempt",
        SHARD,
        "held.head.run == self._run and held.batch == before:",
        "held.head.run == self._run:",
        "tests/spark/merging/test_merging.py::test_after_every_batch_it_means_what_the_core_means",
    ),
    Defect(
        "a sum of floats that is cut off counts as rounded",
        LINT_RULES,
        '"Round"',
        '"Round", "Floor"',
        "tests/spark/plan/test_lint.py::test_what_differs_between_replicas_is_found_and_named",
    ),
    Defect(
        "all flights are taken to be short",
        NEWS,
        "LONGEST: Final = 35 * HOUR",
        "LONGEST: Final = 3 * HOUR",
        "tests/spark/test_replicas.py::test_no_news_are_late_however_batches_are_cut",
    ),
    Defect(
        "a worker freezes what each of its tasks leaves",
        WORKERS,
        "if next(_seen) == _FREEZES_AT:",
        "if next(_seen) >= _FREEZES_AT:",
        "tests/spark/sink/test_workers.py::"
        "test_what_is_loaded_is_frozen_once_at_the_second_task_and_later_garbage_is_still_collected",
    ),
    Defect(
        "a worker's acknowledgements are delayed",
        WORKERS,
        "connection.setsockopt(socket.IPPROTO_TCP, option, 1)",
        "connection.setsockopt(socket.IPPROTO_TCP, option, 0)",
        "tests/spark/sink/test_workers.py::test_all_tcp_connections_of_the_process_acknowledge_at_once",
    ),
    Defect(
        "the first frame of a merge has no order",
        "lmerge/spark/source/frame_rows.py",
        "order = max(start, NEG_INF + 1)",
        "order = start",
        "tests/spark/source/test_read.py::test_orders_of_frames_never_fall_and_the_stable_has_the_last",
    ),
)
