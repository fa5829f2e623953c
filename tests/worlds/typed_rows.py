"""Rows with a column of every type, as users have them, with values at the edges of their types."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

EVERY_TYPE: dict[str, object] = {
    "b": "bool",
    "i": "int?",
    "f": "float(2)",
    "s": "string",
    "y": "bytes",
    "t": "timestamp",
    "d": "date",
    "m": "decimal(2)?",
    "l": "list<decimal(1)>",
    "r?": {"x": "int", "y": "list<string?>"},
}
TYPED_ROWS: list[dict[str, Any]] = [
    {
        "b": True,
        "i": None,
        "f": -0.0,
        "s": "é",
        "y": b"\0",
        "t": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "d": date(1969, 12, 31),
        "m": Decimal("-1.50"),
        "l": [Decimal("0.5"), Decimal("-0.0")],
        "r": {"x": 1, "y": ["a", None]},
    },
    {
        "b": False,
        "i": -5,
        "f": float("nan"),
        "s": "",
        "y": b"",
        "t": datetime(1969, 12, 31, 23, 59, tzinfo=timezone.utc),
        "d": date(2026, 1, 1),
        "m": None,
        "l": [],
        "r": None,
    },
]
