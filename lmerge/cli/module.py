"""``lmerge module``: the modules that plans can call by name: functions, aggregates and operators of packages."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from lmerge import terminal

app = typer.Typer(no_args_is_help=True, help="List and describe the modules that plans can call by name.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_modules(as_json: AsJson = False) -> None:
    """List the modules that installed packages declare, each with its kind and a summary."""
    from lmerge.temporal.modules.registry import MODULES

    found = [MODULES.describe(name) for name in MODULES.names()]
    if as_json:
        terminal.json_lines("".join(json.dumps(asdict(one)) + "\n" for one in found))
        return
    for one in found:
        terminal.line(f"{one.name:<20} {one.kind:<36} {one.summary}")
    if not found:
        terminal.line("no installed package declares a module (entry points of the group lmerge.modules)")


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name by which plans call it.")],
    as_json: AsJson = False,
) -> None:
    """Describe a module: its kind, parameters, columns, and what it declares of itself."""
    from lmerge.temporal.modules.registry import MODULES

    found = MODULES.describe(name)
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
