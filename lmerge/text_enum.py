"""Enums whose members are texts of an interface: of the wire, of JSON, of labels and of options.

Code compares members, people and files get the text. A member is equal to its text and is shown as its text.
"""

from __future__ import annotations

from enum import Enum


class TextEnum(str, Enum):
    """Base of an enum of texts. ``str``, ``repr`` and ``format`` give the text, on every version of Python."""

    def __str__(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return str.__repr__(self)

    def __format__(self, form: str) -> str:
        return str.__format__(self, form)
