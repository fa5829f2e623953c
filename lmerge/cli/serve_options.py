"""The option groups of ``lmerge serve``: threads, the output that it keeps, the comparison of inputs, and staging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from lmerge.cli.options import Option, with_options
from lmerge.service.choices import DivergencePolicy, StoreSync, TransportChoice

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


def _kept(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Output kept")]


def _compared(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Divergence")]


def _staged(kind: Any, help_text: str, metavar: str | None = None, minimum: int | None = None) -> Any:
    return Annotated[kind, typer.Option(help=help_text, metavar=metavar, min=minimum, rich_help_panel="Staging")]


_RUNNING: Final[tuple[Option, ...]] = (
    (
        "transport",
        Annotated[
            TransportChoice,
            typer.Option(
                help="What serves the gRPC port; auto: native beside the native engine.", rich_help_panel="Cores"
            ),
        ],
        TransportChoice.AUTO,
    ),
    (
        "shards",
        Annotated[
            int,
            typer.Option(
                help="Threads that share each merge by key; native engine, r3 and r4.",
                min=1,
                max=64,
                rich_help_panel="Cores",
            ),
        ],
        1,
    ),
)
_KEEPING: Final[tuple[Option, ...]] = (
    ("store", _kept(str | None, "Store the output here before it is delivered; resume from it.", "DIR"), None),
    ("store_sync", _kept(StoreSync, "normal: faster, but a power failure may lose delivered output."), StoreSync.FULL),
    (
        "retain_bytes",
        _kept(int, "Output of each merge that is kept for subscribers that resume.", "BYTES", 1),
        RETAIN_BYTES,
    ),
    (
        "live_bytes_max",
        _kept(int, "Largest payload bytes of a merge; above that an input is ended.", "BYTES", 1),
        LIVE_BYTES,
    ),
    ("live_bytes_per_input", _kept(int, "Largest payload bytes that one input holds.", "BYTES", 1), LIVE_BYTES),
    ("retain_time", _kept(int | None, "Like --retain-bytes, in units of time; the smaller one holds.", "T", 1), None),
)
_COMPARING: Final[tuple[Option, ...]] = (
    (
        "on_divergence",
        _compared(
            DivergencePolicy,
            "When inputs differ: none, alarm, majority, hold or quarantine; see docs/divergence.md.",
            "POLICY",
        ),
        DivergencePolicy.ALARM,
    ),
    (
        "certify_interval",
        _compared(int, "Length of an interval of event ends that is compared as one.", "T", 1),
        CERTIFY_INTERVAL,
    ),
    (
        "lead_max",
        _compared(int | None, "Hold a stable that leads the next input by more than this; none: any lead.", "T", 1),
        None,
    ),
    (
        "lead_wait_s",
        _compared(float, "Seconds for which a held stable waits at the start for inputs that have sent none.", "S", 0),
        LEAD_WAIT_S,
    ),
    (
        "compare_wait_s",
        _compared(float, "Under quarantine: seconds for which the server waits for a late input.", "S", 0),
        COMPARE_WAIT_S,
    ),
    (
        "hold_survivor_wins",
        Annotated[
            bool,
            typer.Option(
                "--hold-survivor-wins",
                help="Under hold: the last input left decides a disputed interval.",
                rich_help_panel="Divergence",
            ),
        ],
        False,
    ),
    (
        "redundancy_lag_s",
        _compared(
            float, "An input adds redundancy if it has reached where the output was so many seconds ago.", "S", 0
        ),
        REDUNDANCY_LAG_S,
    ),
    (
        "evidence_bytes",
        _compared(int, "Recent input of each merge that is kept to name the events that differ; 0: none.", "BYTES", 0),
        EVIDENCE_BYTES,
    ),
)
_STAGING: Final[tuple[Option, ...]] = (
    (
        "staged_bytes",
        _staged(int, "Parts of all replicas that wait for their commit; 0: staging is refused.", "BYTES", 0),
        STAGED_BYTES,
    ),
    (
        "staged_bytes_per_replica",
        _staged(int, "Parts of one replica that wait for their commit.", "BYTES", 1),
        STAGED_BYTES_PER_REPLICA,
    ),
    (
        "staged_keep_s",
        _staged(float, "Seconds without use after which a query's parts are dropped.", "S", 0),
        STAGED_KEEP_S,
    ),
)


def on_cores(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of threads and transport to a command. It must take ``running``, a dict of fields of Settings."""

    def convert(values: dict[str, Any]) -> Any:
        return {**values, "transport": values["transport"].value}

    return with_options(command, "running", _RUNNING, convert)


def keeping(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the kept output to a command. It must take ``kept``, a dict of fields of Settings."""

    def convert(values: dict[str, Any]) -> Any:
        return {**values, "store_sync": values["store_sync"].value}

    return with_options(command, "kept", _KEEPING, convert)


def comparing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the comparison to a command. It must take ``compared``, a dict of fields of Settings."""

    def convert(values: dict[str, Any]) -> Any:
        policy = values.pop("on_divergence")
        return {**values, "divergence": policy.value}

    return with_options(command, "compared", _COMPARING, convert)


def staging(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of staging to a command. It must take ``staged``, a dict of fields of Settings."""
    return with_options(command, "staged", _STAGING, lambda values: values)
