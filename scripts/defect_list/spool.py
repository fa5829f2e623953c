"""Defects of the spool, of the keyed state and of the conversion of rows to elements: ``lmerge/spark``."""

from seeded import Defect

SPOOL = "lmerge/spark/spool/spool.py"
RECORD = "lmerge/spark/spool/record.py"
CHECKS = "lmerge/spark/spool/checks.py"
TRIMMING = "lmerge/spark/spool/trimming.py"
LAYOUT = "lmerge/spark/spool/layout.py"
FILES = "lmerge/spark/spool/files.py"
RETENTION = "lmerge/spark/spool/retention.py"
STATE = "lmerge/spark/spool/published_state.py"
MARKS = "lmerge/spark/sink/intervals.py"
ELEMENTS = "lmerge/spark/sink/elements.py"
TEST_SPOOL = "tests/spark/spool/test_spool.py::"
DAMAGE = "tests/spark/spool/test_spool_damage.py::"
TEST_STATE = "tests/spark/spool/test_published_state.py::"
TEST_MARKS = "tests/spark/sink/test_marks.py::"
TEST_ELEMENTS = "tests/spark/sink/test_elements.py::"
DEATH = DAMAGE + "test_whoever_opens_it_after_a_death_finds_it_as_before_or_as_after"

DEFECTS = (
    Defect(
        "the spool deletes the last batch but one",
        RETENTION,
        "KEPT_BATCHES: Final = 2\n",
        "KEPT_BATCHES: Final = 1\n",
        TEST_SPOOL + "test_the_two_last_batches_always_stay",
    ),
    Defect(
        "a batch goes while a later one adjusts its events",
        RETENTION,
        " and largest[count] < smallest_vold:",
        ":",
        TEST_SPOOL + "test_a_batch_stays_while_a_later_one_adjusts_its_events",
    ),
    Defect(
        "a spool takes an end at the stable point for frozen",
        RETENTION,
        "largest[count] < frozen_to",
        "largest[count] <= frozen_to",
        TEST_SPOOL + "test_inserts_that_are_frozen_go_without_being_read",
    ),
    Defect(
        "a spool takes the newest stable for that of the batch before",
        RETENTION,
        "min(merge_stable, old[-1].stable_point)",
        "min(merge_stable, manifests[-1].stable_point)",
        TEST_SPOOL + "test_a_replica_that_is_behind_the_merge_keeps_what_it_may_adjust",
    ),
    Defect(
        "a spool folds live events again and again",
        RETENTION,
        "dead >= DEAD_ELEMENTS_MIN and 2 * dead >= kept",
        "kept >= DEAD_ELEMENTS_MIN",
        TEST_SPOOL + "test_what_is_mostly_alive_is_not_read_again",
    ),
    Defect(
        "a batch that is run again keeps the batches after it",
        RECORD,
        "if number > batch), reverse=True)",
        "if number < 0), reverse=True)",
        TEST_SPOOL + "test_a_batch_that_is_run_again_replaces_itself_and_what_came_after",
    ),
    Defect(
        "parts are published in the order in which they came",
        CHECKS,
        "for partition in sorted(by_partition))",
        "for partition in by_partition)",
        TEST_SPOOL + "test_parts_are_published_in_order_of_partition",
    ),
    Defect(
        "a stream's spool is taken by another one",
        CHECKS,
        "and meta[field] != recorded[field]:",
        "and not meta[field]:",
        TEST_SPOOL + "test_another_stream_is_refused_by_name",
    ),
    Defect(
        "an abort removes files that are committed",
        SPOOL,
        "                if name not in counts:\n",
        "                if name:\n",
        TEST_SPOOL + "test_what_was_aborted_is_removed_and_what_counts_is_not",
    ),
    Defect(
        "an executor takes the stable of its own batch",
        SPOOL,
        "before = self.record.manifest(batch - 1) or",
        "before = self.record.manifest(batch) or self.record.manifest(batch - 1) or",
        TEST_SPOOL + "test_live_events_are_those_of_all_batches_before",
    ),
    Defect(
        "a quiet partition loses its keys",
        CHECKS,
        "SpoolPart(batch, partition, 0, keyed_state=keyed[partition].keyed_state)",
        "SpoolPart(batch, partition, 0)",
        TEST_SPOOL + "test_another_number_of_partitions_is_refused_where_keys_are_remembered",
    ),
    Defect(
        "the state before the last batch is swept away",
        TRIMMING,
        "for number in sorted(manifests)[-KEPT_BATCHES:]:",
        "for number in sorted(manifests)[-1:]:",
        TEST_STATE + "test_any_last_batch_can_be_run_again",
    ),
    Defect(
        "a spool's files are written where they are read",
        FILES,
        '{base}{_TEMPORARY}{token()}"',
        '{base}"',
        DEATH + "[commit]",
    ),
    Defect(
        "two attempts write one file",
        LAYOUT,
        "os.urandom(6).hex()",
        '"one"',
        DAMAGE + "test_a_worker_that_was_given_up_harms_nothing",
    ),
    Defect(
        "a damaged frame is read",
        FILES,
        "if zlib.crc32(frame) != crc32:",
        "if len(frame) > size:",
        DAMAGE + "test_every_damaged_file_is_named",
    ),
    Defect(
        "a newer format is read as the old one",
        FILES,
        "if version > FORMAT:",
        "if version > 9:",
        DAMAGE + "test_a_newer_format_is_refused",
    ),
    Defect(
        "the changes of a lost attempt stay in the worker",
        STATE,
        "    if cached.next_name == name:",
        "    if cached.next_name:",
        TEST_STATE + "test_a_batch_that_is_run_again_begins_with_the_version_before",
    ),
    Defect(
        "a worker takes the state that it has for the one that counts",
        STATE,
        "while cached is None or name not in (cached.name, cached.next_name):",
        "while cached is None:",
        TEST_STATE + "test_a_version_is_the_state_after_its_batch",
    ),
    Defect(
        "a frozen event is adjusted",
        ELEMENTS,
        "if old is None or old[1] < stable:",
        "if old is None:",
        TEST_STATE + "test_a_key_whose_event_is_frozen_counts_as_never_published",
    ),
    Defect(
        "a key whose event ends at the stable point is forgotten",
        ELEMENTS,
        "return value if value[1] >= max(self._published_stable,",
        "return value if value[1] > max(self._published_stable,",
        TEST_STATE + "test_a_key_whose_event_is_frozen_counts_as_never_published",
    ),
    Defect(
        "a row at the stable point is late",
        ELEMENTS,
        "late = pc.less(vs, self._published_stable)",
        "late = pc.less_equal(vs, self._published_stable)",
        TEST_ELEMENTS + "test_a_row_with_vs_at_the_stable_point_is_on_time[python]",
    ),
    Defect(
        "half of a late change is published",
        ELEMENTS,
        "            elif old_vs < stable:\n",
        "            elif old_vs < stable - 9:\n",
        TEST_ELEMENTS + "test_a_change_is_late_if_either_half_is",
    ),
    Defect(
        "the old end of an adjust may be late",
        ELEMENTS,
        "pc.or_(pc.less(ve, stable), pc.less(vold, stable))",
        "pc.less(ve, stable)",
        TEST_ELEMENTS + "test_elements_below_the_stable_point_are_late",
    ),
    Defect(
        "marks at the stable point are forgotten",
        MARKS,
        "        if started is None and t < stable:\n",
        "        if started is None and t <= stable:\n",
        TEST_MARKS + "test_what_is_frozen_is_forgotten",
    ),
    Defect(
        "an interval that has begun is retracted",
        MARKS,
        "_begun(marks, stable) != _begun(both, stable)",
        "both == marks",
        TEST_MARKS + "test_a_mark_that_cannot_be_published_any_more_is_late",
    ),
    Defect(
        "the first row of a key decides",
        MARKS,
        "        insort(both, mark)\n",
        "        both.append(mark)\n",
        TEST_MARKS + "test_the_order_of_rows_makes_no_difference",
    ),
)
