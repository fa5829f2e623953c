"""The report of drills as JUnit's XML, for CI: a test case for each drill.

A drill that failed is a failure. One that was refused is an error, because nothing was tried: it must not pass as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lmerge.wire.shown import escaped
from lmerge_controller.drill.report.as_json import moment
from lmerge_controller.drill.report.result import DrillResult, DrillStatus
from lmerge_controller.drill.report.text import result_text

SUITE: Final = "lmerge drill"
_TAGS: Final = {DrillStatus.FAILED: "failure", DrillStatus.REFUSED: "error"}


def report_junit(results: Sequence[DrillResult]) -> str:
    """Return the report as XML."""
    counts = {status: sum(result.status is status for result in results) for status in DrillStatus}
    suite = Element(
        "testsuite",
        name=SUITE,
        tests=str(len(results)),
        failures=str(counts[DrillStatus.FAILED]),
        errors=str(counts[DrillStatus.REFUSED]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    if results:
        suite.set("timestamp", moment(results[0].began_at))
    for result in results:
        case = SubElement(
            suite, "testcase", name=result.scenario.name, classname=SUITE, time=f"{max(result.seconds, 0.0):.3f}"
        )
        if result.status in _TAGS:
            problem = SubElement(case, _TAGS[result.status], message=escaped("; ".join(result.reasons)))
            problem.text = escaped(result_text(result))
        SubElement(case, "system-out").text = escaped(result_text(result))
    indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suite, encoding="unicode") + "\n"
