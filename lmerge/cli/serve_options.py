"""The options of ``lmerge serve`` that come in groups: what it keeps, and how it compares inputs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final

import typer

from lmerge.cli.options import Option, with_options

RETAIN_BYTES: Final = 32 * 2**20
CERTIFY_INTERVAL: Final = 60_000_000
EVIDENCE_BYTES: Final = 64 * 2**20


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


_KEEPING: Final[tuple[Option, ...]] = (
    ("store", _kept(str | None, "Keep the output here before it is shown; go on after a restart.", "DIR"), None),
    ("store_sync", _kept(StoreSync, "normal: faster, but a power failure may take back what was shown."),
     StoreSync.FULL),
    ("retain_bytes", _kept(int, "Output kept of each merge, in which subscribers can resume.", None, 1), RETAIN_BYTES),
    ("retain_time", _kept(int | None, "The same in units of time; the smaller of the two holds.", "T", 1), None),
)
_COMPARING: Final[tuple[Option, ...]] = (
    ("on_divergence", _compared(OnDivergence, "What follows when inputs differ; see docs/divergence.md."),
     OnDivergence.ALARM),
    ("certify_interval", _compared(int, "Units of time (of event ends) that are compared at once.", "T", 1),
     CERTIFY_INTERVAL),
    ("evidence_bytes", _compared(int, "Recent input kept of each merge, to name events that differ; 0: none.", None, 0),
     EVIDENCE_BYTES),
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
