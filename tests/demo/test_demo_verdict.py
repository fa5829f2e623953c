"""The demo's judge, ledger, verdict and view: a good run is judged good, and every seeded fault is found."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from lmerge import terminal
from lmerge.cli.demo import save_picture
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Event, Insert, Stable
from lmerge.demo.days import parse_days
from lmerge.demo.judge import Comparison, FlightsJudge
from lmerge.demo.ledger import Ledger, Stall
from lmerge.demo.verdict import NOT_IN_TIME, RIGHT, WRONG, DemoVerdict, Kill, OutputSummary, ReplicaTotals
from lmerge.demo.view import DemoView, ReplicaScene, Scene, draw, draw_verdict, verdict_lines
from lmerge.errors import UsageError
from lmerge_replicas.flights.flight import read_flights
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import STYLES

DAY = Days(date(2013, 2, 8), date(2013, 2, 8))


@pytest.fixture(scope="module")
def judge() -> Iterator[FlightsJudge]:
    with FlightsJudge(DAY) as judge:
        yield judge


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    """The day as one replica publishes it, here in the role of the merged stream."""
    return [step.batch for step in FlightStream(read_flights(DAY), STYLES["aggressive"]).steps()]


def ledger_of(batches: list[Batch]) -> Ledger:
    ledger = Ledger()
    for i, batch in enumerate(batches):
        ledger.take(batch, i / 100)
    return ledger


def verdict_of(
    judge: FlightsJudge, ledger: Ledger, kills: tuple[Kill, ...] = (), kills_planned: int = 0
) -> DemoVerdict:
    return DemoVerdict(
        ("2013-02-08", "2013-02-08"),
        judge.counts(),
        judge.compare(ledger.events()),
        OutputSummary.of(ledger),
        ledger.stall(),
        kills,
        kills_planned,
        (),
        0,
        {"aggressive": ReplicaTotals(1, 10, 5, 2, 0, 9), "open-ended": ReplicaTotals(1, 10, 5, 2, 0, 1)},
        "r3",
        "all inputs promise key",
        "lazy",
        "python",
        1.0,
        2.0,
    )


def without(batches: list[Batch], is_dropped: Callable[[Any], bool]) -> list[Batch]:
    return [Batch.of(e for e in batch.elements() if not is_dropped(e)) for batch in batches]


def test_a_faithful_output_is_called_right(judge: FlightsJudge, batches: list[Batch]) -> None:
    verdict = verdict_of(judge, ledger_of(batches))
    assert verdict.problems() == []
    assert verdict.as_json()["ok"] is True
    assert verdict.comparison.expected == verdict.comparison.merged > 400
    assert verdict_lines(verdict)[-1] == "right: nothing lost, nothing twice"


def test_a_lost_event_is_called_lost(judge: FlightsJudge, batches: list[Batch]) -> None:
    victim = judge.events()[100].payload
    seeded = without(batches, lambda e: not isinstance(e, Stable) and e.payload == victim)
    verdict = verdict_of(judge, ledger_of(seeded))
    assert verdict.comparison.lost == 1
    assert verdict.problems() == ["1 events lost"]
    assert verdict.as_json()["ok"] is False


def test_an_event_published_twice_is_called_a_duplicate(judge: FlightsJudge, batches: list[Batch]) -> None:
    again = Insert(*[(e.payload, e.vs, e.ve) for e in judge.events()][100])
    seeded = [Batch.of([*batch.elements(), again] if i == 0 else batch.elements()) for i, batch in enumerate(batches)]
    verdict = verdict_of(judge, ledger_of(seeded))
    assert verdict.comparison.duplicates == 1
    assert not verdict.is_good


def test_a_lost_revision_is_called_a_wrong_end(judge: FlightsJudge, batches: list[Batch]) -> None:
    final = next(e for batch in batches for e in batch.elements() if isinstance(e, Adjust) and e.vold != e.ve > e.vs)
    seeded = without(batches, lambda e: isinstance(e, Adjust) and e.payload == final.payload)
    verdict = verdict_of(judge, ledger_of(seeded))
    assert verdict.comparison.wrong_end == 1
    assert not verdict.is_good


def test_a_lost_retraction_is_called_an_event_that_never_was(judge: FlightsJudge, batches: list[Batch]) -> None:
    cancelled = next(e for batch in batches for e in batch.elements() if isinstance(e, Adjust) and e.ve == e.vs)
    verdict = verdict_of(judge, ledger_of(without(batches, lambda e: e == cancelled)))
    assert verdict.comparison.unexpected == 1
    assert not verdict.is_good


def test_an_output_that_contradicts_itself_is_caught(judge: FlightsJudge, batches: list[Batch]) -> None:
    below = Batch.of([Insert(b"too late", 5, 10)])
    verdict = verdict_of(judge, ledger_of([*batches[:20], below, *batches[20:]]))
    assert verdict.comparison.is_equal
    assert verdict.output.contradictions == 1
    assert "insert-below-stable" in verdict.output.first_contradictions[0]
    assert verdict.problems() == ["1 contradictions in the output"]


def test_a_replica_that_never_came_back_is_not_right(judge: FlightsJudge, batches: list[Batch]) -> None:
    kill = Kill("aggressive", 7, 3.0, 0.5)
    verdict = verdict_of(judge, ledger_of(batches), (kill,), kills_planned=1)
    assert verdict.problems() == ["aggressive did not join again"]
    assert verdict_of(judge, ledger_of(batches), (kill._replace(rejoined_s=4.0),), kills_planned=1).is_good


def test_a_kill_that_did_not_take_place_is_not_right(judge: FlightsJudge, batches: list[Batch]) -> None:
    assert verdict_of(judge, ledger_of(batches), kills_planned=2).problems() == ["only 0 of 2 kills took place"]


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("away", [0, 1, 2])
@pytest.mark.parametrize("planned", [0, 2, 3])
def test_a_wrong_table_and_a_late_redundancy_are_never_confused(
    judge: FlightsJudge, batches: list[Batch], is_wrong: bool, away: int, planned: int
) -> None:
    kills = tuple(
        Kill(name, 7, 3.0, 0.5, rejoined_s=None if n < away else 9.0) for n, name in enumerate(("aggressive", "b"))
    )[:planned]
    away = min(away, len(kills))
    is_late = away > 0 or len(kills) < planned
    verdict = verdict_of(judge, ledger_of(batches[:20] if is_wrong else batches), kills, planned)
    assert bool(verdict.wrong()) == is_wrong
    assert bool(verdict.not_in_time()) == is_late
    assert verdict.exit_code == (WRONG if is_wrong else NOT_IN_TIME if is_late else RIGHT)
    first = verdict.summary.partition(":")[0]
    assert first == ("WRONG" if is_wrong else "NOT IN TIME" if is_late else "right")
    assert verdict.as_json()["ok"] == (verdict.exit_code == RIGHT)
    assert verdict_lines(verdict)[-1] == verdict.summary


def test_gaps_in_which_the_replay_stood_still_are_no_stalls() -> None:
    ledger = Ledger()
    ledger.take(Batch.of([Stable(1)]), 0.0)
    ledger.replay_stops(0.5)
    assert ledger.idle_s(400.0) == 0.0
    ledger.replay_goes_on(9.0)
    assert ledger.idle_s(9.5) == 0.5
    ledger.take(Batch.of([Stable(2)]), 9.1)
    ledger.take(Batch.of([Stable(3)]), 9.4)
    assert ledger.stall().longest_ms == pytest.approx(300)
    assert ledger.longest_gap_s == pytest.approx(0.3)


def test_the_state_of_the_replica_in_spark_is_reported_and_changes_no_verdict(
    judge: FlightsJudge, batches: list[Batch]
) -> None:
    text = "no replica in Spark: it needs PySpark, which is not installed"
    verdict = verdict_of(judge, ledger_of(batches))._replace(spark=text)
    assert verdict.is_good
    assert verdict.as_json()["spark"] == text
    assert text in verdict_lines(verdict)
    assert "no replica in Spark" in rendered(draw_verdict(verdict))


def test_no_flights_is_no_success() -> None:
    assert Comparison(0, 0, 0, 0, 0, 0).is_equal
    with FlightsJudge(DAY) as judge:
        verdict = verdict_of(judge, Ledger())
    assert not verdict.is_good
    assert "no flights" in verdict._replace(comparison=Comparison(0, 0, 0, 0, 0, 0)).problems()[0]


def test_stalls_are_gaps_between_output_batches() -> None:
    ledger = Ledger()
    for at_s in (0.0, 0.01, 0.02, 0.10, 0.11, 1.11):
        ledger.take(Batch.of([Stable(int(at_s * 100))]), at_s)
    ledger.take(Batch.of([]), 9.0)  # nothing came
    assert ledger.stall() == pytest.approx(Stall(1000, 10, 0.11))
    assert ledger.stall(0.03, 0.05).longest_ms == pytest.approx(80)  # the gap that covers the window
    assert ledger.stall(0.0, 0.015).longest_ms == pytest.approx(10)
    assert ledger.longest_gap_s == pytest.approx(1.0)
    assert Ledger().stall() == Stall(0.0, 0.0, 0.0)


def test_the_ledger_is_complete_at_the_end() -> None:
    ledger = Ledger()
    ledger.take(Batch.of([Insert(b"p", 1, INF), Stable(INF)]), 0.0)
    assert ledger.is_complete
    assert ledger.events() == [Event(1, b"p", INF)]
    assert ledger.idle_s(99.0) == 0.0


SCENE = Scene(
    12.0,
    336_776,
    0.3,
    1_366_000_000_000_000,
    1_000,
    900.0,
    1_200,
    1,
    "r3",
    9.0,
    31.0,
    (
        ReplicaScene("aggressive", "killed", 1, 5_000, 0.0, 10, None, 0.6),
        ReplicaScene("conservative", "joined", 1, 2_000, 4_000.0, 500, 81.0, 0.1),
        ReplicaScene("open-ended", "joined", 1, 4_000, 9_000.0, 300, 0.0, 0.3),
    ),
    ((11.0, "SIGKILL to aggressive (process 7), which was making 60% of the output"),),
)


def rendered(drawing: RenderableType) -> str:
    file = io.StringIO()
    Console(file=file, width=116, force_terminal=False).print(drawing)
    return " ".join(file.getvalue().split())


def test_the_view_shows_rates_lag_share_and_state() -> None:
    text = rendered(draw(SCENE))
    assert "three replicas, two servers" in text
    for shown in ("aggressive", "killed", "9,000", "81 ms", "60%", "survives 1 loss ", "15 Apr 2013", "SIGKILL"):
        assert shown in text


def test_without_a_terminal_the_view_is_plain_lines_and_news_come_once() -> None:
    lines: list[str] = []
    with DemoView(lines.append) as view:
        view.show(SCENE)
        view.show(SCENE._replace(elapsed_s=12.1))
    assert len(lines) == 2
    assert lines[0].endswith("which was making 60% of the output")
    assert "output 900/s" in lines[1]


HOSTILE = "Kafka: \x1b[31mno\x9b2J, [red]and [/] :smile: \u202e\x07"


@pytest.mark.parametrize("is_live", [False, True])
def test_what_a_replica_reports_is_only_text(
    is_live: bool, judge: FlightsJudge, batches: list[Batch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    console = Console(file=out, width=200, markup=False, emoji=False, highlight=False, color_system=None)
    scene = SCENE._replace(news=((11.0, HOSTILE),), algorithm=HOSTILE)
    scene = scene._replace(replicas=(scene.replicas[0]._replace(name=HOSTILE), *scene.replicas[1:]))
    with DemoView(terminal.line_at_once, console if is_live else None) as view:
        view.show(scene)
    assert view.is_live is is_live
    assert "[red]and [/] :smile:" in out.getvalue()
    assert [c for c in out.getvalue() if not c.isprintable() and c != "\n"] == []
    path = tmp_path / "view.svg"
    save_picture(path, view, verdict_of(judge, ledger_of(batches))._replace(algorithm=HOSTILE))
    assert not any(c in path.read_text() for c in "\x1b\x9b\x07\u202e")


def test_the_verdict_shows_what_is_wrong_in_panel_and_lines(judge: FlightsJudge, batches: list[Batch]) -> None:
    bad = verdict_of(judge, ledger_of(batches[:20]))
    assert "WRONG" in rendered(draw_verdict(bad))
    assert "WRONG" in verdict_lines(bad)[-1]
    assert "right: nothing lost" in rendered(draw_verdict(verdict_of(judge, ledger_of(batches))))


@pytest.mark.parametrize(
    ("months", "days", "expected"),
    [
        ("1-12", None, Days(date(2013, 1, 1), date(2013, 12, 31))),
        ("2", None, Days(date(2013, 2, 1), date(2013, 2, 28))),
        ("2-3", 3, Days(date(2013, 2, 1), date(2013, 2, 3))),
        ("2", 99, Days(date(2013, 2, 1), date(2013, 2, 28))),
    ],
)
def test_months_and_days_give_a_range(months: str, days: int | None, expected: Days) -> None:
    assert parse_days(months, days) == expected


@pytest.mark.parametrize("months", ["0", "13", "3-2", "x", "", "1-2-3", "-1"])
def test_months_that_cannot_be_read_are_an_error(months: str) -> None:
    with pytest.raises(UsageError, match="--months"):
        parse_days(months, None)
