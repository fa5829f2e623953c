"""Structured logging: the name of an event and its fields, as text or as JSON.

    log.event(logging.INFO, "input attached", merge="flights", input="a")

The message is ``input attached merge='flights' input='a'``. The record carries the fields, and ``JsonFormatter`` writes
them as one object a line.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from lmerge.wire.shown import escaped_json

logger = logging.getLogger("lmerge.service")


def event(level: int, what: str, **fields: object) -> None:
    """Log the event ``what`` with its fields."""
    if logger.isEnabledFor(level):
        text = "".join(f" {name}={value!r}" for name, value in fields.items())
        logger.log(level, "%s%s", what, text, extra={"event": what, "fields": fields})


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object a line: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        item: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        item.update(getattr(record, "fields", {}))
        if record.exc_info:
            item["exception"] = self.formatException(record.exc_info)
        return escaped_json(json.dumps(item, ensure_ascii=False, default=str))
