"""What an alert is: a condition on metrics, for how long, what it means, and two examples.

Texts contain ``{{ $labels.NAME }}`` and ``{{ $value }}`` of Prometheus. A condition contains ``{window}`` where a range
of time stands, and ``{seconds}`` where the same time stands as a number. All times of an alert are multiplied by the
factor of a ``Pace``, so that a test on a real Prometheus need not wait for minutes: the condition stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

RUNBOOKS: Final = "https://lmerge.dev/docs/runbooks"
"""Where the pages of docs/runbooks are read. The chart's value ``monitoring.runbooks`` replaces it."""
EVERY: Final = "cluster, namespace, job"
"""The labels that distinguish installations. A server is one ``instance`` of an installation."""


class Severity(Enum):
    """Who acts, and when."""

    CRITICAL = "critical"  # a person, now: the output stands, or the next fault stops it
    WARNING = "warning"  # a person, today: something that is relied on does not work


class AlertExample(NamedTuple):
    """Samples, one every 15 s, and the time at which the alert fires on them with these labels, or does not fire.

    ``series``: the notation of promtool by series, such as ``{'up{job="a"}': "1x8 0x20"}``. ``at_s``: when the rule
    is evaluated. ``labels``: of the alert that fires, without its own name and severity; None if it must not fire.
    ``value``: what ``{{ $value }}`` becomes.
    """

    series: Mapping[str, str]
    at_s: float
    labels: Mapping[str, str] | None = None
    value: str = ""


class Alert(NamedTuple):
    """A rule of Prometheus, with what proves it. ``topic``: the group in which it stands."""

    name: str
    topic: str
    severity: Severity
    condition: str
    for_s: float
    summary: str
    description: str
    fires: AlertExample
    stays_silent: AlertExample
    window_s: float = 0.0

    @property
    def runbook(self) -> str:
        """The name of its page: the alert's name in small letters with hyphens, without the product."""
        return "-".join(re.findall("[A-Z][a-z]+", self.name)[1:]).lower()


class Pace(NamedTuple):
    """How fast alerts are: ``factor`` multiplies the windows and the ``for``; ``evaluation_s`` is the rules' interval.

    No window becomes shorter than ``window_s_min``, because a rate needs several scrapes.
    """

    factor: float = 1.0
    evaluation_s: float = 15.0
    window_s_min: float = 0.0

    def condition(self, alert: Alert) -> str:
        """Return the expression of an alert."""
        window_s = self.window_s(alert)
        return alert.condition.replace("{window}", duration(window_s)).replace("{seconds}", f"{window_s:g}")

    def window_s(self, alert: Alert) -> float:
        """Return the window of an alert, in seconds."""
        return max(alert.window_s * self.factor, self.window_s_min)

    def held(self, alert: Alert) -> str:
        """Return for how long the condition must hold, as Prometheus writes it."""
        return duration(alert.for_s * self.factor)


def runbook_url(name: str) -> str:
    """Return the address of the runbook of this name, such as ``gap``."""
    return f"{RUNBOOKS}/{name}.html"


def duration(seconds: float) -> str:
    """Return a duration as Prometheus writes it, in the largest unit that is exact to a millisecond."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"
