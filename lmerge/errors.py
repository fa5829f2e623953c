"""The error tree. The message of every error names what was attempted, what was wrong, and where.

::

    LmergeError
    ├── InputViolation        a replica broke a promise of its own input; only that input ends
    ├── UsageError            the caller asked for something that cannot be done; nothing has changed
    │   ├── UnknownMerge      no merge of that name
    │   ├── UnknownInput      no input of that name is, or was, attached
    │   ├── InputTaken        a live input has that name, and the newcomer is not a newer incarnation
    │   ├── StaleIncarnation  an incarnation older than one already seen (a zombie)
    │   ├── Unauthenticated   no credentials, or none that are valid now
    │   ├── PermissionDenied  the credentials do not allow this for this merge, or this replica name
    │   │   └── Quarantined   the input differed from the others, or an administrator quarantined it
    │   ├── PropertiesTooWeak an input promises less than a fixed algorithm needs
    │   ├── InvalidBatch      columns that disagree, unknown kinds, times out of range
    │   │   └── Undecodable   bytes that are no message of the type that the call takes
    │   ├── InvalidRow        a row that does not fit its declared schema
    │   ├── MalformedLine     a line of a recorded session that cannot be read
    │   ├── OutOfRange        a resume token is older than what is retained
    │   │   └── MergeReset    the merge was reset; a stream from before the reset cannot go on
    │   └── LimitExceeded     a batch, payload, queue or count above its documented limit
    └── Unavailable           not caused by the caller: try again, perhaps elsewhere
        ├── ServerGone        the server cannot be reached or went away
        ├── Draining          the server is shutting down and takes nothing new
        ├── OutputGap         the output goes on at a later time; a new subscription reports where
        ├── TooOften          attempts came faster than is allowed; later ones will succeed
        ├── SubscriberTooSlow the subscriber was cut off because its queue was full; resync by snapshot
        ├── StoreDamaged      the file of a merge, or of a query's spool, is damaged; it was not opened
        │   └── MergeSpoiled  the file is whole, but the merge in it is impossible; `lmerge reset` empties it
        ├── StoreFull         the store of a merge, or the spool of a query, cannot be written at present
        ├── StoreInUse        another server has the store
        └── AddressInUse      the address to listen on is taken
"""

from __future__ import annotations

from typing import Final


class LmergeError(Exception):
    """Root of all errors that lmerge raises on purpose."""


class InputViolation(LmergeError):
    """An input broke a promise. The message names the input, the element, what was promised and what came.

    ``code`` is a short stable name for metrics and tests, such as ``insert-below-stable``.
    ``property_name`` is the broken property where a weaker algorithm could still take the element
    (``insert-only``, ``ordered``, ``strictly-ordered``, ``deterministic-ties``, ``key``), else None.
    ``index`` is the position of the element in its batch.
    """

    def __init__(
        self,
        code: str,
        input_name: str,
        element: str,
        promised: str,
        came: str,
        *,
        index: int = 0,
        property_name: str | None = None,
    ) -> None:
        what = f"input {input_name!r} broke its promise ({code}) with {element}"
        super().__init__(f"{what}: promised {promised}, but {came}")
        self.code = code
        self.input_name = input_name
        self.element = element
        self.promised = promised
        self.came = came
        self.index = index
        self.property_name = property_name


class UsageError(LmergeError):
    """The caller's mistake; nothing has changed."""


class UnknownMerge(UsageError):
    """No merge of that name."""


class UnknownInput(UsageError):
    """No input of that name is, or was, attached."""


class InputTaken(UsageError):
    """A live input has that name and the newcomer is not a newer incarnation of it."""


class StaleIncarnation(UsageError):
    """An incarnation that is not newer than the newest one seen under that name."""


class Unauthenticated(UsageError):
    """The caller has presented no credentials, or none that are valid now."""


class PermissionDenied(UsageError):
    """The caller is authenticated, but may not do this: not in this merge, or not under this name."""


class Quarantined(PermissionDenied):
    """A replica that may not attach until it is released.

    Its events differed from the others', or an administrator detached it with quarantine.
    """


class PropertiesTooWeak(UsageError):
    """An input promises less than a fixed algorithm needs."""


class InvalidBatch(UsageError):
    """A batch whose columns disagree or hold impossible values."""


class Undecodable(InvalidBatch):
    """The bytes of a call are no message of the type that the call takes."""


class InvalidRow(UsageError):
    """A row that does not fit its declared schema."""


class MalformedLine(UsageError):
    """A line of a recorded session that cannot be read. ``line`` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


class OutOfRange(UsageError):
    """A resume token is older than what the server retains; the message names what it does retain."""


class MergeReset(OutOfRange):
    """An administrator has reset the merge: a new epoch began, empty. Tokens of other epochs cannot be resumed."""


class LimitExceeded(UsageError):
    """Something is larger than its documented limit."""


class Unavailable(LmergeError):
    """Root of errors that the caller did not cause; trying again, perhaps elsewhere, can help."""


class ServerGone(Unavailable):
    """The server cannot be reached, or went away."""


class Draining(Unavailable):
    """The server is shutting down and takes nothing new."""

    MESSAGE: Final = "the server is draining; try another server, or this one later"


class OutputGap(Unavailable):
    """No input could supply a stretch of time any more, and the output goes on behind it.

    A new subscription reports where it is complete from.
    """


class TooOften(Unavailable):
    """Attempts came faster than is allowed; later attempts will succeed."""


class SubscriberTooSlow(Unavailable):
    """The subscriber did not read fast enough and was cut off; a new subscription starts with a snapshot."""


class StoreDamaged(Unavailable):
    """The file of a merge is damaged, so the merge was not opened; the message names the file and what can be done."""


class MergeSpoiled(StoreDamaged):
    """The file of a merge is whole, but what it declares is impossible, such as its schema; the message names it."""


class StoreFull(Unavailable):
    """The store of a merge cannot be written at present: the disk is full, or fails. Nothing is lost."""


class StoreInUse(Unavailable):
    """Another server has the store."""


class AddressInUse(Unavailable):
    """The address to listen on is taken."""
