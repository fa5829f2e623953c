"""``lmerge drill``: break things on purpose beside a known stream, and give a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lmerge import terminal
from lmerge.cli.connection import secured
from lmerge.client.connection.streams import parse_targets
from lmerge.errors import UsageError
from lmerge_controller.drill.journal import UndoJournal, default_folder, left_over
from lmerge_controller.drill.observe import merges_of
from lmerge_controller.drill.probe.fleet import MERGE
from lmerge_controller.drill.report.result import FAILED_CODE, DrillResult, exit_code
from lmerge_controller.drill.report.text import result_text, summary_text
from lmerge_controller.drill.scenario import DrillScenario
from lmerge_controller.drill.scenario_file import builtin_scenarios, scenarios_of_file
from lmerge_controller.drill.session import TargetMaker, drill_once, sandbox_maker, servers_maker
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
    chosen = _chosen(names, file)
    make: TargetMaker = sandbox_maker
    protected: list[str] = []
    if server is not None:
        addresses = list(parse_targets(server))
        make = servers_maker(addresses, security)
        protected = list(protect or []) or [name for name in merges_of(addresses, security=security) if name != MERGE]
    if dry_run:
        for scenario in chosen:
            terminal.lines(_plan_text(scenario))
        return
    _undo_left_over()
    results = []
    try:
        for scenario in chosen:
            if not as_json:
                terminal.line_at_once(f"RUNNING  {scenario.name}")
            limited = scenario if time_limit is None else _limited(scenario, time_limit)
            report = _quiet if as_json else _progress
            results.append(drill_once(limited, make, report, protected=protected, keep=keep))
            if not as_json:
                terminal.lines(result_text(results[-1]))
                terminal.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    _report(results, as_json=as_json)
    raise typer.Exit(exit_code(results))


@app.command("undo")
def undo() -> None:
    """Undo what drills have left broken that were killed.

    Example: lmerge drill undo

    Exit code 1: something could not be undone; it stays in the journal.
    """
    if _undo_left_over():
        raise typer.Exit(FAILED_CODE)


def _chosen(names: list[str] | None, file: Path | None) -> list[DrillScenario]:
    found = _scenarios(file)
    unknown = [name for name in names or [] if name not in found]
    if unknown:
        raise UsageError(f"no drill is named {unknown[0]!r}; there are: {', '.join(found)}")
    return [found[name] for name in names] if names else list(found.values())


def _scenarios(file: Path | None) -> dict[str, DrillScenario]:
    return builtin_scenarios() if file is None else scenarios_of_file(file)


def _undo_left_over() -> int:
    """Undo what interrupted drills have left. Return how many things could not be undone."""
    failed = 0
    journals: list[UndoJournal] = []
    for journal in left_over(default_folder()):
        journals.append(journal)
        failures = undo_all(journal, lambda text: terminal.error(f"undone: {text}"))
        for failure in failures:
            terminal.error(f"lmerge: {failure}; it stays in {journal.path}")
        failed += len(failures)
    return failed


def _limited(scenario: DrillScenario, seconds: float) -> DrillScenario:
    from dataclasses import replace

    return replace(scenario, time_limit_s=seconds)


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


def _report(results: list[DrillResult], *, as_json: bool) -> None:
    if not as_json:
        terminal.lines(summary_text(results))


def _progress(text: str) -> None:
    terminal.line_at_once(f"         {text}")


def _quiet(text: str) -> None:
    """Print nothing: standard output is for the report."""
