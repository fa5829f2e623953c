"""The report of drills as one page of HTML: self-contained, for people, in dark and light.

The page has no script and loads nothing. Everything from outside (names, reasons, payloads) is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Final

from lmerge import __version__
from lmerge.wire.shown import escaped_line
from lmerge_controller.drill.judging.verdict import DrillVerdict, FaultWindow
from lmerge_controller.drill.report.as_json import moment
from lmerge_controller.drill.report.result import DrillResult, DrillStatus
from lmerge_controller.drill.report.text import watched_lines
from lmerge_controller.drill.report.timeline import timeline_svg

STYLE: Final = "page.css"
_HEADLINES: Final = {
    DrillStatus.PASSED: "Every drill passed",
    DrillStatus.REFUSED: "Some drills were refused",
    DrillStatus.FAILED: "A drill failed",
}


def report_page(results: Sequence[DrillResult]) -> str:
    """Return the page. Its drills are in the order in which they ran."""
    worst = next(
        (status for status in (DrillStatus.FAILED, DrillStatus.REFUSED) if any(r.status is status for r in results)),
        DrillStatus.PASSED,
    )
    style = files(__package__).joinpath(STYLE).read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>lmerge drill: {_HEADLINES[worst]}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{_head(results, worst)}{''.join(map(_drill, results))}"
        f"<footer>lmerge {_text(__version__)}. {_LEGEND}</footer>\n</main>\n</body>\n</html>\n"
    )


_LEGEND: Final = (
    "The height of the curve is the length of the silence in which a moment lies. A fault is in force under the "
    "red band; under the amber one it is undone, and the redundancy is not whole yet."
)


def _head(results: Sequence[DrillResult], worst: DrillStatus) -> str:
    verdicts = [result.verdict for result in results if result.verdict is not None]
    faults = sum(len(verdict.windows) for verdict in verdicts)
    events = sum(verdict.findings.delivered for verdict in verdicts)
    wrong = {
        kind: sum(dict(verdict.findings.counts)[kind] for verdict in verdicts)
        for kind in ("lost", "duplicated", "contradictions")
    }
    largest = max((verdict.pauses.largest_ms for verdict in verdicts), default=0.0)
    passed = sum(result.status is DrillStatus.PASSED for result in results)
    figures = [
        (f"{passed} of {len(results)}", "drills passed", worst is not DrillStatus.PASSED),
        (f"{faults:,}", "faults", False),
        (f"{events:,}", "events delivered", False),
        *((f"{count:,}", name, bool(count)) for name, count in wrong.items()),
        (f"{largest:,.0f} ms", "longest pause", False),
    ]
    cells = "".join(
        f'<div class="figure{" bad" * is_bad}"><b>{value}</b><span>{_text(name)}</span></div>'
        for value, name, is_bad in figures
    )
    began = f" \N{MIDDLE DOT} {_text(moment(results[0].began_at))}" if results else ""
    targets = ", ".join(sorted({result.target for result in results}))
    return (
        f'<header><p class="over">lmerge drill{began}</p>\n<h1 class="{worst.value}">{_HEADLINES[worst]}</h1>\n'
        f'<p class="target">{_text(targets)}</p>\n<div class="figures">{cells}</div></header>\n'
    )


def _drill(result: DrillResult) -> str:
    name, status = _text(result.scenario.name), result.status.value
    parts = [
        f'<section aria-labelledby="{name}">',
        f'<h2 id="{name}"><span class="badge {status}">{status}</span> {name}</h2>',
        f'<p class="summary">{_text(result.scenario.summary)}</p>',
    ]
    if result.reasons:
        items = "".join(f"<li>{_text(reason)}</li>" for reason in result.reasons)
        parts.append(f'<ul class="reasons">{items}</ul>')
    if result.verdict is not None:
        parts += [f'<div class="chart">{timeline_svg(result)}</div>', _table(result.verdict), _counts(result.verdict)]
    for watched in result.watched:
        parts += [f'<p class="counts">{_text(line)}</p>' for line in watched_lines(watched)]
    return "\n".join([*parts, "</section>\n"])


def _table(verdict: DrillVerdict) -> str:
    titles = ("fault", "in force", "output paused", "stable point stood", "whole again after")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(_row(window) for window in verdict.windows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(window: FaultWindow) -> str:
    fault = window.fault
    name = f"{fault.what} {fault.victim}".replace("replica replica", "replica")
    back = "not seen" if window.recovery_s is None else f"{window.recovery_s:.1f} s"
    cells = (f"{fault.until_s - fault.at_s:.1f} s", f"{window.pause_ms:,.0f} ms", f"{window.stall_ms:,.0f} ms", back)
    problem = f'<div class="problem">{_text(fault.problem)}</div>' if fault.problem else ""
    return f'<tr><th scope="row">{_text(name)}{problem}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _counts(verdict: DrillVerdict) -> str:
    findings, pauses = verdict.findings, verdict.pauses
    wrong = ", ".join(f"{count:,} {kind}" for kind, count in findings.counts)
    lines = [
        f"{findings.delivered:,} of {findings.expected:,} events delivered; {wrong}; {verdict.gaps:,} gaps reported.",
        f"Before the first fault: pauses p99 {pauses.quiet_p99_ms:,.0f} ms, longest {pauses.quiet_largest_ms:,.0f} ms.",
    ]
    flaws = "".join(f"<li><b>{_text(flaw.kind)}</b> {_text(flaw.text)}</li>" for flaw in findings.flaws)
    listed = f'<ul class="flaws">{flaws}</ul>' if flaws else ""
    return "".join(f'<p class="counts">{line}</p>' for line in lines) + listed


def _text(text: str) -> str:
    return escape(escaped_line(text), quote=True)
