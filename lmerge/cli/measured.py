"""The options with which a command that publishes or reads exports metrics of its own.

    @measured
    def subscribe(merge: Merge, *, metrics: Any) -> None: ...

The command gets ``metrics``: a ``ClientMetrics`` that is served already, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.cli.options import Option, with_options


class TimeUnit(str, Enum):
    """Values of ``--metrics-time-unit``."""

    MICROSECONDS = "us"
    MILLISECONDS = "ms"
    SECONDS = "s"


# As ``asked_metrics`` and ``lmerge.spark`` read them.
PORT_VARIABLE: Final = "LMERGE_METRICS_PORT"
HOST_VARIABLE: Final = "LMERGE_METRICS_HOST"
UNIT_VARIABLE: Final = "LMERGE_METRICS_UNIT"

_PORT: Final = typer.Option(
    help="Serve metrics of this process at /metrics; 0: any free port.",
    envvar=PORT_VARIABLE,
    min=0,
    max=65535,
    rich_help_panel="Metrics",
)
_HOST: Final = typer.Option(
    help="The address on which they are served, without encryption.", envvar=HOST_VARIABLE, rich_help_panel="Metrics"
)
_UNIT: Final = typer.Option(
    help="Measure freshness: the stream's times are these units since 1970.",
    envvar=UNIT_VARIABLE,
    rich_help_panel="Metrics",
)
_OPTIONS: Final[tuple[Option, ...]] = (
    ("metrics_port", Annotated[int | None, _PORT], None),
    ("metrics_host", Annotated[str, _HOST], "127.0.0.1"),
    ("metrics_time_unit", Annotated[TimeUnit | None, _UNIT], None),
)


def measured(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command. It must take ``metrics``, a ClientMetrics or None."""

    def convert(values: dict[str, Any]) -> Any:
        port, unit = values["metrics_port"], values["metrics_time_unit"]
        return None if port is None else served(port, values["metrics_host"], None if unit is None else unit.value)

    return with_options(command, "metrics", _OPTIONS, convert)


def measured_later(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command whose publisher is made elsewhere in this process.

    It must take ``metrics``: a dict of the environment in which ``asked_metrics`` and ``lmerge.spark`` find them.
    """

    def convert(values: dict[str, Any]) -> dict[str, str]:
        if values["metrics_port"] is None:
            return {}
        unit = values["metrics_time_unit"]
        asked = {PORT_VARIABLE: str(values["metrics_port"]), HOST_VARIABLE: values["metrics_host"]}
        return asked if unit is None else asked | {UNIT_VARIABLE: unit.value}

    return with_options(command, "metrics", _OPTIONS, convert)


def served(port: int, host: str, time_unit: str | None) -> Any:
    """Serve metrics from now to the end of the process; return their ClientMetrics. Raises AddressInUse, UsageError."""
    from prometheus_client import CollectorRegistry

    from lmerge.client.metrics import ClientMetrics, export

    registry = CollectorRegistry()
    metrics = ClientMetrics(registry, time_unit=time_unit)
    bound = export(registry, port, host)
    terminal.error(f"metrics at http://{host}:{bound.port}/metrics")
    return metrics
