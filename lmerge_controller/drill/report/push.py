"""Sends the results of drills to a Pushgateway of Prometheus: for jobs of Kubernetes, which no scrape finds.

Each drill has a group of its own, ``job="lmerge-drill", drill=NAME`` and the namespace of the pod. A push replaces the
metrics that it has and leaves the others of its group: the last success stays when a run fails. Counts are not pushed,
because a pod does not know those of the runs before.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.report.metrics import FAILED, REFUSED, report_metrics
from lmerge_controller.drill.report.result import DrillResult

JOB: Final = "lmerge-drill"
# A gateway that does not answer must not keep the job from its end.
ANSWER_S_MAX: Final = 10.0


def check_gateway(url: str) -> None:
    """Raise UsageError if ``url`` is no address of a Pushgateway."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"a Pushgateway is named as http://HOST:PORT, not {url!r}")


def push(url: str, result: DrillResult, environment: Mapping[str, str] = os.environ) -> None:
    """Push the metrics of one drill. Raises Unavailable with the reason."""
    names = {"job": JOB, "drill": result.scenario.name}
    if environment.get("POD_NAMESPACE"):
        names["namespace"] = environment["POD_NAMESPACE"]
    group = "/".join(f"{name}/{quote(value, safe='')}" for name, value in names.items())
    request = urllib.request.Request(
        f"{url.rstrip('/')}/metrics/{group}", data=_gauges(result).encode(), headers={"Content-Type": "text/plain"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S_MAX):
            return
    except urllib.error.HTTPError as error:
        answer = error.read(1000).decode("utf-8", "replace").strip()
        problem = f"{error.code} {answer or error.reason}"
    except OSError as error:
        problem = str(getattr(error, "reason", error))
    raise Unavailable(f"{url} has not taken the result of {result.scenario.name}: {problem}")


def _gauges(result: DrillResult) -> str:
    lines = report_metrics([result]).splitlines(keepends=True)
    return "".join(line for line in lines if FAILED not in line and REFUSED not in line)
