"""The options of ``lmerge serve`` that come in groups: what it keeps, how it compares inputs, what may be staged."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final

import typer

from lmerge.cli.options import Option, with_options

RETAIN_BYTES: Final = 32 * 2**20
LIVE_BYTES: Final = 2**30
CERTIFY_INTERVAL: Final = 60_000_000
EVIDENCE_BYTES: Final = 64 * 2**20
LEAD_WAIT_S: Final = 10.0
COMPARE_WAIT_S: Final = 10.0
REDUNDANCY_LAG_S: Final = 30.0
STAGED_BYTES: Final = 512 * 2**20
STAGED_BYTES_PER_REPLICA: Final = 128 * 2**20
STAGED_KEEP_S: Final = 600.0


class OnDivergence(str, Enum):
    """What follows when inputs that promise the same stream differ."""

    NONE = "none"
    ALARM = "alarm"
    MAJORITY = "majority"
    HOLD = "hold"
    QUARANTINE = "quarantine"


class StoreSync(str, Enum):
    """What a commit waits for."""

    FULL = "full"
    NORMAL = "normal"


def _kept(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Output kept")]


def _compared(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Divergence")]


def _staged(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Staging")]


_KEEPING: Final[tuple[Option, ...]] = (
    ("store", _kept(str | None, "Keep the output here before it is shown; go on after a restart.", "DIR"), None),
    ("store_sync", _kept(StoreSync, "normal: faster, but a power failure may take back what was shown."),
     StoreSync.FULL),
    ("retain_bytes", _kept(int, "Output kept of each merge, in which subscribers can resume.", "BYTES", 1),
     RETAIN_BYTES),
    ("live_bytes_max", _kept(int, "Payload bytes that one merge holds; above it an input is ended.", "BYTES", 1),
     LIVE_BYTES),
    ("live_bytes_per_input", _kept(int, "The same of what one input has brought.", "BYTES", 1), LIVE_BYTES),
    ("retain_time", _kept(int | None, "The same in units of time; the smaller of the two holds.", "T", 1), None),
)
_COMPARING: Final[tuple[Option, ...]] = (
    ("on_divergence", _compared(
        OnDivergence,
        "What follows when inputs differ: none, alarm, majority, hold or quarantine; see docs/divergence.md.", "POLICY",
    ), OnDivergence.ALARM),
    ("certify_interval", _compared(int, "Units of time (of event ends) that are compared at once.", "T", 1),
     CERTIFY_INTERVAL),
    ("lead_max", _compared(
        int | None, "Hold a stable that is further ahead of the next input than this; none: any lead.", "T", 1
    ), None),
    ("lead_wait_s", _compared(
        float, "Seconds for which a held stable waits for inputs that have delivered none, at the beginning.", "S", 0
    ), LEAD_WAIT_S),
    ("compare_wait_s", _compared(float, "Under quarantine: seconds for which a late input is waited for.", "S", 0),
     COMPARE_WAIT_S),
    ("hold_survivor_wins", Annotated[bool, typer.Option(
        "--hold-survivor-wins", help="Under hold: a disputed interval is decided by the death of all others.",
        rich_help_panel="Divergence",
    )], False),
    ("redundancy_lag_s", _compared(
        float, "An input counts as redundant if it has reached where the output was so many seconds ago.", "S", 0
    ), REDUNDANCY_LAG_S),
    ("evidence_bytes", _compared(
        int, "Recent input kept of each merge, to name events that differ; 0: none.", "BYTES", 0
    ), EVIDENCE_BYTES),
)
_STAGING: Final[tuple[Option, ...]] = (
    ("staged_bytes", _staged(int, "Parts that wait for their commit, of all replicas; 0: none are taken.", "BYTES", 0),
     STAGED_BYTES),
    ("staged_bytes_per_replica", _staged(int, "The same of one replica.", "BYTES", 1), STAGED_BYTES_PER_REPLICA),
    ("staged_keep_s", _staged(float, "Seconds without use after which a query's parts are dropped.", "S", 0),
     STAGED_KEEP_S),
)


def keeping(command: Callable[..., None]) -> Callable[..., None]:
    """``lmerge serve`` with what it keeps; it must take ``kept``, a dict of fields of Settings."""

    def understood(said: dict[str, Any]) -> Any:
        return {**said, "store_sync": said["store_sync"].value}

    return with_options(command, "kept", _KEEPING, understood)


def comparing(command: Callable[..., None]) -> Callable[..., None]:
    """``lmerge serve`` with how it compares inputs; it must take ``compared``, a dict of fields of Settings."""

    def understood(said: dict[str, Any]) -> Any:
        policy = said.pop("on_divergence")
        return {**said, "divergence": policy.value}

    return with_options(command, "compared", _COMPARING, understood)


def staging(command: Callable[..., None]) -> Callable[..., None]:
    """``lmerge serve`` with what may be staged; it must take ``staged``, a dict of fields of Settings."""
    return with_options(command, "staged", _STAGING, lambda said: said)
