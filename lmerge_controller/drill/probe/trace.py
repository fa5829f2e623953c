"""The recording of what a reader received: one JSON line a batch, with the local time of receipt.

The reader's process writes it, the judge reads it. It is the evidence of a drill, and can be judged again.

    {"at": 81.52, "rows": [["insert", vs, ve, 0, "probe-..."], ["stable", vc, 0, 0, ""]]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lmerge.core.elements import ADJUST, INSERT
from lmerge.errors import StoreDamaged
from lmerge_controller.drill.judging.judge import ADJUST as ADJUST_NAME
from lmerge_controller.drill.judging.judge import INSERT as INSERT_NAME
from lmerge_controller.drill.judging.judge import STABLE as STABLE_NAME
from lmerge_controller.drill.judging.judge import DeliveredElement

_NAMES: Final = {INSERT: INSERT_NAME, ADJUST: ADJUST_NAME}


def trace_line(rows: Iterable[tuple[int, int, int, int, bytes]], at_s: float) -> bytes:
    """Return the line of one batch that came at monotonic time ``at_s``."""
    items = [
        [_NAMES.get(kind, STABLE_NAME), vs, ve, vold, payload.decode("latin-1")] for kind, vs, ve, vold, payload in rows
    ]
    return json.dumps({"at": at_s, "rows": items}, separators=(",", ":")).encode() + b"\n"


def read_trace(path: Path) -> Iterator[tuple[float, list[DeliveredElement]]]:
    """Yield the batches of a recording: the time of receipt and the elements. Raises OSError, StoreDamaged."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # the reader was killed while it wrote
            try:
                item = json.loads(line)
                yield float(item["at"]), [DeliveredElement(*row) for row in item["rows"]]
            except (ValueError, TypeError, KeyError):
                raise StoreDamaged(f"line {number} of the recording {path} cannot be read: {line!r:.80}") from None
