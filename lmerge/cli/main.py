"""``lmerge``: the command line. A command's module is loaded when it runs, so that ``replay`` does not load gRPC.

Which commands there are: ``command_table``.

Exit codes: 0 done, or the reader of the output has gone; 1 it could not be done now (server gone, port taken, disk
full, check failed); 2 a usage error or malformed input; 130 interrupted.
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

from lmerge import __version__, terminal
from lmerge.cli.command_table import commands, find
from lmerge.errors import LmergeError, UsageError

UNAVAILABLE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


class LazyGroup(TyperGroup):
    """Loads a command's module when the command is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = find(cmd_name)
        if found is None:
            return None
        panel, module, function = found
        command = getattr(import_module(module), function)
        if isinstance(command, typer.Typer):
            loaded: Any = typer.main.get_group(command)  # get_command would add options for shell completion
        else:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            single.command(name=cmd_name)(_interruptible(command))
            loaded = typer.main.get_command(single)
        loaded.name = cmd_name  # a group of its own has none, and the help would show an empty name
        loaded.rich_help_panel = panel
        return loaded


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_set: bool) -> None:
    if is_set:
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
    """Run a command; turn an error into one line and an exit code. The entry point."""
    arguments = sys.argv[1:] if arguments is None else arguments
    terminal.prepare()
    try:
        sys.exit(_run(arguments))
    except LmergeError as error:
        if "--debug" in arguments:
            raise
        terminal.error(f"lmerge: {error}")
        code = USAGE if isinstance(error, UsageError) else UNAVAILABLE
    except BrokenPipeError:  # the reader of the output has gone
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
    """Run a command and flush what it has printed. Return its exit code."""
    try:
        app(arguments, prog_name="lmerge")
    except SystemExit as ended:
        if ended.code not in (0, None):
            with suppress(LmergeError, OSError):  # the command has failed already, and printed why
                terminal.settle()
            return ended.code
    terminal.settle()
    return 0


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command``, which Ctrl-C then ends without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    return run
