"""Data by the shape of the query (seed 001, figure 4): what is put above a source so that its events are speculative.

``make_speculative`` is a group-and-apply with the first rows of each snapshot inside, in the form that emits at once:
groups overlap, and each late event takes back what has been emitted. ``multicast`` reads that twice, so that each
retraction comes twice. Both are part of the query: the verdict is over the plan that has them.
"""

from __future__ import annotations

from random import Random

from lmerge.errors import UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.windows.policies import Form

SHAPES = ("none", "speculative", "multicast")
"""What an intent can ask for."""
_KEYS = ("int", "string", "bool", "timestamp", "date", "decimal")
_RANKED = (*_KEYS, "float")


def make_speculative(stream: Stream, random: Random) -> Stream:
    """Return the first one or two rows of each group at each time, eagerly. Raises UsageError without a key column."""
    columns = stream.schema.columns
    keys = [column.name for column in columns if column.type in _KEYS]
    if not keys:
        raise UsageError(f"{stream.node.title} has no column to group by, so it cannot be made speculative")
    key = keys[0]
    ranked = [column.name for column in columns if column.type in _RANKED and column.name != key] or [key]
    by = Expression(ColumnReference(ranked[random.randrange(len(ranked))]))
    k = 1 if len(columns) > 1 else 2

    def best(group: Stream) -> Stream:
        return group.snapshot().top(k, by=by.desc(), rank=None, form=Form.EAGER)

    return stream.group_by(key).apply(best, keys=False).named("make speculative")


def multicast(stream: Stream, random: Random) -> Stream:
    """Return the union of a stream made speculative with itself, in which every retraction is there twice."""
    made = make_speculative(stream, random)
    return made.union(made).named("multicast")


def shaped(level: str, stream: Stream, random: Random) -> Stream:
    """Return a source with what a word of ``SHAPES`` puts above it. Raises UsageError for another word."""
    if level == "none":
        return stream
    if level == "speculative":
        return make_speculative(stream, random)
    if level == "multicast":
        return multicast(stream, random)
    raise UsageError(f"speculation is {level!r:.64}; it is one of {', '.join(SHAPES)}")
