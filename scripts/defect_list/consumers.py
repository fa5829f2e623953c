"""Defects of envelopes, views and sinks."""

from seeded import Defect

ENVELOPES = "lmerge/client/subscribe/envelopes.py"
VIEW_TABLE = "lmerge/client/views/view_table.py"
ROWS = "lmerge/client/sinks/rows.py"
PGTABLE = "lmerge/client/sinks/pgtable.py"
PARQUET = "lmerge/client/sinks/parquet.py"
TEST_ENVELOPES = "tests/client/subscribe/test_envelopes.py::"
TEST_VIEW = "tests/client/views/test_view.py::"
TEST_POSTGRES = "tests/client/sinks/test_sinks_postgres.py::"
TEST_PARQUET = "tests/client/sinks/test_sinks_parquet.py::"

DEFECTS = (
    Defect(
        "an event that ends at the token is lost",
        ENVELOPES,
        "in sorted(events) if ve >= self._since]",
        "in sorted(events) if ve > self._since]",
        TEST_ENVELOPES + "test_nothing_comes_before_the_token_is_reached_and_then_only_what_ends_there_or_later",
    ),
    Defect(
        "an envelope delivers what was before its token",
        ENVELOPES,
        "if stable is None or stable < self._since:",
        "if stable is None:",
        TEST_ENVELOPES + "test_nothing_comes_before_the_token_is_reached_and_then_only_what_ends_there_or_later",
    ),
    Defect(
        "the numbers of equal rows are counted from the event that ends first",
        ENVELOPES,
        "self._compare(pair, live[::-1], sorted(frozen, reverse=True), changes)",
        "self._compare(pair, live, sorted(frozen), changes)",
        TEST_ENVELOPES + "test_keys_count_from_the_event_that_ends_last",
    ),
    Defect(
        "final events come in another order at another server",
        ENVELOPES,
        "        events.sort(key=_by_end)\n",
        "",
        TEST_ENVELOPES + "test_every_final_event_comes_once_and_in_the_same_order_from_any_server",
    ),
    Defect(
        "a gap is reported before the stable point passes into it",
        ENVELOPES,
        "if self._gaps_reported_to <= gap.start < self.stable_point)",
        "if self._gaps_reported_to <= gap.start)",
        TEST_ENVELOPES + "test_a_gap_is_named_once_with_the_stable_that_passes_into_it",
    ),
    Defect(
        "a view calls an event final that ends at the stable point",
        VIEW_TABLE,
        "(pc.less if at < INF else pc.less_equal)",
        "(pc.less_equal if at < INF else pc.less_equal)",
        TEST_VIEW + "test_the_table_is_the_tdb_of_the_last_stable_point",
    ),
    Defect(
        "a view forgets an event that ends at the stable point",
        VIEW_TABLE,
        "pc.greater_equal(times[1], bound)",
        "pc.greater(times[1], bound)",
        TEST_VIEW + "test_the_table_is_the_tdb_of_the_last_stable_point",
    ),
    Defect(
        "a sink that was replaced goes on writing",
        PGTABLE,
        "if cursor.rowcount != 1:",
        "if cursor.rowcount > 1:",
        TEST_POSTGRES + "test_an_older_sink_is_fenced_and_has_changed_nothing",
    ),
    Defect(
        "a replay writes rows again that were final",
        PGTABLE,
        'DO UPDATE SET {changed} WHERE NOT t.is_final"',
        'DO UPDATE SET {changed}"',
        TEST_POSTGRES + "test_replaying_from_an_older_token_changes_nothing",
    ),
    Defect(
        "a row that was removed while the sink was away stays",
        ROWS,
        "                deleted.append(key)\n",
        "                pass\n",
        TEST_POSTGRES + "test_what_was_removed_while_the_sink_was_away_is_deleted_and_the_unchanged_is_not_written",
    ),
    Defect(
        "a Parquet sink goes on where its last file began",
        PARQUET,
        "        return newest.end\n",
        "        return newest.start\n",
        TEST_PARQUET + "test_a_sink_goes_on_behind_the_last_file_at_any_server",
    ),
)
