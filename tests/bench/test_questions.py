"""The decisions of benchmarks: slopes of memory, the query of the two plans, bursts and congestion; and their help."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from bench import metrics_cost
from bench.bursty import bursts, delay_ms
from bench.congestion import CONGESTED, congested
from bench.feedback import SlowQuery, query
from bench.rig import wan
from bench.soak import Slope, slope
from bench.stale import MEASURES, ROOT
from lmerge.service.merge.stable_history import StableHistory
from lmerge.service.output.fanout import Fanout
from lmerge.service.output.pipeline import MergeOutput


def memory(rise_mb_per_h: float, noise_mb: float, minutes: int = 48) -> list[tuple[float, float]]:
    random = Random(3)
    return [(at * 5.0, 100 + rise_mb_per_h * at * 5 / 3600 + random.gauss(0, noise_mb)) for at in range(minutes * 12)]


def test_a_leak_is_found_under_noise() -> None:
    found = slope(memory(5.0, 0.5))
    assert found.mb_per_h == pytest.approx(5.0, abs=0.6)
    assert not found.is_flat


def test_noise_alone_is_flat() -> None:
    assert slope(memory(0.0, 2.0)).is_flat
    assert slope(memory(0.0, 0.0)) == pytest.approx(Slope(0.0, 0.0))


def test_less_than_a_megabyte_an_hour_and_shrinking_are_flat() -> None:
    assert slope(memory(0.9, 0.0)).is_flat
    assert not slope(memory(1.1, 0.0)).is_flat
    assert slope(memory(-50.0, 0.0)).is_flat


def test_a_step_in_the_warm_part_is_no_steady_rise() -> None:
    samples = [(second, mb + (4.0 if second > 2000 else 0.0)) for second, mb in memory(0.0, 0.3)]
    found = slope(samples)
    assert found.half_width > 0.5, "one step is a wide interval"


# Two plans of opposite strengths.


@pytest.fixture(scope="module")
def spec() -> SlowQuery:
    return query(20_000, (1_000, 3_000))


def test_small_and_large_values_come_by_turns(spec: SlowQuery) -> None:
    starts = (0, *(turn for turn in spec.turns if turn < spec.count))
    assert 6 <= len(starts) <= 21
    for number, start in enumerate(starts):
        assert (spec.x(start) < 1000) == (number % 2 == 0)
    sizes = [b - a for a, b in zip(starts, spec.turns, strict=False)]
    assert all(1_000 <= size <= 3_000 for size in sizes)


def test_the_plans_are_expensive_where_the_other_is_cheap_and_agree(spec: SlowQuery) -> None:
    for at in range(0, spec.count, 997):
        x = spec.x(at)
        assert spec.is_expensive(0, x) != spec.is_expensive(1, x)
        cheap = SlowQuery(spec.count, spec.turns, 1, 1)
        assert cheap.selects(at, x, 0) == cheap.selects(at, x, 1)
    assert spec.expensive_rounds == pytest.approx(9 * spec.cheap_rounds, rel=0.1)
    assert len(spec.expected()) == pytest.approx(0.8 * spec.count, rel=0.05)


# Bursts and congestion.


def test_delays_are_those_of_the_paper() -> None:
    random = Random(1)
    values = [delay_ms(random) for _ in range(5_000)]
    assert 0 <= min(values) <= max(values) <= 40
    assert sum(values) / len(values) == pytest.approx(20, abs=0.5)
    delay = bursts(0.004, 7)
    hit = [value for value in (delay(0.0) for _ in range(50_000)) if value]
    assert len(hit) / 50_000 == pytest.approx(0.004, abs=0.001)


def test_two_streams_are_congested_at_once_and_one_never_is() -> None:
    at_18 = [any(start <= 18.0 < end for start, end in periods) for periods in CONGESTED]
    assert at_18 == [False, True, True, False]
    assert CONGESTED[3] == ()
    delay = congested(CONGESTED[1], lambda _: 0.0, 5)
    assert delay(18.0) > 0 == delay(5.0)


# The network.


def test_a_line_with_delay_and_loss_reports_why_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert wan.problem() is not None
    monkeypatch.undo()
    why = wan.problem()
    assert why is None or "root" in why or "tun" in why or "Linux" in why or "ip" in why
    assert Path("/dev/net/tun").exists() or why is not None


# What metrics cost.


def test_the_uncounted_server_counts_nothing_and_there_is_something_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, method in ((Fanout, "written"), (MergeOutput, "note_received"), (StableHistory, "note")):
        monkeypatch.setattr(kind, method, vars(kind)[method])  # what the bench removes is put back after the test
    metrics_cost.remove_counting()
    history = StableHistory()
    history.note(1.0, 10)
    assert history.behind_s(5, 2.0) == 0.0


# The help.


@pytest.mark.parametrize("name", [*MEASURES, "against", "stale"])
def test_help_shows_the_question_and_the_options_and_measures_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.startswith("spark_"):
        pytest.importorskip("pyspark")
    if name.startswith("core_"):
        pytest.importorskip("lmerge._native")
    module = import_module(f"bench.{name}.__main__" if name in ("peers", "counts") else f"bench.{name}")
    monkeypatch.setattr(sys, "argv", [f"bench/{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: python -m bench.{name} ")
    assert str(module.__doc__).splitlines()[0] in printed
    assert "--help" in printed
    assert ("--quick" in printed) == (name in MEASURES)


def test_make_bench_runs_all_but_two() -> None:
    """One takes an hour, and one a Kubernetes."""
    recipe = (ROOT / "Makefile").read_text().partition("\nbench: ")[2].partition("\n\n")[0]
    assert set(MEASURES) - set(re.findall(r"[a-z_0-9]+", recipe)) == {"soak", "cluster_faults"}
