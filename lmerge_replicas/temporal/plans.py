"""The query for the lifetime of every flight, in plans of different physical form with one table.

The source has each flight when it is announced, with its planned arrival, and revises that. A flight that is cancelled
is taken back.

- **revising** passes everything on at once. Its stable point follows the news.
- **by-airport** computes the three airports of New York in branches of their own, and unites them. The order among
  flights of one moment is another one. A union of streams promises no key, so the merge runs its most general
  algorithm.
- **final** waits: a flight comes out once, in order, when it and all before it can no longer change. This is the form
  for readers that cannot revise.

The payload of the merge is the text of a flight, as in the other replicas.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, source

SOURCE: Final = "flights"
AIRPORTS: Final = ("EWR", "JFK", "LGA")


class FlightPlan(NamedTuple):
    """A way to compute the table."""

    name: str
    summary: str
    stream: Stream


FLIGHTS: Final = source(SOURCE, {"flight": "string"}, promises=("key",))
_BRANCHES: Final = tuple(FLIGHTS.where(col.flight.contains(f" {name} ")).named(name) for name in AIRPORTS)

# " EWR " can be the destination of no flight that leaves from another airport of New York with a blank behind it: the
# destination is the last word of the text.
PLANS: Final = {
    plan.name: plan
    for plan in (
        FlightPlan("revising", "publishes at once, revises", FLIGHTS.where(col.flight.length() > 0).named("announced")),
        FlightPlan("by-airport", "three branches, united", _BRANCHES[0].union(*_BRANCHES[1:]).named("united")),
        FlightPlan("final", "publishes each flight once, in order", FLIGHTS.cleanse().named("settled")),
    )
}
