"""``lmerge drill``: break things on purpose beside a known stream, and give a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from lmerge import terminal
from lmerge.cli.connection import secured
from lmerge.client.connection.streams import parse_targets
from lmerge.errors import UsageError
from lmerge_controller.drill.journal import default_folder, left_over
from lmerge_controller.drill.observe import merges_of
from lmerge_controller.drill.probe.fleet import MERGE
from lmerge_controller.drill.report.as_json import report_json
from lmerge_controller.drill.report.report_files import ReportFiles
from lmerge_controller.drill.report.result import FAILED_CODE, DrillResult, exit_code
from lmerge_controller.drill.report.text import result_text, summary_text
from lmerge_controller.drill.run import SANDBOX_ABILITIES
from lmerge_controller.drill.scenario import DrillScenario
from lmerge_controller.drill.scenario_file import builtin_scenarios, scenarios_of_file
from lmerge_controller.drill.session import (
    Report,
    TargetMaker,
    described_maker,
    drill_once,
    sandbox_maker,
    servers_maker,
)
from lmerge_controller.drill.targets.described import target_of_file
from lmerge_controller.drill.undo import undo_all

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Break things on purpose beside a known stream, and give a verdict.",
)

ScenarioFile = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="Scenarios of your own instead of those of lmerge.")
]
ReportFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report in this form.")]


@app.command("list")
def list_scenarios(
    file: ScenarioFile = None, as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False
) -> None:
    """List the scenarios: what they break, and what they need.

    Example: lmerge drill list
    """
    found = _scenarios(file)
    if as_json:
        terminal.json_lines(json.dumps({name: _described(scenario) for name, scenario in found.items()}) + "\n")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("drill", "needs", "what"):
        table.add_column(title, no_wrap=title == "drill")
    for scenario in found.values():
        table.add_row(scenario.name, _needs_text(scenario), scenario.summary)
    terminal.table(terminal.console(), table)


@app.command("run")
@secured
def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Scenarios; without any, all that can run.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", "-s", metavar="HOST:PORT,...", help="Servers that run; without, a sandbox is made."),
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Servers that run, and the commands that break them: YAML.")
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="MERGE", help="Refuse faults that this merge would not survive; by default all merges."),
    ] = None,
    file: ScenarioFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1.0, help="End each drill after so long; it has failed then.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
    html: ReportFile = None,
    junit: ReportFile = None,
    textfile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Metrics for node_exporter's textfile collector; earlier counts go on."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep recordings and logs here, a folder for each drill.")
    ] = None,
    *,
    security: Any,
) -> None:
    """Run drills, one after the other, and report.

    Example: lmerge drill run kill-winner kill-server

    Exit code 0: all passed; 1: one failed; 2: one was refused, as its loss would not be survived.
    """
    is_sandbox = server is None and target is None
    chosen = [_limited(scenario, time_limit) for scenario in _chosen(names, file, is_sandbox=is_sandbox)]
    written = ReportFiles(html, junit, textfile)
    written.check()
    make, protected = _target(_Aim(server, target), protect, security)
    if dry_run:
        for scenario in chosen:
            terminal.lines(_plan_text(scenario))
        return
    _undo_left_over()
    results = _results(
        chosen, lambda one, report: drill_once(one, make, report, protected=protected, keep=keep), as_json
    )
    written.write(results)
    if as_json:
        terminal.json_lines(report_json(results))
    else:
        terminal.lines(summary_text(results))
    raise typer.Exit(exit_code(results))


@app.command("undo")
def undo() -> None:
    """Undo what drills have left broken that were killed.

    Example: lmerge drill undo

    Exit code 1: something could not be undone; it stays in the journal.
    """
    if _undo_left_over():
        raise typer.Exit(FAILED_CODE)


def _chosen(names: list[str] | None, file: Path | None, *, is_sandbox: bool) -> list[DrillScenario]:
    """Return the scenarios by name; without names all of them, in a sandbox those that it can run."""
    found = _scenarios(file)
    unknown = [name for name in names or [] if name not in found]
    if unknown:
        raise UsageError(f"no drill is named {unknown[0]!r}; there are: {', '.join(found)}")
    if names:
        return [found[name] for name in names]
    return [one for one in found.values() if not is_sandbox or SANDBOX_ABILITIES.issuperset(one.abilities)]


def _scenarios(file: Path | None) -> dict[str, DrillScenario]:
    return builtin_scenarios() if file is None else scenarios_of_file(file)


def _undo_left_over() -> int:
    """Undo what interrupted drills have left. Return how many things could not be undone."""
    failed = 0
    for journal in left_over(default_folder()):
        failures = undo_all(journal, lambda text: terminal.error(f"undone: {text}"))
        for failure in failures:
            terminal.error(f"lmerge: {failure}; it stays in {journal.path}")
        failed += len(failures)
    return failed


def _limited(scenario: DrillScenario, seconds: float | None) -> DrillScenario:
    return scenario if seconds is None else replace(scenario, time_limit_s=seconds)


class _Aim(NamedTuple):
    """The options that choose the target; at most one is given."""

    server: str | None
    target: Path | None


def _target(aim: _Aim, protect: list[str] | None, security: Any) -> tuple[TargetMaker, list[str]]:
    """Return what makes the target, and the merges of users that no fault may interrupt."""
    if sum(value is not None for value in (aim.server, aim.target)) > 1:
        raise UsageError("--server and --target exclude each other: a drill has one target")
    if aim.server is not None:
        addresses = list(parse_targets(aim.server))
        make = servers_maker(addresses, security)
    elif aim.target is not None:
        description = target_of_file(aim.target)
        addresses, make = list(description.servers), described_maker(description, security)
    else:
        return sandbox_maker, []
    others = [name for name in merges_of(addresses, security=security) if name != MERGE]
    return make, list(protect or others)


def _results(
    chosen: list[DrillScenario], run_one: Callable[[DrillScenario, Report], DrillResult], as_json: bool
) -> list[DrillResult]:
    """Run the drills, and print each result as it comes."""
    results = []
    try:
        for scenario in chosen:
            if as_json:
                results.append(run_one(scenario, _quiet))
                continue
            terminal.line_at_once(f"RUNNING  {scenario.name}")
            results.append(run_one(scenario, _progress))
            terminal.lines(result_text(results[-1]))
            terminal.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    return results


def _plan_text(scenario: DrillScenario) -> str:
    lines = [f"{scenario.name}: {scenario.summary}", f"  needs {_needs_text(scenario)}"]
    lines += [f"  after {step.after_s:g} s of whole redundancy: {step.text}" for step in scenario.steps]
    servers = scenario.needs.servers
    lines.append(f"  takes {scenario.planned_s(servers):g} s and recovery, at most {scenario.limit_s(servers):g} s")
    return "".join(f"{line}\n" for line in lines)


def _needs_text(scenario: DrillScenario) -> str:
    needs = scenario.needs
    parts = [f"{needs.replicas} replicas", f"{needs.servers} server{'s' if needs.servers > 1 else ''}"]
    parts += ["a store"] * needs.durable + ["comparison by majority"] * needs.compared
    kinds = sorted({ability.rpartition(" ")[2] for ability in scenario.abilities} & {"node", "api-server"})
    parts += ["a query of lmerge up"] * any(ability.endswith(" input") for ability in scenario.abilities)
    return ", ".join([*parts, *(["Kubernetes"] if kinds else [])])


def _described(scenario: DrillScenario) -> dict[str, Any]:
    needs = scenario.needs
    return {
        "summary": scenario.summary,
        "needs": {
            "replicas": needs.replicas,
            "servers": needs.servers,
            "durable": needs.durable,
            "compared": needs.compared,
        },
        "abilities": list(scenario.abilities),
        "steps": [step.text for step in scenario.steps],
    }


def _progress(text: str) -> None:
    terminal.line_at_once(f"         {text}")


def _quiet(text: str) -> None:
    """Print nothing: standard output is for the report."""
