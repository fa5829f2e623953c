"""``lmerge``: the command line. Commands are loaded when they run, so that ``replay`` does not wait for gRPC.

Exit codes: 0 done, or whoever read the output has gone; 1 it could not be done now (server gone, port taken, disk full,
check failed); 2 a usage error or malformed input; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from lmerge import __version__
from lmerge.cli import terminal
from lmerge.errors import LmergeError, UsageError

UNAVAILABLE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

# name -> (module, function), in the order of the help.
COMMANDS: Final = {
    "demo": ("lmerge.cli.demo", "demo"),
    "serve": ("lmerge.cli.serve", "serve"),
    "publish": ("lmerge.cli.publish", "publish"),
    "subscribe": ("lmerge.cli.subscribe", "subscribe"),
    "tail": ("lmerge.cli.subscribe", "subscribe"),
    "query": ("lmerge.cli.query", "query"),
    "sink": ("lmerge.cli.sink", "app"),
    "status": ("lmerge.cli.status", "status"),
    "top": ("lmerge.cli.top", "top"),
    "certify": ("lmerge.cli.certify", "certify"),
    "cutover": ("lmerge.cli.cutover", "cutover"),
    "detach": ("lmerge.cli.detach", "detach"),
    "release": ("lmerge.cli.detach", "release"),
    "reset": ("lmerge.cli.reset", "reset"),
    "relay": ("lmerge.cli.relay", "relay"),
    "replica": ("lmerge.cli.replica", "app"),
    "checkpoint": ("lmerge.cli.checkpoint", "checkpoint"),
    "jumpstart": ("lmerge.cli.jumpstart", "jumpstart"),
    "replay": ("lmerge.cli.replay", "replay"),
    "tdb": ("lmerge.cli.tdb", "tdb"),
    "token": ("lmerge.cli.token", "app"),
    "info": ("lmerge.cli.info", "info"),
}


class LazyGroup(TyperGroup):
    """Loads a command's module when the command is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, function = COMMANDS[cmd_name]
        command = getattr(import_module(module), function)
        if isinstance(command, typer.Typer):  # a group of its own
            return typer.main.get_command(command)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name=cmd_name)(_interruptible(command))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyGroup, add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        terminal.line(f"lmerge {__version__}")
        raise typer.Exit


@app.callback()
def lmerge(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Merge N replicas of a continuous query into one stream that goes on as long as any replica lives."""
    ctx.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and turns errors into one line and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    terminal.prepare()
    try:
        sys.exit(_run(arguments))
    except LmergeError as error:
        if "--debug" in arguments:
            raise
        terminal.error(f"lmerge: {error}")
        code = USAGE if isinstance(error, UsageError) else UNAVAILABLE
    except BrokenPipeError:  # whoever read it has enough
        code = 0
    except OSError as problem:
        if "--debug" in arguments:
            raise
        where = f" {str(problem.filename)!r}" if problem.filename is not None else ""
        terminal.error(f"lmerge: the system refuses{where}: {problem.strerror or problem}")
        code = UNAVAILABLE
    terminal.give_up()
    sys.exit(code)


def _run(arguments: list[str]) -> Any:
    """Run a command, and hand on all that it has printed. Its exit code."""
    try:
        app(arguments, prog_name="lmerge")
    except SystemExit as ended:
        if ended.code not in (0, None):
            with suppress(LmergeError, OSError):  # the command has failed already, and said why
                terminal.settle()
            return ended.code
    terminal.settle()
    return 0


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C ends a command without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return run
