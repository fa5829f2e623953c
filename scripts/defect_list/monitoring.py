"""Defects of the alerts, the dashboards and their files."""

from seeded import Defect

STREAMS = "monitoring/alerting/streams.py"
REPLICAS = "monitoring/alerting/replicas.py"
SERVERS = "monitoring/alerting/servers.py"
OPERATIONS = "monitoring/alerting/operations.py"
FILES = "tests/monitoring/test_alert_files.py::"
EXAMPLES = FILES + "test_it_fires_on_one_example_and_not_on_the_other"
BOARDS = "tests/monitoring/test_dashboards.py::"

DEFECTS = (
    Defect(
        "alerts: a stream that has ended has lost its redundancy",
        STREAMS,
        'condition="lmerge_survivable_losses < 1 unless lmerge_stable_point_time == +Inf"',
        'condition="lmerge_survivable_losses < 1"',
        f"{EXAMPLES}[LmergeRedundancyLost]",
    ),
    Defect(
        "alerts: one server that stands still is a stalled stream",
        STREAMS,
        'f"min by ({EVERY}, merge) (lmerge_stable_pause_seconds)',
        'f"max by ({EVERY}, merge) (lmerge_stable_pause_seconds)',
        f"{EXAMPLES}[LmergeStreamStalled]",
    ),
    Defect(
        "alerts: a gap fires for ever",
        STREAMS,
        'condition="increase(lmerge_output_gaps_total[{window}]) > 0"',
        'condition="lmerge_output_gaps_total > 0 * {seconds}"',
        f"{EXAMPLES}[LmergeGap]",
    ),
    Defect(
        "alerts: a replica that leaves in order flaps",
        REPLICAS,
        'reason!~"left|detached|reset"',
        'reason!~"detached|reset"',
        f"{EXAMPLES}[LmergeReplicaFlapping]",
    ),
    Defect(
        "alerts: a controller that is down is a server",
        SERVERS,
        """job=~".*lmerge.*", job!~".*controller.*"}""",
        """job=~".*lmerge.*"}""",
        f"{EXAMPLES}[LmergeServerDown]",
    ),
    Defect(
        "alerts: a drill that passed again still fails",
        OPERATIONS,
        'f"{_LAST_RUN} > {_LAST_SUCCESS} or',
        'f"{_LAST_RUN} >= {_LAST_SUCCESS} or',
        f"{EXAMPLES}[LmergeDrillFailed]",
    ),
    Defect(
        "alerts: a certificate is reported when it has expired",
        OPERATIONS,
        "lmerge_certificate_expiry_timestamp_seconds - time() < {seconds}",
        "lmerge_certificate_expiry_timestamp_seconds - time() < 0 * {seconds}",
        f"{EXAMPLES}[LmergeCertificateExpiring]",
    ),
    Defect(
        "alerts: a condition uses a metric that no server exports",
        STREAMS,
        "lmerge_subscriber_lag_seconds > {seconds}",
        "lmerge_reader_lag_seconds > {seconds}",
        FILES + "test_conditions_use_metrics_that_a_server_exports",
    ),
    Defect(
        "alerts: the runbook of an alert has another name",
        "monitoring/alerting/alert.py",
        'return "-".join(re.findall("[A-Z][a-z]+", self.name)[1:]).lower()',
        'return "-".join(re.findall("[A-Z][a-z]+", self.name)).lower()',
        FILES + "test_every_runbook_belongs_to_an_alert",
    ),
    Defect(
        "alerts: a test's pace does not shorten the time for which a condition holds",
        "monitoring/alerting/alert.py",
        "return duration(alert.for_s * self.factor)",
        "return duration(alert.for_s)",
        FILES + "test_a_fast_pace_shortens_windows_and_waits_and_changes_nothing_else",
    ),
    Defect(
        "dashboards: the chart's copy is not written",
        "monitoring/artifacts.py",
        "for folder in (DASHBOARDS, CHART_DASHBOARDS)",
        "for folder in (DASHBOARDS, DASHBOARDS)",
        FILES + "test_a_folder_has_all_that_is_generated_and_nothing_else",
    ),
    Defect(
        "dashboards: a first death is not marked",
        "monitoring/boards/panel.py",
        "({before} or 0 * {now})",
        "{before}",
        BOARDS + "test_no_query_is_empty_while_replicas_die_and_are_replaced",
    ),
    Defect(
        "dashboards: a query uses a variable that cannot be chosen",
        "monitoring/boards/replica.py",
        """_ONE: Final = 'merge="$merge", input="$input"'""",
        """_ONE: Final = 'merge="$merge", input="$replica"'""",
        BOARDS + "test_each_variable_of_a_query_can_be_chosen",
    ),
    Defect(
        "dashboards: panels are wider than the page",
        "monitoring/boards/panel.py",
        "    width: int = 12\n",
        "    width: int = 16\n",
        BOARDS + "test_each_panel_has_a_question_a_unit_and_thresholds_and_fits_the_page",
    ),
    Defect(
        "alerts: a controller without a leader is not reported",
        OPERATIONS,
        '({_LEADER}) == 1"',
        '({_LEADER}) >= 0"',
        f"{EXAMPLES}[LmergeControllerWithoutLeader]",
    ),
    Defect(
        "alerts: two leaders at a hand-over are reported at once",
        OPERATIONS,
        '({_LEADER}) > 1",\n        for_s=60,',
        '({_LEADER}) > 1",\n        for_s=0,',
        f"{EXAMPLES}[LmergeControllerTwoLeaders]",
    ),
    Defect(
        "dashboards: Spark's heap is asked for by a name that no driver exports",
        "monitoring/boards/spark.py",
        'lmerge_spark_heap_bytes{kind="used"}',
        'lmerge_spark_jvm_bytes{kind="used"}',
        BOARDS + "test_queries_use_metrics_that_a_server_exports",
    ),
)
