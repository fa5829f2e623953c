"""Reports show what the verdict found, in every form, and text from outside harms none of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drill_world import TRUTH, adjust, right_stream
from prometheus_client.parser import text_string_to_metric_families

from lmerge.errors import UsageError
from lmerge_controller.drill.judging.judge import ProbeJudge
from lmerge_controller.drill.judging.verdict import DrillLimits, FaultRecord, judged
from lmerge_controller.drill.report.as_json import report_json
from lmerge_controller.drill.report.junit import report_junit
from lmerge_controller.drill.report.metrics import report_metrics
from lmerge_controller.drill.report.page import report_page
from lmerge_controller.drill.report.report_files import ReportFiles
from lmerge_controller.drill.report.result import DrillResult, DrillStatus, exit_code
from lmerge_controller.drill.report.text import result_text, summary_text
from lmerge_controller.drill.report.timeline import silences_ms
from lmerge_controller.drill.scenario_file import builtin_scenarios

COUNT = 400
HOSTILE = '</script><img src=x onerror="alert(1)">\x1b[31m\u202e & "'
NAME = "kill-winner"


def result(*, spoiled: str = "", problem: str = "", limits: DrillLimits | None = None) -> DrillResult:
    """Return the result of a drill with one fault at second 3, and a pause of 1 s there."""
    judge = ProbeJudge(TRUTH)
    for at, element in enumerate(right_stream(COUNT)):
        second = 101.0 + at / 100
        judge.take([element], second if second < 103.0 else second + 1.0)
    if spoiled:
        event = TRUTH.event(3)._replace(payload=spoiled)
        judge.take([adjust(event, event.ve, event.ve + 1)], 110.0)
    scenario = builtin_scenarios()[NAME]
    scenario = replace(scenario, limits=limits or scenario.limits)
    fault = FaultRecord("kill replica", "replica 2", 103.0, 103.5, 104.0, problem)
    verdict = judged(judge.findings(COUNT), [fault], scenario.limits, ended_s=112.0)
    status = DrillStatus.PASSED if verdict.has_passed else DrillStatus.FAILED
    return DrillResult(scenario, "a sandbox", status, verdict.reasons, 1_700_000_000.0, 100.0, 112.0, verdict)


def refused(reason: str = "flights: 1 servers could carry it, and 1 would go") -> DrillResult:
    return DrillResult(
        builtin_scenarios()["kill-server"], "servers", DrillStatus.REFUSED, (reason,), 1_700_000_100.0, 200.0, 201.0
    )


class Markup(HTMLParser):
    """The elements of a page, all opened ones closed in order."""

    VOID = frozenset(("meta", "img", "br", "input", "link"))

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_exit_code_is_that_of_the_worst_drill() -> None:
    failed = result(problem="no such process")
    assert exit_code([]) == exit_code([result()]) == 0
    assert exit_code([result(), refused()]) == 2
    assert exit_code([refused(), failed, result()]) == 1


def test_the_text_names_the_fault_and_its_pause() -> None:
    text = result_text(result())
    assert text.startswith(f"PASSED   {NAME}: ")
    assert "kill replica replica 2 for 0.5 s: output paused 1,010 ms" in result_text(
        result(limits=DrillLimits(pause_ms=500.0))
    ).replace("1,000 ms", "1,010 ms")
    assert "the limit is 500 ms" in result_text(result(limits=DrillLimits(pause_ms=500.0)))
    assert summary_text([result(), refused()]) == "1 passed, 1 refused; 1 faults\n"


def test_json_has_all_figures() -> None:
    report = json.loads(report_json([result(), refused()]))
    assert (report["form"], report["exit_code"]) == (1, 2)
    good, other = report["drills"]
    assert (good["status"], other["status"]) == ("passed", "refused")
    assert good["began_at"] == "2023-11-14T22:13:20.000Z"
    assert good["events"]["delivered"] == good["events"]["expected"] == COUNT
    assert {"lost", "duplicated", "contradictions", "wrong_end", "gaps"} <= good["events"].keys()
    (fault,) = good["faults"]
    assert (fault["at_seconds"], fault["undone_at_seconds"], fault["recovery_seconds"]) == (3.0, 3.5, 0.5)
    assert fault["pause_ms"] >= 990.0


def test_junit_counts_refused_drills_as_errors() -> None:
    suite = ElementTree.fromstring(report_junit([result(), refused(), result(problem=HOSTILE)]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [[part.tag for part in case] for case in suite] == [
        ["system-out"],
        ["error", "system-out"],
        ["failure", "system-out"],
    ]
    assert "\\x1b" in str(suite.findall("testcase/failure")[0].get("message"))


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = report_page([result(), refused()])
    markup = Markup(page)
    assert markup.tags.count("section") == 2
    assert markup.tags.count("svg") == 1
    assert not {"script", "link", "img", "iframe"} & set(markup.tags)
    assert not {"href", "src", "onerror", "onload"} & {name for name, _ in markup.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_what_comes_from_outside_is_only_text() -> None:
    page = report_page([result(spoiled=HOSTILE, problem=HOSTILE), refused(HOSTILE)])
    tags = Markup(page).tags
    assert "img" not in tags
    assert "script" not in tags
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert page.count("&lt;/script&gt;") >= 3


def test_the_picture_has_the_fault_and_the_pause_where_they_were() -> None:
    page = report_page([result()])
    fault = re.search(r'<rect class="fault" x="([\d.]+)" y="40" width="([\d.]+)"', page)
    curve = re.search(r'class="pauses" d="M(\S+) (\S+?)H(\S+?)Z"', page)
    assert fault is not None
    assert curve is not None
    left, width = float(fault[1]), float(fault[2])
    steps = [(float(x), float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", page)]
    highest = min(steps, key=lambda step: step[1])
    assert left - 12 <= highest[0] <= left + width
    assert '<rect class="recovery"' in page


def test_a_silence_is_as_wide_as_it_lasted() -> None:
    columns = silences_ms([0.0, 1.0, 1.1, 3.0, 4.0], 0.0, 4.0, 8)
    assert columns == pytest.approx([1000.0, 1000.0, 1900.0, 1900.0, 1900.0, 1900.0, 1900.0, 1000.0])
    assert silences_ms([], 0.0, 2.0, 2) == [2000.0, 2000.0]


def test_metrics_go_on_from_the_file_that_is_there() -> None:
    first = report_metrics([result(), refused(), result(problem="x")])
    second = report_metrics([result(problem="x")], first)
    values = {
        (sample.name, sample.labels["drill"]): sample.value
        for family in text_string_to_metric_families(second)
        for sample in family.samples
    }
    assert values["lmerge_drill_failed_total", NAME] == 2.0
    assert values["lmerge_drill_refused_total", "kill-server"] == 1.0
    assert values["lmerge_drill_last_success_timestamp_seconds", NAME] == 1_700_000_012.0
    assert values["lmerge_drill_last_run_timestamp_seconds", "kill-server"] == 1_700_000_101.0
    assert ("lmerge_drill_last_success_timestamp_seconds", "kill-server") not in values
    assert report_metrics([], "not a metric\n" + second) == second


def test_files_are_checked_before_and_replaced_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its folder must be there"):
        ReportFiles(html=tmp_path / "none" / "page.html").check()
    with pytest.raises(UsageError, match="its folder must be there"):
        ReportFiles(junit=tmp_path).check()
    reports = ReportFiles(tmp_path / "page.html", tmp_path / "junit.xml", tmp_path / "drill.prom")
    reports.check()
    reports.write([result()])
    reports.write([result()])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drill.prom", "junit.xml", "page.html"]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
