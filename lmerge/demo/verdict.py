"""The verdict of `lmerge demo`: the results of the run as one value, and whether all of them are right. Pure.

Built by `run`, shown by `view`, and printed as JSON by ``lmerge demo --json`` (`DemoVerdict.as_json`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lmerge.demo.judge import Comparison, RawCounts
from lmerge.demo.ledger import Ledger, Stall

RIGHT = 0
WRONG = 1  # also the exit code of the command when something did not work
NOT_IN_TIME = 3  # 2 is a usage error


class ReplicaTotals(NamedTuple):
    """Counts of one replica over all its incarnations.

    ``inserts``, ``adjusts``, ``stables``: received from it by the merge. ``late``: those that the output had passed by
    then. ``won``: inserts and adjusts of the output that it caused. The counts of a killed incarnation are those of the
    last description, up to a quarter of a second before the kill.
    """

    incarnations: int = 0
    inserts: int = 0
    adjusts: int = 0
    stables: int = 0
    late: int = 0
    won: int = 0

    @property
    def elements(self) -> int:
        return self.inserts + self.adjusts + self.stables

    def plus(self, other: ReplicaTotals) -> ReplicaTotals:
        """Return the sum of both."""
        return ReplicaTotals(*(mine + its for mine, its in zip(self, other, strict=True)))


class Kill(NamedTuple):
    """One SIGKILL, of a replica or a server. Times in seconds since the replay began.

    ``rejoined_s`` None: it never came back. ``share``: the part of the output that the victim was causing at that time;
    0 for a server. ``stall_ms``: the longest pause of the output in the two seconds from the kill.
    """

    replica: str
    pid: int
    at_s: float
    share: float
    stall_ms: float = 0.0
    rejoined_s: float | None = None


class OutputSummary(NamedTuple):
    """Counts of the output that the subscriber received, and its first contradictions."""

    inserts: int
    adjusts: int
    stables: int
    contradictions: int
    first_contradictions: tuple[str, ...]

    @classmethod
    def of(cls, ledger: Ledger) -> OutputSummary:
        """Return the summary of ``ledger``."""
        return cls(
            ledger.inserts, ledger.adjusts, ledger.stables, ledger.contradictions, tuple(ledger.first_contradictions)
        )

    @property
    def elements(self) -> int:
        return self.inserts + self.adjusts + self.stables


class DemoVerdict(NamedTuple):
    """All results of the demo.

    ``spark``: the problem of the replica in Spark, or empty. ``stood_s``: how long the replay stood still until all
    processes were back.
    """

    days: tuple[str, str]
    raw: RawCounts
    comparison: Comparison
    output: OutputSummary
    stall: Stall
    kills: tuple[Kill, ...]
    kills_planned: int
    server_kills: tuple[Kill, ...]
    server_kills_planned: int
    replicas: dict[str, ReplicaTotals]
    algorithm: str
    algorithm_reason: str
    policy: str
    engine: str
    replay_s: float
    total_s: float
    spark: str = ""
    stood_s: float = 0.0

    def wrong(self) -> list[str]:
        """Return what is wrong with the merged table or with its stream; empty if both are right."""
        c = self.comparison
        found = [
            (c.lost, "events lost"),
            (c.duplicates, "events twice"),
            (c.unexpected, "events that never were"),
            (c.wrong_end, "events with a wrong end"),
            (self.output.contradictions, "contradictions in the output"),
        ]
        wrong = [f"{count:,} {what}" for count, what in found if count]
        if not wrong and not c.is_equal:
            wrong.append(f"{c.merged:,} events merged, {c.expected:,} expected")
        if c.expected == 0:
            wrong.append("no flights on those days: nothing was shown")
        return wrong

    def not_in_time(self) -> list[str]:
        """Which redundancy was not back when the demo ended, and what was therefore not tried."""
        away = [f"{kill.replica} did not join again" for kill in self.all_kills if kill.rejoined_s is None]
        done, planned = len(self.all_kills), self.kills_planned + self.server_kills_planned
        return [*away, *([f"only {done} of {planned} kills took place"] if done < planned else [])]

    def problems(self) -> list[str]:
        """Return all problems; empty if the verdict is good."""
        return [*self.wrong(), *self.not_in_time()]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong and all processes came back in time."""
        return not self.problems()

    @property
    def exit_code(self) -> int:
        """RIGHT, WRONG or NOT_IN_TIME; WRONG if both apply."""
        return WRONG if self.wrong() else NOT_IN_TIME if self.not_in_time() else RIGHT

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        if self.wrong():
            return "WRONG: " + "; ".join(self.problems())
        if self.not_in_time():
            return "NOT IN TIME: the table is right, but " + "; ".join(self.not_in_time())
        return "right: nothing lost, nothing twice"

    @property
    def all_kills(self) -> tuple[Kill, ...]:
        """The kills of replicas and servers, in order of time."""
        return tuple(sorted((*self.kills, *self.server_kills), key=lambda kill: kill.at_s))

    @property
    def elements_in(self) -> int:
        """The number of elements that the merge received from all replicas."""
        return sum(totals.elements for totals in self.replicas.values())

    @property
    def contradictions(self) -> int:
        """The number of unexpected events, of wrong ends, and of elements that contradict the output."""
        return self.comparison.unexpected + self.comparison.wrong_end + self.output.contradictions

    def share(self, replica: str) -> float:
        """Return the part of the output (inserts and adjusts) that a replica caused, 0 to 1."""
        won = sum(totals.won for totals in self.replicas.values())
        return self.replicas[replica].won / won if won else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the verdict in the form that ``--json`` prints."""
        return {
            "ok": self.is_good,
            "problems": self.problems(),
            "wrong": self.wrong(),
            "not_in_time": self.not_in_time(),
            "first_day": self.days[0],
            "last_day": self.days[1],
            "raw": self.raw._asdict(),
            "expected_events": self.comparison.expected,
            "merged_events": self.comparison.merged,
            "lost": self.comparison.lost,
            "duplicates": self.comparison.duplicates,
            "unexpected": self.comparison.unexpected,
            "wrong_end": self.comparison.wrong_end,
            "contradictions": self.output.contradictions,
            "longest_stall_ms": round(self.stall.longest_ms, 1),
            "median_gap_ms": round(self.stall.median_ms, 1),
            "kills": [_rounded(kill._asdict()) for kill in self.kills],
            "server_kills": [
                {("server" if name == "replica" else name): value for name, value in _rounded(kill._asdict()).items()}
                for kill in self.server_kills
            ],
            "replicas": {
                name: {**totals._asdict(), "share": round(self.share(name), 4)}
                for name, totals in self.replicas.items()
            },
            "spark": self.spark,
            "output": {"inserts": self.output.inserts, "adjusts": self.output.adjusts, "stables": self.output.stables},
            "algorithm": self.algorithm,
            "algorithm_reason": self.algorithm_reason,
            "policy": self.policy,
            "engine": self.engine,
            "replay_s": round(self.replay_s, 2),
            "total_s": round(self.total_s, 2),
            "stood_s": round(self.stood_s, 2),
        }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
