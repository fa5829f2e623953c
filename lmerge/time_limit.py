"""A limit on the time of an await, which never loses a cancellation.

``asyncio.wait_for`` of Python 3.10 and 3.11 does: if what it awaits ends in the same turn of the loop in which its task
is cancelled, it returns the result, and the task runs on. Who cancelled the task and waits for its end then waits
forever (CPython issue 86296, mended in 3.12 by what is used here). The linter refuses ``wait_for`` for this reason.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit

__all__ = ["time_limit"]
