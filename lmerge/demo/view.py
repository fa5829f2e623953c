"""The live view and the verdict of `lmerge demo`: a live table in a terminal, plain lines elsewhere.

Called by `run` with a `Scene` ten times a second. Drawing is a pure function of the scene, so a picture of it can be
saved and tests can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from datetime import datetime, timezone
from types import TracebackType
from typing import NamedTuple

from rich import box
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lmerge import terminal
from lmerge.core.elements import INF, NEG_INF
from lmerge.demo.verdict import RIGHT, WRONG, DemoVerdict, Kill

STATE_STYLES = {
    "starting": "yellow",
    "loading": "yellow",
    "loaded": "yellow",
    "joining": "yellow",
    "joined": "green",
    "killed": "bold red",
    "gone": "bold red",
    "done": "dim",
}
SPARK = "spark"  # the name of the replica in PySpark
TEMPORAL = "temporal"  # the name of the one that runs a plan of lmerge.temporal
REPLICA_STYLES = {
    "aggressive": "magenta",
    "conservative": "cyan",
    "open-ended": "yellow",
    TEMPORAL: "blue",
    SPARK: "green",
}
NUMBERS = {3: "three", 4: "four", 5: "five"}
NEWS_SHOWN = 8
LINE_EVERY_S = 2.0  # between plain lines: short enough to follow, long enough for a CI log


class ReplicaScene(NamedTuple):
    """One replica in the view. ``behind_ms``: wall time by which its stable point is behind the output's."""

    name: str
    state: str
    incarnation: int
    received: int
    rate: float
    late: int
    behind_ms: float | None
    share: float


class Scene(NamedTuple):
    """The state of the run at one moment."""

    elapsed_s: float
    flights: int
    progress: float
    stable_point: int
    output_elements: int
    output_rate: float
    live_events: int
    survives_losses: int
    algorithm: str
    last_gap_ms: float
    longest_gap_ms: float
    replicas: tuple[ReplicaScene, ...]
    news: tuple[tuple[float, str], ...]
    servers_up: int = 1
    servers: int = 1


class DemoView:
    """Shows scenes, as a live table on ``console``, or without one as lines by ``show_line``. Use it in a ``with``."""

    def __init__(self, show_line: Callable[[str], None], console: Console | None = None) -> None:
        self.after_kill: Scene | None = None  # the scene for the picture
        self._show_line = show_line
        self._live = Live(console=console, auto_refresh=False) if console is not None else None
        self._news_printed = 0
        self._line_s = -LINE_EVERY_S

    @property
    def is_live(self) -> bool:
        """Whether it is a live table."""
        return self._live is not None

    def __enter__(self) -> DemoView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, scene: Scene) -> None:
        """Show a scene."""
        if self.after_kill is None and any(r.state == "killed" and r.rate == 0 for r in scene.replicas):
            self.after_kill = scene
        if self._live:
            self._live.update(terminal.Escaped(draw(scene)), refresh=True)
            return
        for at_s, text in scene.news[self._news_printed :]:
            self._show_line(f"{at_s:6.1f} s  {text}")
        self._news_printed = len(scene.news)
        if abs(scene.elapsed_s - self._line_s) >= LINE_EVERY_S:  # the time restarts at 0 when the replay begins
            self._line_s = scene.elapsed_s
            self._show_line(line(scene))


def line(scene: Scene) -> str:
    """Return a scene in one plain line."""
    replicas = ", ".join(
        f"{r.name} {r.state} {r.rate:,.0f}/s won {r.share:.0%}" if r.state == "joined" else f"{r.name} {r.state}"
        for r in scene.replicas
    )
    return (
        f"{scene.elapsed_s:6.1f} s  {scene.progress:4.0%}  {day(scene.stable_point)}  "
        f"output {scene.output_rate:,.0f}/s, longest pause {scene.longest_gap_ms:.0f} ms | {replicas}"
    )


def draw(scene: Scene) -> RenderableType:
    """Return a scene as a panel."""
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text(day(scene.stable_point), style="bold"),
        ProgressBar(total=1.0, completed=scene.progress, complete_style="green", finished_style="green"),
        f"{scene.progress:.0%} of {scene.flights:,} flights",
    )
    news = Text("\n").join(Text.assemble((f"{at_s:6.1f} s  ", "dim"), text) for at_s, text in scene.news[-NEWS_SHOWN:])
    return Panel(
        Group(head, Text(), _replica_table(scene), Text(), _output_lines(scene), Text(), news),
        title=f"lmerge demo: {count_of(scene.replicas)} replicas, two servers, one stream",
        title_align="left",
        border_style="blue",
        padding=(1, 2),
    )


def count_of(things: Sized) -> str:
    """Return the number of ``things`` as text."""
    return NUMBERS.get(len(things), str(len(things)))


