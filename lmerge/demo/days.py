"""Which days of 2013 the demo replays. Called by the command ``lmerge demo``."""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

from lmerge.errors import UsageError
from lmerge_replicas.flights.source import Days


def parse_days(months: str, days: int | None) -> Days:
    """Return ``--months`` and ``--days`` as a range of days. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", months.strip())
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last <= 12:
        raise UsageError(f"--months {months!r} cannot be read: give one month or two, such as 2 or 1-3")
    start, end = date(2013, first, 1), date(2013, last, calendar.monthrange(2013, last)[1])
    return Days(start, end if days is None else min(end, start + timedelta(days=days - 1)))
