"""The rule for names: of merges, replicas, subscribers, queries, columns, and of the owners of tokens.

Names are labels of metrics, parts of messages and of file names, and text on an operator's terminal. Servers check
them where they enter, clients and commands before they are sent:

- 1 to ``NAME_BYTES`` bytes in UTF-8;
- every character is printable (``str.isprintable``): no control characters (ESC, CSI, newline), no format characters
  (bidirectional overrides, zero-width joiners, byte order marks), no surrogates, no separators but the space, nothing
  that Unicode has not assigned. Two names that look the same on a terminal would otherwise be different names;
- no blank at the beginning or the end, where it cannot be seen.

Letters of all scripts are welcome. No normalization takes place: names are equal if their bytes are.
"""

from __future__ import annotations

from typing import Final

from lmerge.errors import UsageError

# Labels of metrics and parts of messages, not documents.
NAME_BYTES: Final = 200
# How many characters of a wrong name a message repeats.
_SHOWN: Final = 60


def check_name(what: str, name: str) -> None:
    """Raise UsageError, which repeats the beginning of the name, if ``name`` cannot name a ``what``."""
    problem = problem_of(name)
    if problem is not None:
        raise UsageError(f"the name of a {what} {problem}{_repeated(name)}")


def cut_name(name: str) -> str:
    """Return as much of a name as the rule allows, if only its length is wrong."""
    return name.encode()[:NAME_BYTES].decode(errors="ignore").strip()


def check_sendable(what: str, name: str) -> None:
    """Raise UsageError if ``name`` cannot be sent in a request because it is no text.

    Servers may have names from before the rule; requests may still describe and detach them.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name of a {what} must be text, not {name[:_SHOWN]!r}") from None


def problem_of(name: str) -> str | None:
    """Return what is wrong with ``name``, to stand behind "the name of a merge"; None: nothing."""
    if not name:
        return "must not be empty"
    # Checked first: a surrogate, which has no bytes, is not printable either.
    if not name.isprintable():
        return "must be printable, without control, format or unassigned characters"
    size = len(name.encode())
    if size > NAME_BYTES:
        return f"has {size} bytes, above the limit of {NAME_BYTES}"
    if name != name.strip():
        return "must not begin or end with a blank"
    return None


def _repeated(name: str) -> str:
    """Return the beginning of a wrong name, with everything escaped that is not printable."""
    if not name:
        return ""
    return f": {name[:_SHOWN]!r}{'...' if len(name) > _SHOWN else ''}"
