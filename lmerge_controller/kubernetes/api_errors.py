"""Errors of the Kubernetes API, by what the caller can do about them.

::

    ApiProblem              a call failed; the message names the verb, the resource and the object
    ├── ApiUnreachable      no answer in time: the call may have taken effect
    ├── ObjectMissing       404: the object is gone, or its kind is not installed
    ├── ObjectExists        409: an object of that name exists
    ├── WriteConflict       409: the object has changed since it was read; read again and decide again
    ├── HistoryGone         410: the watch cannot go on from there; list again
    ├── NotAllowed          401, 403: credentials or RBAC; ``missing`` names the right
    ├── ObjectRefused       400, 422: the object is wrong, by the schema or by an admission rule
    └── Throttled           429, 503: later; ``retry_after_s`` is the server's own wish, or None
"""

from __future__ import annotations

import json
from typing import Any, Final

from lmerge.errors import Unavailable

# A server's wish above this is not followed: a wrong header must not stop the controller for an hour.
RETRY_AFTER_S_MAX: Final = 60.0
# The longest part of an answer that is no JSON which is quoted in a message.
_QUOTE_MAX: Final = 200


class ApiProblem(Unavailable):
    """A call to the Kubernetes API failed. ``status`` is the HTTP status, 0 if there was no answer."""

    def __init__(self, attempted: str, problem: str, status: int = 0) -> None:
        super().__init__(f"cannot {attempted}: {problem}")
        self.attempted = attempted
        self.problem = problem
        self.status = status


class ApiUnreachable(ApiProblem):
    """The API server gave no answer in time. A write may have taken effect."""


class ObjectMissing(ApiProblem):
    """There is no such object, or no such kind."""


class ObjectExists(ApiProblem):
    """An object of that name exists already."""


class WriteConflict(ApiProblem):
    """The object has changed since it was read."""


class HistoryGone(ApiProblem):
    """The API server does not keep changes from so long ago."""


class NotAllowed(ApiProblem):
    """The credentials are not valid, or RBAC does not allow the call. ``missing`` names verb and resource."""

    def __init__(self, attempted: str, problem: str, status: int, missing: str) -> None:
        super().__init__(attempted, problem, status)
        self.missing = missing


class ObjectRefused(ApiProblem):
    """The API server refuses the object as it is. Trying again with the same object cannot help."""


class Throttled(ApiProblem):
    """The API server is too busy. ``retry_after_s`` is what its answer asks for, in seconds, or None."""

    def __init__(self, attempted: str, problem: str, status: int, retry_after_s: float | None) -> None:
        super().__init__(attempted, problem, status)
        self.retry_after_s = retry_after_s


def problem_of(attempted: str, right: str, status: int, body: bytes, retry_after: str | None = None) -> ApiProblem:
    """Return the error for an answer with a status of 400 or above.

    ``attempted`` is the call for people, ``right`` its verb and resource as RBAC names them.
    """
    answer = _status_object(body)
    message = str(answer.get("message") or "")[: _QUOTE_MAX * 5]
    problem = f"{status} {answer.get('reason') or ''}: {message}".replace(" :", ":")
    if status == 404:
        return ObjectMissing(attempted, problem, status)
    if status == 409:
        kind = ObjectExists if answer.get("reason") == "AlreadyExists" else WriteConflict
        return kind(attempted, problem, status)
    if status == 410:
        return HistoryGone(attempted, problem, status)
    if status in (401, 403):
        return NotAllowed(attempted, problem, status, right)
    if status in (429, 503, 504):
        return Throttled(attempted, problem, status, _seconds(retry_after))
    if status in (400, 405, 415, 422):
        return ObjectRefused(attempted, problem, status)
    return ApiProblem(attempted, problem, status)


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {"message": body[:_QUOTE_MAX].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"message": str(answer)[:_QUOTE_MAX]}


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a header ``Retry-After``, or None if it holds no number: dates are not followed."""
    try:
        wish = float(header or "")
    except ValueError:
        return None
    return min(wish, RETRY_AFTER_S_MAX) if wish >= 0 else None
