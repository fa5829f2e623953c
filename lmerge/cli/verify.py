"""``lmerge verify``: judge recorded streams by the rules of lmerge.testing.validation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from lmerge import terminal
from lmerge.cli.lines import opened
from lmerge.core.elements import INF, NEG_INF, show_payload, show_time
from lmerge.core.properties import closure, parse_properties
from lmerge.core.session import format_event
from lmerge.errors import MalformedLine, UsageError

if TYPE_CHECKING:
    from lmerge.testing.validation.element_table import RecordedStream
    from lmerge.testing.validation.final_events import EventDifference, TableComparison
    from lmerge.testing.validation.report import EdgeShape, Fault, RecordedVerdict

EXTRA: Final = "testing"
# The differences are the result of the command, as in diff.
FOUND: Final = 1

ShapeName = Literal["interval", "point", "edge"]


def verify(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Streams or sessions, JSON lines; - for standard input.")
    ],
    input_name: Annotated[
        str | None, typer.Option("--input", metavar="NAME", help="Judge only this input of the sessions.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME", help="A property that every stream must keep; may be repeated."),
    ] = None,
    shape: Annotated[ShapeName, typer.Option(help="What the final events must be.")] = "interval",
    schema: Annotated[
        str | None, typer.Option(metavar="JSON", help="The schema of the payloads, for --shape edge.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of the key, for --shape edge; may be repeated.")
    ] = None,
    must_end: Annotated[bool, typer.Option("--must-end", help="Each input must end with stable(inf).")] = False,
    same_table: Annotated[
        bool, typer.Option("--same-table", help="All streams must mean the same table up to their common stable point.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line.")] = False,
) -> None:
    """Judge recorded streams: is each one legal, does it keep its promises, do all mean the same table.

    Example: lmerge verify replica1.jsonl replica2.jsonl --must-end --same-table

    A session has one stream for each attach, which promises what the attach declares. The stable law is exact: what
    happens at the stable point itself is allowed, one unit before it is not. Needs the extra 'testing'. Exit code 1: a
    stream breaks a rule, or two differ. Exit code 2: a malformed line, or options that cannot be.
    """
    from lmerge.client.extras import extra

    for module in ("pyarrow", "duckdb"):
        extra(module, EXTRA, "lmerge verify needs")
    from lmerge.testing.validation.final_events import compared
    from lmerge.testing.validation.report import validated

    terminal.utf8()
    twice = [file for file in files if files.count(file) > 1]
    if twice:
        raise UsageError(f"{_shown(twice[0])} is given twice")
    needed = _shape(shape, schema, key or [])
    promises = parse_properties(properties or [])
    streams = [stream for file in files for stream in _read(file, input_name, promises, several=len(files) > 1)]
    if same_table and len(streams) < 2:
        raise UsageError(f"--same-table compares streams, and there is only {streams[0].name!r}")
    verdicts = validated(streams, needed, must_end=must_end)
    comparisons = compared(streams) if same_table else []
    with terminal.until_closed():
        if as_json:
            terminal.json_lines(json.dumps(_as_json(verdicts, comparisons)) + "\n")
        else:
            _show(verdicts, comparisons)
    if not all(verdict.is_legal for verdict in verdicts) or any(comparison.count for comparison in comparisons):
        raise typer.Exit(FOUND)


def _shape(name: ShapeName, schema: str | None, key: list[str]) -> Literal["interval", "point"] | EdgeShape:
    from lmerge.testing.validation.report import EdgeShape
    from lmerge.wire.schema import parse_schema

    if name != "edge":
        if schema is not None or key:
            raise UsageError(f"--schema and --key are for --shape edge, and the shape is {name}")
        return name
    if schema is None or not key:
        raise UsageError("--shape edge needs --schema and --key, because edges follow each other by key")
    try:
        declared = json.loads(schema)
    except ValueError as problem:
        raise UsageError(f"--schema is not JSON: {problem}") from None
    return EdgeShape(parse_schema(declared), tuple(key))


def _read(file: str, input_name: str | None, promises: frozenset[str], *, several: bool) -> list[RecordedStream]:
    """Return the streams of a file, with the name of the file if there are several or the stream has none."""
    from dataclasses import replace

    from lmerge.testing.validation.recorded_lines import read_streams

    shown = _shown(file)
    with opened(file, "recorded stream") as source:
        try:
            found = read_streams(source, input_name)
        except MalformedLine as problem:
            raise MalformedLine(problem.line, f"{problem.problem} (in {shown})") from None
        except UsageError as problem:
            raise UsageError(f"{problem} (in {shown})") from None
    named = []
    for stream in found:
        name = shown if not stream.name else f"{shown}, input {stream.name}" if several else stream.name
        named.append(replace(stream, name=name, promises=closure(stream.promises | promises)))
    return named


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file


# Output.


def _show(verdicts: list[RecordedVerdict], comparisons: list[TableComparison]) -> None:
    for verdict in verdicts:
        terminal.line(f"{verdict.name}: {_summary(verdict)}")
        for fault in verdict.faults:
            terminal.line("  " + _explained(fault))
        if verdict.fault_count > len(verdict.faults):
            terminal.line(f"  ... and {verdict.fault_count - len(verdict.faults)} more")
    for comparison in comparisons:
        _show_comparison(comparison)


def _summary(verdict: RecordedVerdict) -> str:
    judged = "legal" if verdict.is_legal else f"NOT legal, {_counted(verdict.fault_count, 'fault')}"
    if verdict.inserts or verdict.adjusts or verdict.stables:
        point = "no stable point" if not verdict.stables else f"stable({show_time(verdict.stable_point)})"
        elements = f"{_counted(verdict.inserts, 'insert')}, {_counted(verdict.adjusts, 'adjust')}"
        counts = f"{elements}, {_counted(verdict.stables, 'stable')}, {point}, {_counted(verdict.events, 'event')}"
    else:
        counts = "no elements"
    kept = [name if is_kept else f"NOT {name}" for name, is_kept in verdict.promises.items()]
    promised = f"; promises {', '.join(kept)}" if kept else ""
    return f"{judged}; {counts}{promised}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _explained(fault: Fault) -> str:
    where = f"line {fault.place}" if fault.place else "at the end"
    because = "" if fault.because is None else f" (the stable is in line {fault.because})"
    return f"{where}: {fault.element} [{fault.code}]: promised {fault.promised}, but {fault.came}{because}"


def _show_comparison(comparison: TableComparison) -> None:
    names = f"{comparison.one} and {comparison.other}"
    at = show_time(comparison.at)
    if comparison.is_empty:
        why = "one has no stable point"
        if comparison.at != NEG_INF:
            why = f"one is right from {show_time(comparison.since)} on, and they are stable up to {at}"
        terminal.line(f"{names}: nothing to compare, because {why}")
        return
    if not comparison.count:
        terminal.line(f"{names}: the same table up to {at}")
        return
    terminal.line(f"{names}: DIFFERENT up to {at}, {_counted(comparison.count, 'event')}")
    for difference in comparison.differences:
        end = f"goes on at {at}" if difference.ve is None else f"ends at {show_time(difference.ve)}"
        terminal.line(
            f"  {show_payload(difference.payload)} from {show_time(difference.vs)} that {end}: "
            f"{_counted(difference.copies, 'time')} in {comparison.one}, "
            f"{_counted(difference.other_copies, 'time')} in {comparison.other}"
        )
    if comparison.count > len(comparison.differences):
        terminal.line(f"  ... and {comparison.count - len(comparison.differences)} more")


def _as_json(verdicts: list[RecordedVerdict], comparisons: list[TableComparison]) -> dict[str, Any]:
    streams = []
    for verdict in verdicts:
        values = asdict(verdict) | {"is_legal": verdict.is_legal, "stable_point": _time_as_json(verdict.stable_point)}
        for fault in values["faults"]:
            del fault["stream"]
        streams.append(values)
    pairs = []
    for comparison in comparisons:
        at, since = _time_as_json(comparison.at), _time_as_json(comparison.since)
        differences = [_difference_as_json(one) for one in comparison.differences]
        pairs.append(asdict(comparison) | {"at": at, "since": since, "differences": differences})
    return {"streams": streams, "comparisons": pairs}


def _difference_as_json(one: EventDifference) -> dict[str, Any]:
    """Return the event as in a table of events (docs/session-format.md), with ``ve`` null if it goes on."""
    event: dict[str, Any] = json.loads(format_event(one.vs, one.payload, NEG_INF if one.ve is None else one.ve))
    if one.ve is None:
        event["ve"] = None
    return event | {"copies": one.copies, "other_copies": one.other_copies}


def _time_as_json(t: int) -> int | str:
    """Return a time as in the lines of a session."""
    return t if NEG_INF < t < INF else show_time(t)
