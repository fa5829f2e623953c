"""Resume tokens: ``MERGE@T``, the time up to which a reader knows everything for good.

A token is logical time, so it is valid at any server of the merge. It names the merge, because a time of another one
would be taken for a good one and lose events without a word.
"""

from __future__ import annotations

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError


def format_token(merge: str, stable_point: int) -> str:
    """The token of a reader of ``merge`` that has seen ``stable_point``."""
    return f"{merge}@{show_time(stable_point)}"


def parse_token(token: str, merge: str) -> int:
    """The time of a token for ``merge``. Raises UsageError if it is damaged or of another merge."""
    name, separator, time = token.rpartition("@")
    if not separator or not name:
        raise UsageError(f"cannot resume: {token!r:.80} is no resume token; one looks like {merge}@1357023600000000")
    if name != merge:
        raise UsageError(f"cannot resume merge {merge!r} with token {token!r:.80}: it is one of merge {name!r}")
    words = {show_time(INF): INF, show_time(NEG_INF): NEG_INF}
    if time in words:
        return words[time]
    digits = time.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 19  # as many as 2^63 has
    if not is_number or not NEG_INF <= int(time) <= INF:
        raise UsageError(f"cannot resume merge {merge!r}: {time!r:.40} in token {token!r:.80} is not a 64-bit time")
    return int(time)
