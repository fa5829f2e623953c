"""The error tree. Every error says what was attempted, what was wrong, and where.

::

    LmergeError
    ├── InputViolation        a replica broke a promise of its own input; only that input ends
    ├── UsageError            the caller asked for something that cannot be done; nothing has changed
    │   ├── UnknownMerge      no merge of that name
    │   ├── UnknownInput      no input of that name is, or was, attached
    │   ├── InputTaken        a live input has that name, and the newcomer is not a newer incarnation
    │   ├── StaleIncarnation  an incarnation older than one already seen (a zombie)
    │   ├── PropertiesTooWeak an input promises less than a fixed algorithm needs
    │   ├── InvalidBatch      columns that disagree, unknown kinds, times out of range
    │   ├── InvalidRow        a row that does not fit its declared schema
    │   ├── MalformedLine     a line of a recorded session that cannot be read
    │   └── LimitExceeded     a batch, payload, queue or count above its documented limit
    └── Unavailable           nobody's fault: try again, perhaps elsewhere
        ├── ServerGone        the server cannot be reached or went away
        ├── Draining          the server is shutting down and takes nothing new
        ├── SubscriberTooSlow the subscriber was cut off because its queue was full; resync by snapshot
        └── AddressInUse      the address to listen on is taken
"""

from __future__ import annotations


class LmergeError(Exception):
    """Root of all errors that lmerge raises on purpose."""


class InputViolation(LmergeError):
    """An input broke a promise: which input, which element, what was promised, what came.

    ``code`` is a short stable word for metrics and tests, such as ``insert-below-stable``.
    ``property_word`` names the broken property where a weaker algorithm could still take the element
    (``insert-only``, ``ordered``, ``strictly-ordered``, ``deterministic-ties``, ``key``), else None.
    ``index`` is the position of the element in its batch.
    """

    def __init__(
        self, code: str, input_name: str, element: str, promised: str, came: str,
        *, index: int = 0, property_word: str | None = None,
    ) -> None:
        what = f"input {input_name!r} broke its promise ({code}) with {element}"
        super().__init__(f"{what}: promised {promised}, but {came}")
        self.code = code
        self.input_name = input_name
        self.element = element
        self.promised = promised
        self.came = came
        self.index = index
        self.property_word = property_word


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


class PropertiesTooWeak(UsageError):
    """An input promises less than a fixed algorithm needs."""


class InvalidBatch(UsageError):
    """A batch whose columns disagree or hold impossible values."""


class InvalidRow(UsageError):
    """A row that does not fit its declared schema."""


class MalformedLine(UsageError):
    """A line of a recorded session that cannot be read. ``line`` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


class LimitExceeded(UsageError):
    """Something is larger than its documented limit."""


class Unavailable(LmergeError):
    """Nobody's fault; trying again, perhaps elsewhere, can help."""


class ServerGone(Unavailable):
    """The server cannot be reached, or went away."""


class Draining(Unavailable):
    """The server is shutting down and takes nothing new."""


class SubscriberTooSlow(Unavailable):
    """The subscriber did not read fast enough and was cut off; a new subscription starts with a snapshot."""


class AddressInUse(Unavailable):
    """The address to listen on is taken."""
