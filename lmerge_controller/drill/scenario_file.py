"""Reads scenarios from YAML: those that come with lmerge, and a user's own file.

Called by the command ``drill``. Files are checked against ``scenario.schema.json``. An error names the scenario and the
field, and nothing is run.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge_controller.drill.judging.verdict import DrillLimits
from lmerge_controller.drill.scenario import DrillNeeds, DrillScenario, DrillStep, FaultKind, StepVictim, VictimKind

SCHEMA: Final = "scenario.schema.json"
BUILTIN: Final = "scenarios.yaml"
# A file of scenarios is a few kilobytes. A larger one is another file, named by mistake.
FILE_BYTES_MAX: Final = 1_000_000


@cache
def builtin_scenarios() -> dict[str, DrillScenario]:
    """Return the scenarios that come with lmerge, by name, in the order of the list."""
    return read_scenarios(files(__package__).joinpath(BUILTIN).read_text(), BUILTIN)


def scenarios_of_file(path: Path) -> dict[str, DrillScenario]:
    """Return the scenarios of a user's file. Raises UsageError if it cannot be read or breaks the schema."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {FILE_BYTES_MAX:,} bytes; it is no file of scenarios")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"cannot read the scenarios in {path}: {problem}") from None
    return read_scenarios(text, str(path))


def read_scenarios(text: str, source: str) -> dict[str, DrillScenario]:
    """Return the scenarios of a YAML text. ``source`` names it in errors. Raises UsageError."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise UsageError(f"{source} is no YAML: {' '.join(str(problem).split())}") from None
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply") from None
    _check(content, source)
    found: dict[str, DrillScenario] = {}
    for item in content["scenarios"]:
        scenario = _scenario(item)
        if scenario.name in found:
            raise UsageError(f"{source}: two scenarios are named {scenario.name!r}")
        _check_relations(scenario, source)
        found[scenario.name] = scenario
    return found


def _check(content: object, source: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = json.loads(files(__package__).joinpath(SCHEMA).read_text())
    problem = best_match(Draft202012Validator(schema).iter_errors(content))
    if problem is not None:
        raise UsageError(f"{source}, {_place(content, list(problem.absolute_path))}: {problem.message:.300}")


def _place(content: Any, path: list[Any]) -> str:
    """Return where a problem is: the name of the scenario instead of its number."""
    if len(path) < 2 or path[0] != "scenarios":
        return "the file" if not path else ".".join(map(str, path))
    item = content["scenarios"][path[1]]
    name = item.get("name", path[1] + 1) if isinstance(item, dict) else path[1] + 1
    rest = ".".join(str(part + 1) if isinstance(part, int) else part for part in path[2:])
    return f"scenario {name}" + (f", {rest}" if rest else "")


def _scenario(item: dict[str, Any]) -> DrillScenario:
    needs, limits = item.get("needs", {}), item.get("limits", {})
    return DrillScenario(
        item["name"],
        item["summary"],
        tuple(_step(step) for step in item["steps"]),
        DrillNeeds(**needs),
        DrillLimits(limits.get("pauseMs"), limits.get("stallMs"), limits.get("recoverySeconds")),
        item.get("eventsPerSecond", 500),
        item.get("timeLimitSeconds"),
    )


def _step(item: dict[str, Any]) -> DrillStep:
    ((kind, which),) = item["victim"].items()
    known = {"fault", "victim", "after", "hold", "repeat"}
    return DrillStep(
        FaultKind(item["fault"]),
        StepVictim(VictimKind(kind), which),
        float(item.get("after", 1.0)),
        float(item.get("hold", 1.0)),
        item.get("repeat", 1),
        {name: value for name, value in item.items() if name not in known},
    )


def _check_relations(scenario: DrillScenario, source: str) -> None:
    """Raise UsageError where a scenario needs less than its own steps break."""
    needs = scenario.needs
    for number, step in enumerate(scenario.steps, 1):
        kind, which = step.victim.kind, step.victim.which
        least = {VictimKind.REPLICA: needs.replicas, VictimKind.SERVER: needs.servers}.get(kind)
        where = f"{source}, scenario {scenario.name}, step {number} ({step.text})"
        if least is not None and least < 2:
            raise UsageError(f"{where}: needs.{kind.value}s is {least}, and nothing is left when one is broken")
        if least is not None and isinstance(which, int) and which > least:
            raise UsageError(f"{where}: needs.{kind.value}s is {least}, so there may be no {kind.value} {which}")
        if step.fault is FaultKind.LIE and not (needs.compared and needs.replicas >= 3):
            raise UsageError(f"{where}: a lie is found out by two others: needs.compared, needs.replicas 3")
        if step.fault is FaultKind.FILL_DISK and not needs.durable:
            raise UsageError(f"{where}: a server without a store has no disk to fill: needs.durable")
