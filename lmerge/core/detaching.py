"""The ends of inputs: why an input was detached, as a value for code and as a sentence for people."""

from __future__ import annotations

from typing import NamedTuple

from lmerge.errors import InputViolation
from lmerge.text_enum import TextEnum


class DetachCause(TextEnum):
    """Why an input ended. The text of a member is its label in ``lmerge_detached_inputs_total``.

    The label of a broken promise is the code of the violation: see ``InputDetached.label``.
    """

    LEFT = "left"  # its publisher has left, or the caller detached it
    REPLACED = "replaced"  # by a newer incarnation
    BROKEN_PROMISE = "broken-promise"
    CONNECTION_ENDED = "connection-ended"
    REFUSED = "refused"  # its stream broke a rule of the protocol
    INVALID_ROW = "invalid-row"
    LIMIT_EXCEEDED = "limit-exceeded"
    QUARANTINED = "quarantined"
    EXPELLED = "detached"  # by an administrator, or by a policy that cannot quarantine more names
    GAP = "gap"  # the merge began anew behind a gap
    RESET = "reset"  # an administrator began a new epoch


class InputDetached(NamedTuple):
    """The end of an input. ``reason``: a sentence. ``violation``: the broken promise, None for other causes."""

    input: str
    incarnation: int
    cause: DetachCause
    reason: str
    violation: InputViolation | None = None

    @property
    def label(self) -> str:
        """The cause as metrics count it: the code of the violation, or the text of the cause."""
        return self.cause if self.violation is None else self.violation.code


def broken_promise(input_name: str, incarnation: int, violation: InputViolation) -> InputDetached:
    """Return the end of an input that broke a promise."""
    return InputDetached(input_name, incarnation, DetachCause.BROKEN_PROMISE, str(violation), violation)
