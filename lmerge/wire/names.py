"""The one rule for names: of merges, replicas, subscribers, queries, columns, and of the owners of tokens.

Names are labels of metrics, parts of messages and of file names, and words on an operator's terminal. Servers check
them where they enter, clients and commands before they are sent:

- 1 to ``NAME_BYTES`` bytes in UTF-8;
- every character is printable (``str.isprintable``): no control characters (ESC, CSI, newline), no format characters
  (bidirectional overrides, zero-width joiners, byte order marks), no surrogates, no separators but the space, nothing
  that Unicode has not assigned. Two names that look the same on a terminal would otherwise be different names;
- no blank at the beginning or the end, where nobody sees it.

Letters of all scripts are welcome. No normalization takes place: names are equal if their bytes are.
"""

from __future__ import annotations

from typing import Final

from lmerge.errors import UsageError

# Labels of metrics and parts of messages, not documents.
NAME_BYTES: Final = 200
# How much of a wrong name a message repeats, in characters.
_SHOWN: Final = 60


def check_name(what: str, name: str) -> None:
    """Raise UsageError, which repeats the beginning of the name, if ``name`` cannot name a ``what``."""
    problem = problem_of(name)
    if problem is not None:
        raise UsageError(f"the name of a {what} {problem}{_repeated(name)}")


def cut_name(name: str) -> str:
    """As much of a name that only its length forbids as the rule allows."""
    return name.encode()[:NAME_BYTES].decode(errors="ignore").strip()


def check_sendable(what: str, name: str) -> None:
    """Raise UsageError if ``name`` cannot be asked for at all, as it is no text. Servers may have names from before the
    rule, which can still be looked at, and put away.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name of a {what} must be text, not {name[:_SHOWN]!r}") from None


def is_name(name: str) -> bool:
    """Whether the rule allows ``name``."""
    return problem_of(name) is None


def problem_of(name: str) -> str | None:
    """What is wrong with ``name``, to stand behind "the name of a merge"; None: nothing."""
    if not name:
        return "must not be empty"
    # First: a surrogate, which has no bytes, is not printable either.
    if not name.isprintable():
        return "must be printable, without control, format or unassigned characters"
    size = len(name.encode())
    if size > NAME_BYTES:
        return f"has {size} bytes, above the limit of {NAME_BYTES}"
    if name != name.strip():
        return "must not begin or end with a blank"
    return None


def _repeated(name: str) -> str:
    """The beginning of a wrong name, with everything escaped that is not printable."""
    if not name:
        return ""
    return f": {name[:_SHOWN]!r}{'...' if len(name) > _SHOWN else ''}"
