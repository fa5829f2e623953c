"""The options of ``lmerge replica run`` for queries of one's own: a file with plans, and how one of them runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lmerge.cli.options import Option, with_options
from lmerge.errors import UsageError

QUERY_SUFFIXES: Final = (".py", ".json")


@dataclass(frozen=True)
class PlanOptions:
    """Which plan runs, where its sources are, and how it is driven. ``places``: of sources by name."""

    plan: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    join_at: int | None = None
    checkpoint_every_s: float | None = None
    give_up_after_s: float | None = None
    is_raw: bool = False
    is_supervised: bool = False

    def check_none(self, name: str) -> None:
        """Raise UsageError, which names the option, if one was given for the replica ``name``, which is no query."""
        given = {
            "--plan": self.plan is not None,
            "--source": bool(self.places),
            "--join-at": self.join_at is not None,
            "--checkpoint-every": self.checkpoint_every_s is not None,
            "--give-up-after": self.give_up_after_s is not None,
            "--raw": self.is_raw,
            "--supervised": self.is_supervised,
        }
        _check_not_given(given, f"it is for queries, and {name} comes with lmerge")


@dataclass(frozen=True)
class ReplayOptions:
    """How history is replayed: its speed and start, and the days of the flights of 2013."""

    speed: float | None
    start_s: float | None
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True)
class QueryPlace:
    """Where a plan is published: servers, merge, replica and role, and how to connect."""

    servers: str
    merge: str
    replica: str
    role: str
    security: Any


def _option(help_text: str, *declarations: str, **more: Any) -> Any:
    return typer.Option(*declarations, help=help_text, rich_help_panel="Queries", **more)


_OPTIONS: Final[tuple[Option, ...]] = (
    ("plan", Annotated[str | None, _option("The plan of the query; needed if it has several.")], None),
    (
        "source",
        Annotated[
            list[str] | None, _option("Another file or address for a source of the query.", metavar="NAME=PLACE")
        ],
        None,
    ),
    (
        "join_at",
        Annotated[
            int | None, _option("The sources have every event that ends then or later, and no more.", metavar="TIME")
        ],
        None,
    ),
    (
        "checkpoint_every",
        Annotated[float | None, _option("Seconds between two checkpoints; default: 10.", metavar="SECONDS", min=0.0)],
        None,
    ),
    (
        "give_up_after",
        Annotated[
            float | None,
            _option("Seconds without a server after which to give up; without it, never.", metavar="SECONDS", min=0.0),
        ],
        None,
    ),
    (
        "raw",
        Annotated[bool, _option("The result's only column is the payload: text or bytes, no rows.", "--raw")],
        False,
    ),
    ("supervised", Annotated[bool, _option("Driven by a parent: see lmerge.replica.driven.", "--supervised")], False),
)


def planned(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command. It must take ``chosen``, a PlanOptions."""

    def convert(values: dict[str, Any]) -> PlanOptions:
        places = dict(_place(text) for text in values["source"] or ())
        return PlanOptions(
            values["plan"],
            places,
            values["join_at"],
            values["checkpoint_every"],
            values["give_up_after"],
            values["raw"],
            values["supervised"],
        )

    return with_options(command, "chosen", _OPTIONS, convert)


def is_query_file(name: str) -> bool:
    """Return whether the name of a replica is that of a file with a query."""
    return Path(name).suffix in QUERY_SUFFIXES


def check_query_options(chosen: PlanOptions, replay: ReplayOptions, checkpoint: Path | None) -> None:
    """Raise UsageError, which names the option, if one was given that has no effect on a query."""
    days = {"--first": replay.first is not None, "--last": replay.last is not None}
    _check_not_given(days, "it is for the flights of 2013, and a query reads its own sources")
    _check_not_given(
        {"--start": replay.start_s is not None and replay.speed is None}, "a replay of a query has --speed"
    )
    every = {"--checkpoint-every": chosen.checkpoint_every_s is not None and checkpoint is None}
    _check_not_given(every, "there is no --checkpoint")


def _check_not_given(given: dict[str, bool], reason: str) -> None:
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} has no effect here: {reason}")


def _place(text: str) -> tuple[str, str]:
    name, separator, place = text.partition("=")
    if not name or not separator or not place:
        raise UsageError(f"--source is {text!r:.80}; it is NAME=PLACE, such as flights=today.csv")
    return name, place