def _replica_table(scene: Scene) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), pad_edge=False, show_edge=False)
    for name in ("replica", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("life", "elements/s", "received", "late", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("share of the output", ratio=1, no_wrap=True)
    for r in scene.replicas:
        color = REPLICA_STYLES.get(r.name, "white")
        share = Table.grid(padding=(0, 1), expand=True)
        share.add_column(justify="right", width=5)
        share.add_column(ratio=1)
        share.add_row(f"{r.share:.0%}", Bar(1.0, 0.0, r.share, color=color))
        lag = "-" if r.behind_ms is None else f"{r.behind_ms:,.0f} ms"
        table.add_row(
            Text(r.name, style=color),
            Text(r.state, style=STATE_STYLES.get(r.state, "")),
            str(r.incarnation or "-"),
            f"{r.rate:,.0f}",
            f"{r.received:,}",
            f"{r.late:,}",
            lag,
            share,
        )
    return table


def _output_lines(scene: Scene) -> Table:
    redundancy = scene.survives_losses
    losses = "loss" if redundancy == 1 else "losses"
    lines = Table.grid(padding=(0, 3))
    lines.add_row(
        Text("output", style="bold"),
        f"{scene.output_rate:,.0f} elements/s",
        f"{scene.output_elements:,} in all",
        f"{scene.live_events:,} live events",
    )
    servers = Text(f"{scene.servers_up} of {scene.servers} up", style="green" if scene.servers_up > 1 else "bold red")
    lines.add_row(Text("servers", style="bold"), servers, "", "")
    lines.add_row(
        Text("pause", style="bold"),
        f"{scene.last_gap_ms:.0f} ms now",
        f"{scene.longest_gap_ms:.0f} ms longest",
        Text(f"survives {redundancy} {losses}", style="green" if redundancy else "bold red"),
    )
    return lines


def draw_verdict(verdict: DemoVerdict) -> RenderableType:
    """Return the verdict as a panel."""
    v, c = verdict, verdict.comparison
    facts = Table.grid(padding=(0, 2))
    facts.add_column(justify="right", style="bold", no_wrap=True)
    facts.add_column()
    for number, text in (
        (f"{c.expected:,}", f"events expected by DuckDB from the raw table: {_raw_text(v)}"),
        (f"{c.merged:,}", "events in the merged stream"),
        (f"{c.lost:,}", "lost"),
        (f"{c.duplicates:,}", "duplicates"),
        (f"{v.contradictions:,}", "contradictions"),
        (f"{v.stall.longest_ms:.0f} ms", f"longest output stall (median gap {v.stall.median_ms:.0f} ms)"),
        *((f"{kill.stall_ms:.0f} ms", _kill_text(kill)) for kill in v.all_kills),
        (f"{v.elements_in:,}", f"elements in, {v.output.elements:,} out, in {v.replay_s:.0f} s{_stood_text(v)}"),
        *([("", v.spark)] if v.spark else []),
    ):
        facts.add_row(number, text)
    color = {RIGHT: "green", WRONG: "red"}.get(v.exit_code, "yellow")
    mark = Text(v.summary, style=f"bold {color}")
    details = Text("\n").join(Text(text, style="red") for text in v.output.first_contradictions)
    return Panel(
        Group(facts, Text(), _totals_table(v), Text(), mark, *([details] if details else [])),
        title="verdict",
        title_align="left",
        border_style=color,
        padding=(1, 2),
    )


def _raw_text(verdict: DemoVerdict) -> str:
    raw = verdict.raw
    return f"{raw.flights:,} flights less {raw.cancelled:,} cancelled"


def _kill_text(kill: Kill) -> str:
    back = "never came back" if kill.rejoined_s is None else f"back at {kill.rejoined_s:.1f} s"
    made = f", which made {kill.share:.0%} of the output" if kill.share else ""
    return f"around the kill of {kill.replica} at {kill.at_s:.1f} s{made}; {back}"


def _stood_text(verdict: DemoVerdict) -> str:
    return f"; it stood still for {verdict.stood_s:.0f} s until all were back" if verdict.stood_s >= 1 else ""


def _totals_table(verdict: DemoVerdict) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("replica")
    for name in ("lives", "inserts", "adjusts", "stables", "late", "won", "share"):
        table.add_column(name, justify="right")
    for name, totals in verdict.replicas.items():
        counts = (totals.inserts, totals.adjusts, totals.stables, totals.late, totals.won)
        table.add_row(
            Text(name, style=REPLICA_STYLES.get(name, "white")),
            str(totals.incarnations),
            *(f"{count:,}" for count in counts),
            f"{verdict.share(name):.0%}",
        )
    out = verdict.output
    table.add_row(Text("output", style="bold"), "", *(f"{n:,}" for n in (out.inserts, out.adjusts, out.stables)))
    return table


def verdict_lines(verdict: DemoVerdict) -> list[str]:
    """Return the verdict in plain lines."""
    v, c = verdict, verdict.comparison
    lines = [
        f"expected by DuckDB: {c.expected:,} events; merged: {c.merged:,}",
        f"lost {c.lost:,}, duplicates {c.duplicates:,}, contradictions {v.contradictions:,}",
        f"longest output stall {v.stall.longest_ms:.0f} ms (median gap {v.stall.median_ms:.0f} ms)",
        *(f"longest output stall {kill.stall_ms:.0f} ms {_kill_text(kill)}" for kill in v.all_kills),
        *(
            f"{name}: {t.elements:,} elements in, {t.late:,} late, {v.share(name):.0%} of the output"
            for name, t in v.replicas.items()
        ),
        f"output: {v.output.elements:,} elements in {v.replay_s:.0f} s{_stood_text(v)}",
        *([v.spark] if v.spark else []),
        *v.output.first_contradictions,
    ]
    return [*lines, v.summary]


def day(t: int) -> str:
    """Return an instant of the flights as text."""
    if t in (INF, NEG_INF):
        return "the end       " if t == INF else "not yet begun "
    return datetime.fromtimestamp(t / 1e6, timezone.utc).strftime("%d %b %Y %H:%M")
