"""The commands by name: those of lmerge, and those that installed packages declare. Called by ``cli.main``.

A package declares a command as an entry point of the group ``lmerge.commands``. Its value is the function that typer
calls, or a ``typer.Typer`` for a group of commands::

    [project.entry-points."lmerge.commands"]
    up = "lmerge_controller.local.commands:up"

So the command line does not import the controller, which is above it, and shows the commands of any package that is
installed beside it. A command's module is imported when the command runs.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

GROUP: Final = "lmerge.commands"
# The panel of commands of other packages.
INSTALLED_PANEL: Final = "operate"

# Panel of the help -> name -> (module, function), in the order of the help.
PANELS: Final = {
    "serve": {
        "serve": ("lmerge.cli.serve", "serve"),
        "relay": ("lmerge.cli.relay", "relay"),
        "replica": ("lmerge.cli.replica", "app"),
        "demo": ("lmerge.cli.demo", "demo"),
    },
    "data": {
        "publish": ("lmerge.cli.publish", "publish"),
        "subscribe": ("lmerge.cli.subscribe", "subscribe"),
        "tail": ("lmerge.cli.subscribe", "subscribe"),
        "query": ("lmerge.cli.query", "query"),
        "sink": ("lmerge.cli.sink", "app"),
        "checkpoint": ("lmerge.cli.checkpoint", "checkpoint"),
        "jumpstart": ("lmerge.cli.jumpstart", "jumpstart"),
    },
    "operate": {
        "status": ("lmerge.cli.status", "status"),
        "top": ("lmerge.cli.top", "top"),
        "certify": ("lmerge.cli.certify", "certify"),
        "cutover": ("lmerge.cli.cutover", "cutover"),
        "detach": ("lmerge.cli.detach", "detach"),
        "release": ("lmerge.cli.detach", "release"),
        "reset": ("lmerge.cli.reset", "reset"),
        "drain": ("lmerge.cli.drain", "drain"),
        "token": ("lmerge.cli.token", "app"),
    },
    "develop": {
        "replay": ("lmerge.cli.replay", "replay"),
        "tdb": ("lmerge.cli.tdb", "tdb"),
        "test": ("lmerge.cli.testing", "check_queries"),
        "verify": ("lmerge.cli.verify", "verify"),
        "module": ("lmerge.cli.module", "app"),
        "info": ("lmerge.cli.info", "info"),
    },
}


def panels() -> dict[str, dict[str, tuple[str, str]]]:
    """Return panel of the help -> name -> (module, function), with the installed commands, in the order of the help."""
    table = {panel: dict(commands) for panel, commands in PANELS.items()}
    own = {name for commands in PANELS.values() for name in commands}
    for found in sorted(entry_points(group=GROUP), key=lambda found: found.name):
        if found.name not in own:
            table[INSTALLED_PANEL][found.name] = found.module, found.attr
    return table


def commands() -> dict[str, tuple[str, str]]:
    """Return name -> (module, function) of every command, in the order of the help."""
    return {name: found for table in panels().values() for name, found in table.items()}


def find(name: str) -> tuple[str, str, str] | None:
    """Return the panel, module and function of a command, or None. Looks for installed ones only if it must."""
    for panel, table in PANELS.items():
        if name in table:
            return panel, *table[name]
    for found in entry_points(group=GROUP, name=name):
        return INSTALLED_PANEL, found.module, found.attr
    return None
