"""What is counted: rows by key, in windows of 10 seconds. Only the standard library, because every peer imports it."""

from __future__ import annotations

from typing import Final

BEGIN_MS: Final = 1_700_000_000_000
WINDOW_MS: Final = 10_000
LATE_MS: Final = 2_000
DELAY_MS: Final = 4_000
"""How far a row may be behind the newest one: twice the disorder of the recording."""
KEYS: Final = 1_000
COLUMNS: Final = ("window_start", "key", "n")
"""Of the result."""
