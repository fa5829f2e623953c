"""Defects of `lmerge verify`: `lmerge/testing/validation` and the command."""

from seeded import Defect

FOLDER = "lmerge/testing/validation/"
TABLE = FOLDER + "element_table.py"
LINES = FOLDER + "recorded_lines.py"
RULES = FOLDER + "rules.py"
REPORT = FOLDER + "report.py"
EVENTS = FOLDER + "final_events.py"
COMMAND = "lmerge/cli/verify.py"
TESTS = "tests/testing/validation/"
OF_LINES = TESTS + "test_recorded_lines.py::"
OF_RULES = TESTS + "test_rules.py::"
OF_EVENTS = TESTS + "test_final_events.py::"
OF_SHAPES = TESTS + "test_shapes.py::"
OF_COMMAND = "tests/cli/test_verify.py::"

DEFECTS = (
    Defect(
        "verify: an insert at the stable point is a fault",
        RULES,
        '"kind = 0 AND ve >= vs AND vs < stable_before"',
        '"kind = 0 AND ve >= vs AND vs <= stable_before"',
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: only the new end of an adjust is compared with the stable point",
        RULES,
        '"kind = 1 AND ve >= vs AND least(vold, ve) < stable_before"',
        '"kind = 1 AND ve >= vs AND ve < stable_before"',
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: a second copy of an end is unknown when it is adjusted",
        TABLE,
        "WHERE there < least(0, least_before)",
        "WHERE step < 0 AND there < least(1, least_before)",
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: an end that comes after its adjust makes that legal",
        TABLE,
        "AND e.kind < 2 AND e.ve > e.vs AND e.place < t.first",
        "AND e.kind < 2 AND e.ve > e.vs",
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: an end that is adjusted twice is never suspect",
        TABLE,
        "WHERE times > 1",
        "WHERE times > 2",
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: an unknown event does not exist after its adjust",
        TABLE,
        "UNION ALL SELECT stream, place, payload, vs, event_end, 1 FROM unknown",
        "UNION ALL SELECT stream, place, payload, vs, event_end, 0 FROM unknown",
        OF_RULES + "test_after_an_unknown_event_the_event_ends_where_the_adjust_put_it",
    ),
    Defect(
        "verify: a stable that goes back lowers what the stream is stable at",
        TABLE,
        "pc.fill_null_forward(pc.cumulative_max(times.combine_chunks(), skip_nulls=True))",
        "pc.fill_null_forward(times.combine_chunks())",
        OF_RULES + "test_every_fault_is_one_by_definition_and_none_is_left_out",
    ),
    Defect(
        "verify: an element is judged by its own stable point",
        TABLE,
        "return pa.concat_arrays([pa.nulls(1, pa.int64()), largest])[: len(elements)]",
        "return largest",
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: an event that was removed still takes its key",
        RULES,
        "WHERE there > 1 AND e.kind = 0",
        "WHERE there > 0 AND e.kind = 0",
        OF_RULES + "test_each_rule_holds_to_the_unit",
    ),
    Defect(
        "verify: elements that come twice are evidence of an order",
        RULES,
        "FROM inserted WHERE copies > 1",
        "FROM inserted WHERE copies > 2",
        OF_RULES + "test_elements_that_come_twice_are_no_evidence_of_an_order",
    ),
    Defect(
        "verify: orders are compared with streams that promise none",
        RULES,
        "AND stream IN (SELECT stream FROM promises WHERE promise = 'deterministic-ties')",
        "AND EXISTS (SELECT stream FROM promises WHERE promise = 'deterministic-ties')",
        OF_RULES + "test_only_streams_that_promise_an_order_are_compared",
    ),
    Defect(
        "verify: the ends of frozen events are among those that an adjust could mean",
        RULES,
        "AND coalesce(c.event_end >= f.stable_before, true)\n",
        "\n",
        OF_RULES + "test_an_unknown_event_is_explained_by_the_live_ones",
    ),
    Defect(
        "verify: more faults than are shown are not counted",
        REPORT,
        "verdicts[number].fault_count += count\n            if",
        "verdicts[number].fault_count += min(count, FAULTS_SHOWN)\n            if",
        OF_RULES + "test_of_many_faults_the_first_are_kept_and_all_are_counted",
    ),
    Defect(
        "verify: a promise that is implied is not judged",
        REPORT,
        "for name in closure(stream.promises)]",
        "for name in stream.promises]",
        OF_RULES + "test_another_order_under_an_implied_promise_is_found",
    ),
    Defect(
        "verify: an adjust with the keys of an insert is read as one",
        LINES,
        "pc.and_(pc.equal(kinds, of_rest), pc.equal(has_event,",
        "pc.and_(pc.is_valid(of_rest), pc.equal(has_event,",
        OF_LINES + "test_a_malformed_line_has_the_error_of_the_definition",
    ),
    Defect(
        "verify: a stable may have a payload",
        LINES,
        "is_form = pc.and_(pc.equal(kinds, of_rest), pc.equal(has_event, pc.not_equal(kinds, STABLE)))",
        "is_form = pc.and_(pc.equal(kinds, of_rest), pc.or_(has_event, pc.equal(kinds, STABLE)))",
        OF_LINES + "test_a_malformed_line_has_the_error_of_the_definition",
    ),
    Defect(
        "verify: an escape in a payload is taken literally",
        LINES,
        r"""_TEXT: Final = r'[^"\\\x00-\x1f]'""",
        r"""_TEXT: Final = r'[^"\x00-\x1f]'""",
        OF_LINES + "test_other_spellings_of_a_line_are_the_same_element",
    ),
    Defect(
        "verify: times may begin with a zero",
        LINES,
        r"""_TIME: Final = r'(?:0|-?[1-9][0-9]{0,17}|"-?inf")'""",
        r"""_TIME: Final = r'(?:-?[0-9]{1,18}|"-?inf")'""",
        OF_LINES + "test_a_malformed_line_has_the_error_of_the_definition",
    ),
    Defect(
        "verify: lines are numbered by block",
        LINES,
        '        first += text.count(b"\\n")\n',
        "        first += 0\n",
        OF_LINES + "test_blocks_end_anywhere",
    ),
    Defect(
        "verify: lines of another spelling come last in their block",
        LINES,
        'block.named = pa.concat_tables([known, block.named]).sort_by("place")',
        "block.named = pa.concat_tables([known, block.named])",
        OF_LINES + "test_other_spellings_of_a_line_are_the_same_element",
    ),
    Defect(
        "verify: an incarnation has the elements of the next one too",
        LINES,
        "        if is_replaced:\n            of_life",
        "        if not is_replaced and number < len(begun):\n            of_life",
        OF_LINES + "test_a_session_has_a_stream_for_each_attach",
    ),
    Defect(
        "verify: elements before the attach of their input are accepted",
        LINES,
        'or first["place_min"] < lives[first["input"]][0][0]',
        'or first["place_min"] < 0',
        OF_LINES + "test_lines_that_no_session_can_have_there",
    ),
    Defect(
        "verify: an event that ends at the common stable point has its end there",
        EVENTS,
        "CASE WHEN ve < $at THEN ve END",
        "CASE WHEN ve <= $at THEN ve END",
        OF_EVENTS + "test_what_is_decided_at_the_common_stable_point_is_compared",
    ),
    Defect(
        "verify: copies of an event are not counted in a comparison",
        EVENTS,
        "WHERE copies <> other_copies",
        "WHERE (copies > 0) <> (other_copies > 0)",
        OF_EVENTS + "test_what_is_decided_at_the_common_stable_point_is_compared",
    ),
    Defect(
        "verify: a stream that joined late is compared before it is right",
        EVENTS,
        "    if at >= since:\n",
        "    if at >= NEG_INF:\n",
        OF_EVENTS + "test_before_join_at_nothing_is_compared",
    ),
    Defect(
        "verify: two open events of one key are edges",
        REPORT,
        '"WHERE event_end <> next_start GROUP BY ALL"',
        'f"WHERE event_end <> next_start AND event_end <> {INF} GROUP BY ALL"',
        OF_SHAPES + "test_edges_follow_each_other_by_key",
    ),
    Defect(
        "verify: edges of several streams follow each other",
        REPORT,
        'by = ", ".join(["stream", *named.column_names])',
        'by = ", ".join([*named.column_names])',
        OF_SHAPES + "test_streams_have_edges_of_their_own",
    ),
    Defect(
        "verify: points are judged by what was inserted first",
        REPORT,
        "WHERE ve - 1 <> vs",
        "WHERE ve - 1 > vs + 1",
        OF_SHAPES + "test_points_last_one_unit_in_the_end",
    ),
    Defect(
        "verify: an incarnation that was replaced must end too",
        REPORT,
        "if not verdict.is_closed and not streams[number].is_replaced:",
        "if not verdict.is_closed:",
        OF_SHAPES + "test_a_stream_must_end_with_a_stable_at_infinity",
    ),
    Defect(
        "verify: differences end with code 0",
        COMMAND,
        "or any(comparison.count for comparison in comparisons):",
        "or any(comparison.count < 0 for comparison in comparisons):",
        OF_COMMAND + "test_streams_of_other_tables_are_shown_event_by_event",
    ),
    Defect(
        "verify: an input named stream is taken for a file without inputs",
        COMMAND,
        "name = shown if not stream.name else",
        'name = shown if stream.name in ("", "stream") else',
        OF_COMMAND + "test_of_a_session_each_attach_is_judged_by_what_it_declares",
    ),
    Defect(
        "verify: a file may be given twice",
        COMMAND,
        "if files.count(file) > 1]",
        "if files.count(file) > 2]",
        OF_COMMAND + "test_a_file_that_is_given_twice_is_refused",
    ),
    Defect(
        "verify: the file of a malformed line is not named",
        COMMAND,
        'f"{problem.problem} (in {shown})"',
        'f"{problem.problem}"',
        OF_COMMAND + "test_a_malformed_line_is_named_with_its_file",
    ),
)
