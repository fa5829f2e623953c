"""``lmerge drill``: break things on purpose beside a known stream, and give a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.table import Table

from lmerge import terminal
from lmerge.cli.connection import secured
from lmerge.client.connection.streams import parse_targets
from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.aim import IN_SANDBOX, AimedDrill, at_described, at_kube, at_local_query, at_servers
from lmerge_controller.drill.journal import default_folder, left_over
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.drill.options import (
    DrillNames,
    DryRun,
    JsonOption,
    KeptFolder,
    KubeconfigOption,
    KubeOption,
    NamespaceOption,
    ProtectedMerges,
    PushGateway,
    QueryOption,
    ReleaseOption,
    ReportFile,
    ScenarioFile,
    ServersOption,
    StateFolderOption,
    TargetFile,
    TextFile,
    TimeLimit,
    WatchedMerges,
)
from lmerge_controller.drill.report.as_json import report_json
from lmerge_controller.drill.report.report_files import ReportFiles
from lmerge_controller.drill.report.result import FAILED_CODE, DrillResult, exit_code
from lmerge_controller.drill.report.text import result_text, summary_text
from lmerge_controller.drill.scenario import DrillScenario
from lmerge_controller.drill.scenario_file import builtin_scenarios, scenarios_of_file
from lmerge_controller.drill.session import Report, drill_once
from lmerge_controller.drill.targets.described import target_of_file
from lmerge_controller.drill.undo import undo_all
from lmerge_controller.local.state_folder import StateFolder

INTERRUPTED = 130
DEFAULT_STATE: Final = Path(".lmerge")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Break things on purpose beside a known stream, and give a verdict.",
)


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
    names: DrillNames = None,
    server: ServersOption = None,
    target: TargetFile = None,
    query: QueryOption = None,
    state: StateFolderOption = DEFAULT_STATE,
    kube: KubeOption = False,
    namespace: NamespaceOption = "default",
    release: ReleaseOption = "lmerge",
    kubeconfig: KubeconfigOption = None,
    protect: ProtectedMerges = None,
    watch: WatchedMerges = None,
    file: ScenarioFile = None,
    dry_run: DryRun = False,
    time_limit: TimeLimit = None,
    as_json: JsonOption = False,
    html: ReportFile = None,
    junit: ReportFile = None,
    textfile: TextFile = None,
    pushgateway: PushGateway = None,
    keep: KeptFolder = None,
    *,
    security: Any,
) -> None:
    """Run drills, one after the other, and report.

    Example: lmerge drill run kill-winner kill-server

    Exit code 0: all passed; 1: one failed; 2: one was refused, as its loss would not be survived.
    """
    place = KubePlace(namespace, release, query or "", kubeconfig) if kube else None
    aimed = _aimed(_Aim(server, target, query, state), security, place)
    chosen = [_limited(scenario, time_limit) for scenario in _chosen(names, file, aimed)]
    written = ReportFiles(html, junit, textfile, pushgateway)
    written.check()
    protected = aimed.protected(protect)
    watched = list(dict.fromkeys([*aimed.watched, *(watch or [])]))
    if watched and not aimed.addresses:
        raise UsageError("--watch needs servers that run: a sandbox has no merge of yours")
    if dry_run:
        for scenario in chosen:
            terminal.lines(_plan_text(scenario))
        return
    _undo_left_over()
    results = _results(
        chosen,
        lambda one, report: drill_once(one, aimed.make, report, protected=protected, watched=watched, keep=keep),
        as_json,
    )
    if as_json:
        terminal.json_lines(report_json(results))
    else:
        terminal.lines(summary_text(results))
    terminal.flush()
    try:
        written.write(results)
    except Unavailable as problem:
        terminal.error(f"lmerge: {problem}")  # the verdict stands: the exit code is the drill's
    raise typer.Exit(exit_code(results))


@app.command("undo")
def undo() -> None:
    """Undo what drills have left broken that were killed.

    Example: lmerge drill undo

    Exit code 1: something could not be undone; it stays in the journal.
    """
    if _undo_left_over():
        raise typer.Exit(FAILED_CODE)


def _chosen(names: list[str] | None, file: Path | None, aimed: AimedDrill) -> list[DrillScenario]:
    """Return the scenarios by name; without names those that the target can run, as far as it is known before."""
    found = _scenarios(file)
    unknown = [name for name in names or [] if name not in found]
    if unknown:
        raise UsageError(f"no drill is named {unknown[0]!r}; there are: {', '.join(found)}")
    if names:
        return [found[name] for name in names]
    return [one for one in found.values() if aimed.can_run(one)]


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
    query: str | None
    state: Path


def _aimed(aim: _Aim, security: Any, place: KubePlace | None) -> AimedDrill:
    """Return where the drills take place. Raises UsageError."""
    if place is not None:
        if aim.target is not None:
            raise UsageError("--kube and --target exclude each other: a drill has one target")
        return at_kube(place, list(parse_targets(aim.server)) if aim.server else [], security)
    if sum(value is not None for value in (aim.server, aim.target, aim.query)) > 1:
        raise UsageError("--server, --target and --query exclude each other: a drill has one target")
    if aim.server is not None:
        return at_servers(list(parse_targets(aim.server)), security)
    if aim.target is not None:
        return at_described(target_of_file(aim.target), security)
    if aim.query is not None:
        return at_local_query(StateFolder(aim.state / aim.query), security)
    return IN_SANDBOX


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
