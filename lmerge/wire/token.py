"""Resume tokens: ``MERGE@T``, the time up to which a reader has the final result.

A token is logical time, so it is valid at any server of the merge. It names the merge, because a time of another merge
would be accepted and would silently lose events. For the same reason it names the merge's epoch once an administrator
has reset it: ``MERGE@EPOCH/T``; epoch 0, that of a merge that was never reset, is left out. A token of minus infinity
means that nothing was read, and is valid in every epoch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError

# The epoch of a reset is the time in seconds since 1970, unless an administrator gives another number.
EPOCH_MAX: Final = 2**63 - 1
# Trailing metadata: a token is refused, or a subscription ended, for its epoch and not for its time.
ERROR_KEY: Final = "lmerge-error"
MERGE_RESET: Final = "merge-reset"


class Token(NamedTuple):
    """The content of a token beside the merge's name. ``epoch`` None: any."""

    epoch: int | None
    time: int


def format_token(merge: str, stable_point: int, epoch: int = 0) -> str:
    """Return the token of a reader of ``merge`` in ``epoch`` that has seen ``stable_point``."""
    return f"{merge}@{f'{epoch}/' if epoch and stable_point > NEG_INF else ''}{show_time(stable_point)}"


def parse_token(token: str, merge: str) -> int:
    """Return the time of a token for ``merge``. Raises UsageError if it is damaged or of another merge."""
    return read_token(token, merge).time


def read_token(token: str, merge: str) -> Token:
    """Return epoch and time of a token for ``merge``. Raises UsageError if it is damaged or of another merge."""
    name, separator, time = token.rpartition("@")
    if not separator or not name:
        raise UsageError(f"cannot resume: {token!r:.80} is no resume token; one looks like {merge}@1357023600000000")
    if name != merge:
        raise UsageError(f"cannot resume merge {merge!r} with token {token!r:.80}: it is one of merge {name!r}")
    before, slash, after = time.rpartition("/")
    if slash and not (before.isascii() and before.isdigit() and len(before) <= 19 and 0 < int(before) <= EPOCH_MAX):
        raise UsageError(f"cannot resume merge {merge!r}: {before!r:.40} in token {token!r:.80} is no epoch")
    at = _time_of(after, merge, token)
    return Token(None if at == NEG_INF else int(before or 0), at)


def _time_of(time: str, merge: str, token: str) -> int:
    infinities = {show_time(INF): INF, show_time(NEG_INF): NEG_INF}
    if time in infinities:
        return infinities[time]
    digits = time.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19  # as many as 2^63 has
    if not is_number or not NEG_INF <= int(time) <= INF:
        raise UsageError(f"cannot resume merge {merge!r}: {time!r:.40} in token {token!r:.80} is not a 64-bit time")
    return int(time)
