"""``lmerge status``: show the merges of a server, once."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Server
from lmerge.cli.connection import secured
from lmerge.core.elements import INF, NEG_INF, show_time

ALARM: Final = "bold red"


@secured
def status(
    merge: Annotated[str | None, typer.Argument(help="Name of a merge; without it, all of them.")] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    *,
    security: Any,
) -> None:
    """Show the merges of a server, or everything about one.

    Example: lmerge status flights
    """
    from google.protobuf.json_format import MessageToDict

    from lmerge.client import describe_merge, describe_server, list_merges

    console = terminal.console()
    if merge is None:
        merges = list_merges(server, security=security)
        if as_json:
            about = MessageToDict(describe_server(server, security=security), preserving_proto_field_name=True)
            about["merges"] = [_dict(item) for item in merges]
            terminal.json_lines(json.dumps(about) + "\n")
        else:
            terminal.table(console, merges_table(server, merges) if merges else f"no merges at {server} yet")
        return
    described = describe_merge(server, merge, security=security)
    if as_json:
        terminal.json_lines(json.dumps(_dict(described)) + "\n")
    else:
        terminal.table(console, merge_view(described))


def merges_table(server: str, merges: list[Any]) -> Table:
    """Return a table with a line for each merge."""
    table = Table(title=f"merges at {server}", title_justify="left")
    for name in ("merge", "algorithm"):
        table.add_column(name)
    for name in ("stable point", "inputs", "subscribers"):
        table.add_column(name, justify="right")
    for item in merges:
        table.add_row(item.merge, item.algorithm, show_time(item.stable_point), str(item.inputs), str(item.subscribers))
    return table


def merge_view(described: Any, rates: dict[str, float] | None = None) -> Group:
    """Return the view of one merge. ``rates``: elements/s by input, and by "" for the output."""
    summary, emitted = described.summary, described.emitted
    head = Table.grid(padding=(0, 2))
    rate = "" if rates is None else f", {rates.get('', 0.0):,.0f}/s"
    loss = "one input" if described.survives_losses == 1 else f"{described.survives_losses} inputs"
    for label, text in (
        ("merge", Text(summary.merge, "bold")),
        ("algorithm", f"{summary.algorithm} ({described.engine}): {described.algorithm_reason}"),
        ("policy", described.policy),
        ("stable point", show_time(summary.stable_point)),
        ("output", f"{emitted.inserts:,} inserts, {emitted.adjusts:,} adjusts, {emitted.stables:,} stables{rate}"),
        ("live events", f"{described.live_events:,}"),
        ("redundancy", f"survives the loss of {loss}" if described.survives_losses else "none: the next loss stops it"),
        ("resume", _resume_text(described)),
        ("comparison", _comparison_text(described)),
        ("subscribers", ", ".join(s.subscriber for s in described.subscribers) or "none"),
        *([("recording", described.recording)] if described.recording else []),
        *([("lead", f"at most {described.lead_max}, then it is held")] if described.HasField("lead_max") else []),
        *([("staged", _staged_text(described))] if described.staged_parts or described.staged_commits else []),
    ):
        head.add_row(Text(label, "dim"), text)
    parts: list[Any] = [head, inputs_table(described, rates)]
    for item in described.inputs:
        if item.lacks:
            parts.append(f"[dim]no redundancy by[/dim] {item.replica}: {item.lacks}")
    for interval in described.disputed:
        parts.append(f"[bold red]disputed[/bold red] {interval}: detach an input, or release the one that is right")
    for switch in list(described.switches)[-3:]:
        parts.append(Text.assemble(("switched", "dim"), f" {switch}"))
    for gone in list(described.detached)[:3]:
        parts.append(Text.assemble(("detached", "dim"), f" {gone.replica}: {gone.reason}"))
    return Group(*parts)


def inputs_table(described: Any, rates: dict[str, float] | None) -> Table:
    """Return a table with a line for each input: state, lag behind the output's stable point, share of the output."""
    table = Table()
    table.add_column("input")
    table.add_column("state")
    columns = ["stable point", "lag", "received", "late", "won"]
    for name in columns if rates is None else [*columns, "rate"]:
        table.add_column(name, justify="right")
    won = sum(item.won for item in described.inputs) or 1
    for item in described.inputs:
        received = item.received.inserts + item.received.adjusts + item.received.stables
        row = [
            item.replica,
            _state(item),
            show_time(item.stable_point),
            lag(described.summary.stable_point, item.stable_point),
            f"{received:,}",
            f"{item.late:,}",
            f"{item.won / won:.0%}",
        ]
        if rates is not None:
            row.append(f"{rates.get(item.replica, 0.0):,.0f}/s")
        table.add_row(*row)
    return table


def _resume_text(described: Any) -> Text:
    """Return the time from which subscribers can resume, and the store."""
    has_all = not described.HasField("retained_from")
    since = "the beginning" if has_all else f"{show_time(described.retained_from)} on"
    parts: list[str | Text] = [f"from {since}", f"store: {described.store}"]
    if described.epoch:
        parts.append(f"epoch {described.epoch}")
    if described.HasField("complete_from"):
        parts.append(f"right for events that end at {show_time(described.complete_from)} or later")
    if described.gaps:
        parts.append(Text(f"{described.gaps} gaps", ALARM))
    return _joined(parts)


def _staged_text(described: Any) -> str:
    text = f"{described.staged_parts:,} parts, {described.staged_bytes:,} bytes; {described.staged_commits:,} commits"
    return text + (f", {described.missed_commits:,} missed" if described.missed_commits else "")


def _comparison_text(described: Any) -> Text:
    """Return whether the inputs have been found equal."""
    if described.divergence_policy == "none":
        return Text("none")
    found = described.divergences
    differ = Text.assemble(f"{described.divergence_policy}: ", "no difference")
    if found:
        alarm = (f"inputs differed in {found} intervals", ALARM)
        differ = Text.assemble(f"{described.divergence_policy}: ", alarm, ": see lmerge certify")
    parts: list[str | Text] = [differ]
    if described.quarantined:
        parts.append(Text(f"quarantined: {', '.join(described.quarantined)}", ALARM))
    return _joined(parts)


def _joined(parts: list[str | Text]) -> Text:
    return Text("; ").join(part if isinstance(part, Text) else Text(part) for part in parts)


def _state(item: Any) -> str:
    if item.state == "skipping":
        return f"skipping to {show_time(item.skipped_until)}"
    if item.state == "joining" and item.HasField("join_at"):
        return f"joining at {show_time(item.join_at)}"
    return str(item.state)


def lag(output: int, own: int) -> str:
    """Return how far an input is behind the output, in time units."""
    if own >= output:
        return "0"
    if own == NEG_INF or output == INF:
        return "behind"
    return f"{output - own:,}"


def _dict(message: Any) -> dict[str, Any]:
    """Return a message as JSON, with the numbers that are zero."""
    from google.protobuf.json_format import MessageToDict

    return dict(MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
