"""``lmerge module``: the modules that plans can call by name: functions, aggregates and operators of packages."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer

from lmerge import terminal

app = typer.Typer(no_args_is_help=True, help="List and describe the modules that plans can call by name.")

# As for any other error of what the caller has given: see ``lmerge.cli.main``.
PROBLEM: Final = 2

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_modules(as_json: AsJson = False) -> None:
    """List what installed packages declare for plans: functions, aggregates and operators, each with its kind.

    The modules are imported for that. One that cannot be listed is a line on standard error, and exit code 2.
    """
    from lmerge.temporal.errors import PlanError
    from lmerge.temporal.modules.describing import describe as described
    from lmerge.temporal.modules.registry import MODULES

    names, has_problem = MODULES.names(), False
    for name in names:
        try:
            found = described(name)
        except PlanError as problem:
            terminal.error(f"lmerge: {problem}")
            has_problem = True
            continue
        if as_json:
            terminal.json_lines(json.dumps(asdict(found)) + "\n")
        else:
            terminal.line(f"{found.name:<20} {found.kind:<36} {found.summary}")
    if not names and not as_json:
        terminal.line("no installed package declares a module (entry points of the group lmerge.modules)")
    if has_problem:
        raise typer.Exit(PROBLEM)


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name by which plans call it.")],
    as_json: AsJson = False,
) -> None:
    """Describe a module: its kind, parameters, columns, and what it declares of itself."""
    from lmerge.temporal.modules.describing import describe as described

    found = described(name)
    if as_json:
        terminal.json_lines(json.dumps(asdict(found)) + "\n")
        return
    terminal.line(f"{found.name}, version {found.version}: {found.kind}")
    if found.summary:
        terminal.line(f"    {found.summary}")
    terminal.line(f"    inputs      {found.inputs}")
    terminal.line(f"    results     {found.results}")
    for parameter in found.parameters:
        default = "must be given" if parameter.default is None else f"default {parameter.default}"
        terminal.line(f"    parameter   {parameter.name}: {parameter.type}, {default}")
    terminal.line(f"    declares    {', '.join(found.properties) or 'nothing'}")
    terminal.line(f"    comes from  {found.origin}")
