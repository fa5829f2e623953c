"""The choices that a query writer has for a window: clipping, timestamps of the output, and the form of the stream.

Seed 000, III.C and V.C; the four forms are ENGINE 5.
"""

from __future__ import annotations

from lmerge.text_enum import TextEnum


class Clip(TextEnum):
    """How a lifetime is cut to the window before a module gets it (III.C.1)."""

    NONE = "none"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def cuts_left(self) -> bool:
        """Whether no lifetime begins before the window."""
        return self in (Clip.LEFT, Clip.FULL)

    @property
    def cuts_right(self) -> bool:
        """Whether no lifetime goes on behind the window."""
        return self in (Clip.RIGHT, Clip.FULL)


class Stamp(TextEnum):
    """Which lifetimes the results of a window have (III.C.2, V.F.1)."""

    ALIGN = "align"
    UNCHANGED = "unchanged"
    CLIP = "clip"
    TIME_BOUND = "time-bound"
    POINT_AT_END = "point-at-end"

    @property
    def keeps_own(self) -> bool:
        """Whether the module's own lifetimes are used."""
        return self in (Stamp.UNCHANGED, Stamp.CLIP, Stamp.TIME_BOUND)


class Form(TextEnum):
    """When a result is emitted, and whether it is revised. All forms of a query have one table.

    ``final``: when window and result are closed, in order. ``settled``: when row and start cannot change any more.
    ``watermark``: when the window ends at or before the watermark (V.C). ``eager``: when the window has begun
    (III.C.1).
    """

    FINAL = "final"
    SETTLED = "settled"
    WATERMARK = "watermark"
    EAGER = "eager"
