"""Defects of the test framework itself: intents, arrays, judges, relations, replicas, evidence."""

from seeded import Defect

TESTING = "lmerge/testing"
TESTS = "tests/testing"
TRANSFORMER = f"{TESTS}/transforming/test_transformer.py"
VERDICTS = f"{TESTS}/judging/test_verdicts.py"
DEFINITIONS = f"{TESTS}/judging/test_definitions.py"
EVIDENCE = f"{TESTS}/evidence/test_evidence.py"

DEFECTS = (
    Defect(
        "arrays: what mended rows have lost stays lost",
        f"{TESTING}/transforming/covering.py",
        "    return mended + _completing(space, strength, random, mended)\n",
        "    return mended\n",
        f"{TRANSFORMER}::test_every_pair_of_levels_that_can_be_is_in_some_tree",
    ),
    Defect(
        "arrays: words that exclude each other are in one row",
        f"{TESTING}/transforming/covering.py",
        "        if not _broken(space, {**kept, factor.name: row[factor.name]}):\n",
        "        if True:\n",
        f"{TRANSFORMER}::test_a_small_space_is_covered_in_every_strength",
    ),
    Defect(
        "ledger: what is missing is taken for excluded",
        f"{TESTING}/transforming/covering.py",
        "        return None if self.completes(row) else",
        "        return None if False else",
        f"{TRANSFORMER}::test_the_ledger_reports_what_is_missing",
    ),
    Defect(
        "filling: a placeholder is drawn anew wherever it stands",
        f"{TESTING}/transforming/filling.py",
        "        if given.name not in self.chosen:\n            self.chosen[given.name] = draw()\n",
        "        self.chosen[given.name] = draw()\n",
        f"{TRANSFORMER}::test_a_placeholder_is_one_choice_wherever_it_stands",
    ),
    Defect(
        "speculation: rows are ranked when they are final",
        f"{TESTING}/transforming/speculation.py",
        "rank=None, form=Form.EAGER)",
        "rank=None, form=Form.FINAL)",
        f"{TRANSFORMER}::test_speculation_inserts_and_takes_back_events_that_overlap",
    ),
    Defect(
        "intents: what another operator reads is a result",
        f"{TESTING}/intents/fluent.py",
        "if id(one) not in read | inner and",
        "if id(one) not in inner and",
        f"{TESTS}/intents/test_intents.py::test_what_nothing_reads_is_a_result",
    ),
    Defect(
        "intents: a scenario of a later version is read",
        f"{TESTING}/intents/json_format.py",
        "    if version != VERSION or isinstance(version, bool):\n",
        "    if version == 0:\n",
        f"{TESTS}/intents/test_intents.py::test_a_document_that_is_wrong_is_an_error_that_names_the_part",
    ),
    Defect(
        "targets: a program loses the policy of a window",
        f"{TESTING}/targets/python_source.py",
        "form={str(chosen.form)!r}, output",
        "output",
        f"{TESTS}/targets/test_targets.py::test_both_targets_mean_the_plan_of_every_tree",
    ),
    Defect(
        "judge: tables are compared at the end alone",
        f"{TESTING}/judging/verdict.py",
        "        if table.stable > before:\n",
        "        if table.stable == INF > before:\n",
        f"{VERDICTS}::test_what_is_frozen_wrong_and_corrected_later_is_found",
    ),
    Defect(
        "judge: equal events count once",
        f"{TESTING}/judging/verdict.py",
        "            self.events[payload, vs, new] += 1\n",
        "            self.events[payload, vs, new] = 1\n",
        f"{VERDICTS}::test_equal_events_count_as_often_as_they_are_there",
    ),
    Defect(
        "judge: an output that stays behind is equal",
        f"{TESTING}/judging/verdict.py",
        "    if behind is not None:\n",
        "    if False:\n",
        f"{TESTS}/judging/test_liveliness.py::test_the_engine_meets_the_rules_and_an_output_that_stays_behind_is_different",
    ),
    Defect(
        "judge: an output that never ends is equal",
        f"{TESTING}/judging/verdict.py",
        "    if operator.has_ended() and table.stable < INF:\n",
        "    if False:\n",
        f"{VERDICTS}::test_streams_that_break_a_law_or_never_end_are_different",
    ),
    Defect(
        "judge: an operator without a query has passed",
        f"{TESTING}/judging/verdict.py",
        "            return OperatorVerdict(operator.name, Judgement.NOT_JUDGED, str(problem))\n",
        "            return OperatorVerdict(operator.name, Judgement.EQUAL, str(problem))\n",
        f"{VERDICTS}::test_an_operator_without_a_query_is_not_judged",
    ),
    Defect(
        "judge: the definition has no vote",
        f"{TESTING}/judging/verdict.py",
        "    if third is None or third == expected:\n",
        "    if True:\n",
        f"{DEFINITIONS}::test_an_error_in_the_sql_is_blamed_on_the_sql",
    ),
    Defect(
        "judge: bytes of negative floats are not turned around",
        f"{TESTING}/judging/sort_keys.py",
        'return b"\\x00" + bytes(255 - byte for byte in raw) if raw[0] & 0x80',
        'return b"\\x00" + raw if raw[0] & 0x80',
        f"{TESTS}/judging/test_sort_keys.py::test_bytes_of_each_column_have_its_order",
    ),
    Defect(
        "judge: a plan that promises inserts alone may revise",
        f"{TESTING}/judging/promises.py",
        "                if INSERT_ONLY in promises:\n",
        "                if False:\n",
        f"{VERDICTS}::test_a_stream_that_breaks_what_its_plan_promises_is_different",
    ),
    Defect(
        "canonical: names inside of quotes are turned around",
        f"{TESTING}/canonical/joins.py",
        "    parts[::2] = [re.sub(",
        "    parts[:] = [re.sub(",
        f"{VERDICTS}::test_a_condition_is_turned_around_only_where_it_names_tables",
    ),
    Defect(
        "shrinking: a plain history has the first end",
        f"{TESTING}/evidence/shrinking.py",
        "        if element.ve > element.vs:\n            ends.append(element.ve)\n",
        "        if element.ve > element.vs and not ends:\n            ends.append(element.ve)\n            break\n",
        f"{EVIDENCE}::test_what_is_kept_of_histories_is_legal",
    ),
    Defect(
        "cases: a session may lie in another folder",
        f"{TESTING}/evidence/cases.py",
        "Path(session).name != session",
        "False",
        f"{EVIDENCE}::test_a_case_that_is_wrong_is_an_error_that_names_file_and_part",
    ),
    Defect(
        "replicas: one of them is not merged",
        f"{TESTING}/merges/replicas.py",
        "            follow.attach(name, properties)\n            if not sizes[name]:\n",
        "            if len(follow.prefixes) < len(streams) - 1:\n                follow.attach(name, properties)\n"
        "            if not sizes[name]:\n",
        f"{TESTS}/checking/test_replicas.py::test_two_plans_of_a_query_give_one_table_and_merge_to_it",
    ),
    Defect(
        "relations: a shift expects unshifted results",
        f"{TESTING}/checking/relations.py",
        "    return t + amount if NEG_INF < t < INF else t\n",
        "    return t\n",
        f"{TESTS}/checking/test_relations.py::test_every_relation_holds_for_a_query_by_key",
    ),
    Defect(
        "relations: a grid over endless events is not refused",
        f"{TESTING}/checking/relations.py",
        "    if hopping and any(",
        "    if False and any(",
        f"{TESTS}/checking/test_relations.py::test_a_relation_that_cannot_hold_is_refused_with_the_reason",
    ),
    Defect(
        "composing: placeholders of two scenarios are mixed up",
        f"{TESTING}/intents/composing.py",
        'name=f"{MARK}{len(self.into.placeholders) + 1}")',
        "name=name)",
        f"{TESTS}/intents/test_composing.py::test_placeholders_of_both_stay_apart",
    ),
)
