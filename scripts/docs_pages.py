"""Makes the pages of the documentation site that are not files in docs/. A hook of MkDocs: see mkdocs.yml.

==========================  ==========================================================================================
page                        source
==========================  ==========================================================================================
``index.md``                README.md, with links as the site needs them
``architecture.md``         ARCHITECTURE.md, likewise; ``contributing.md`` and ``changes.md``
``reference/commands.md``   the functions of the commands, with their annotations for typer
``reference/settings.md``   the fields of ``Settings``, with the comments above them
``reference/metrics.md``    the metric families that a server exports
``reference/errors.md``     the error tree, with gRPC status and exit code of each error
``reference/protocol.md``   proto/lmerge/v1/lmerge.proto
``results/*.png``           the plots of bench/results that pages of docs/ show
==========================  ==========================================================================================

So nothing in them is written twice, and a page cannot be older than the code.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

ROOT: Final = Path(__file__).resolve().parent.parent
MOVED: Final = {  # files of the root -> pages
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
RESULTS: Final = "../bench/results/"  # as a page of docs/ names it
COMMANDS: Final = """# Commands

The text of `lmerge COMMAND --help`, for all commands. `lmerge --version` prints the version, and
`lmerge --debug COMMAND` shows a traceback with an error. Options that reach a server can also stand in the environment
([security](../security.md)). Exit codes: [limits and names](../limits-and-names.md#exit-codes).
"""
SETTINGS: Final = """# Settings and limits

All that can be set in a server, with the reason for each default. `lmerge serve --help` lists those that have an
option; a program sets them as fields of `lmerge.service.settings.Settings`. A server is restarted to change them. Sizes
are in bytes, names that end with `_s` in seconds.
"""
METRICS: Final = """# Metrics

`http://HOST:HTTP_PORT/metrics` exports these families to Prometheus. Times are in the unit of the merge, unless the
name ends with `_seconds`. Series of an input end when it detaches, and start at 0 with its next incarnation.
"""
ERRORS: Final = """# Errors

All errors that lmerge raises on purpose are in `lmerge.errors`, in one tree. An indented error is a kind of the one
above it. There are three branches: an input broke a promise (`InputViolation`), the caller made a mistake
(`UsageError`), or another attempt can succeed (`Unavailable`). The status is what a server answers with, the exit code
is that of a command.
"""
PROTOCOL: Final = """# The protocol document

`proto/lmerge/v1/lmerge.proto`. A shorter text: [the wire](../wire.md).
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of docs/. Called by MkDocs."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    for plot in plots():
        files.append(File.generated(config, f"results/{plot.name}", content=plot.read_bytes()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let a page show the plots where the site has them. Called by MkDocs."""
    return markdown.replace(f"]({RESULTS}", "](results/")


def plots() -> list[Path]:
    """The plots that pages of docs/ show."""
    shown = re.compile(rf"\]\({re.escape(RESULTS)}([\w-]+\.png)\)")
    names = {name for page in (ROOT / "docs").glob("*.md") for name in shown.findall(page.read_text())}
    return [ROOT / "bench" / "results" / name for name in sorted(names)]


def pages() -> dict[str, str]:
    """Name of each page -> its Markdown."""
    return {
        **{page: moved((ROOT / name).read_text()) for name, page in MOVED.items()},
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/metrics.md": metrics_page(),
        "reference/errors.md": errors_page(),
        "reference/protocol.md": protocol_page(),
    }


def moved(text: str) -> str:
    """The text of a file of the root, with links relative to docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page in MOVED.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. Cells may hold bars and line ends."""
    lines = [list(head), *([cell(text) for text in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text as it can stand in a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


# Commands.


def commands_page() -> str:
    """Every command of ``lmerge``, in the order of its help."""
    return COMMANDS + "\n" + "\n".join(section(name, command) for name, command in commands())


def commands() -> Iterator[tuple[str, Any]]:
    """Name and function of each command; a group comes before its commands, as an application."""
    from typer import Typer

    from lmerge.cli import command_table

    for name, (module, function, *_) in command_table.commands().items():
        command = getattr(import_module(module), function)
        yield name, command
        for own in command.registered_commands if isinstance(command, Typer) else ():
            shown = own.name or getattr(own.callback, "__name__", "").replace("_", "-")
            yield f"{name} {shown}", own.callback


def section(name: str, command: Any) -> str:
    """What a command does, and its parameters. They are those that typer reads: ``Annotated`` with its own values."""
    from typer.models import ArgumentInfo, OptionInfo

    if not inspect.isfunction(command):
        return f"## lmerge {name}\n\nA group: see the commands below.\n"
    arguments, options = [], []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *notes = get_args(parameter.annotation) or (Any,)
        for info in notes:
            if isinstance(info, ArgumentInfo):
                arguments.append((info.metavar or parameter.name.upper(), info.help or ""))
            elif isinstance(info, OptionInfo) and not info.hidden:
                options.append(option_row(parameter, kind, info))
    usage = ["lmerge", name, *(["[OPTIONS]"] if options else []), *(metavar for metavar, _ in arguments)]
    parts = [f"## lmerge {name}\n", paragraphs(inspect.getdoc(command) or ""), f"```text\n{' '.join(usage)}\n```\n"]
    if arguments:
        parts.append(table(("argument", ""), ((f"`{metavar}`", text) for metavar, text in arguments)))
    if options:
        parts.append(table(("option", "", "default"), options))
    return "\n".join(parts)


def paragraphs(text: str) -> str:
    """Help as Markdown: an example is code."""
    shown = re.sub(r"^Example: (.*)$", r"```sh\n\1\n```", text.replace("\b", ""), flags=re.MULTILINE)
    return re.sub(r"``(?!`)([^`\n]+)``(?!`)", r"`\1`", shown) + "\n"


def option_row(parameter: inspect.Parameter, kind: Any, info: Any) -> tuple[str, str, str]:
    """Names and value of an option, what it does, what holds without it."""
    declared = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str) and name[:1] == "-"]
    names = declared or [f"--{parameter.name.replace('_', '-')}"]  # typer keeps the first one as a default
    is_flag = kind is bool
    value = "" if is_flag else f" `{info.metavar or value_name(kind)}`"
    environment = f" (environment: `{info.envvar}`)" if info.envvar else ""
    default = parameter.default
    is_shown = not is_flag and default not in (None, inspect.Parameter.empty, ())
    shown = f"`{getattr(default, 'value', default)}`" if is_shown else ""
    return ", ".join(f"`{name}`" for name in names) + value, (info.help or "") + environment, shown


def value_name(kind: Any) -> str:
    """What stands for a value of this type."""
    kinds = [one for one in get_args(kind) if one is not type(None)]
    if kinds:
        return value_name(kinds[0])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{{{','.join(str(one.value) for one in kind)}}}"
    return {int: "INTEGER", float: "FLOAT", Path: "PATH"}.get(kind, "TEXT")


# Settings.


def settings_page() -> str:
    """Every field of ``Settings``, with the reason for its default."""
    from lmerge.service import settings

    source = inspect.getsource(settings)
    reasons = dict(comments(source, "Settings"))
    rows = []
    for field in fields(settings.Settings):
        default = number(field.default)
        rows.append((f"`{field.name}`", f"`{default}`", reasons[field.name]))
    return SETTINGS + "\n" + table(("field", "default", "meaning, and the reason for the default"), rows)


def number(value: object) -> object:
    """A default as people read it."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else value


def comments(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Each annotated field of a class, with the comment lines right above it."""
    lines = source.splitlines()
    found = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = node.lineno - 1
            while lines[above - 1].lstrip().startswith("#"):
                above -= 1
            text = " ".join(line.strip().removeprefix("#").strip() for line in lines[above : node.lineno - 1])
            yield node.target.id, text


# Metrics.


def metrics_page() -> str:
    """Every metric of a server."""
    from lmerge.service.server import Server
    from lmerge.service.settings import Settings

    async def collected() -> list[Any]:
        server = Server(Settings(port=0, http_port=None, merges=("m",)))
        await server.start()
        families = list(server.metrics.collect())
        await server.stop(0.0)
        return families

    rows = []
    for family in asyncio.run(collected()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        rows.append((f"`{name}`", family.type, labels, family.documentation))
    return METRICS + "\n" + table(("metric", "type", "labels", "meaning"), rows)


# Errors.


def errors_page() -> str:
    """Every error, in the order of the tree."""
    import lmerge.errors
    from lmerge.errors import LmergeError, UsageError
    from lmerge.service.status_codes import code_of

    kinds = [kind for kind in vars(lmerge.errors).values() if isinstance(kind, type)]
    rows = []
    for kind in kinds:
        depth = kind.__mro__.index(LmergeError)
        code = "" if kind is LmergeError else f"`{code_of(Exception.__new__(kind)).name}`"
        exit_code = "2" if issubclass(kind, UsageError) else "1"
        first = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
        rows.append((f"{'&emsp;' * depth}`{kind.__name__}`", code, exit_code, first))
    return ERRORS + "\n" + table(("error", "gRPC status", "exit code", "meaning"), rows)


# The wire.


def protocol_page() -> str:
    """The protocol document, as it is."""
    proto = (ROOT / "proto" / "lmerge" / "v1" / "lmerge.proto").read_text()
    return f"{PROTOCOL}\n```proto\n{proto}```\n"
