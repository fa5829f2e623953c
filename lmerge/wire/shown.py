r"""Text from outside (names, reasons, payloads) in a form that a terminal, a log or a status message may show.

A terminal obeys control characters: ESC sequences move the cursor, rename the window or hide what follows, and
bidirectional overrides show text in another order than it has. So every character that is not printable is escaped as
in a literal of Python (``\x1b``, ``\u202e``). All escaping is done here.
"""

from __future__ import annotations

import json
import re
from typing import Final


def escaped(text: str, *, keep_lines: bool = True) -> str:
    r"""Return ``text`` with every character escaped that is not printable; newlines only without ``keep_lines``.

    >>> escaped("a\x1b[31mb\u202e")
    'a\\x1b[31mb\\u202e'
    """
    lines = text.split("\n") if keep_lines else [text]
    return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)


def escaped_line(text: str) -> str:
    """Return ``text`` as ``escaped`` does, with newlines escaped as well."""
    return escaped(text, keep_lines=False)


def escaped_json(text: str) -> str:
    """Return JSON text, of one line or several, with unprintable characters escaped: the same JSON value."""
    return "\n".join(
        line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
        for line in text.split("\n")
    )


def _escaped(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


_CUT: Final = "... (cut)"
# What gRPC sends as it is in a status message; every other byte becomes three. A client may refuse metadata of more
# than 8 KiB in all, with an error that names only that.
_PLAIN: Final = re.compile(rb"[ -$&-~]")
STATUS_BYTES_MAX: Final = 4096


def status_text(text: str) -> str:
    """Return ``text`` for a gRPC status message: escaped, and cut to ``STATUS_BYTES_MAX`` bytes as they are sent."""
    text = escaped(text)
    if 3 * len(text.encode()) <= STATUS_BYTES_MAX:
        return text
    size, end = 0, 0
    for end, character in enumerate(text):
        data = character.encode()
        size += 3 * len(data) - 2 * len(_PLAIN.findall(data))
        if size > STATUS_BYTES_MAX - len(_CUT):
            return text[:end] + _CUT
    return text
