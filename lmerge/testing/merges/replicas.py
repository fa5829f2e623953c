"""Merges of the outputs of replicas, checked after every step: in an order that is drawn, with inputs killed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from lmerge.core.elements import Element, Event
from lmerge.core.engines.selection import PYTHON, best
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import NOTHING, Properties
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import derive
from lmerge.testing.merges.declared import ANY_POLICIES, INDEX_POLICIES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.batches import interleaved
from lmerge.testing.streams.facets import FACET_LEVELS

OTHER_POLICIES: Final = 0.5
"""How often a merge has a policy that needs an index, whatever its inputs promise: R3 or R4 run then."""


class WrongMerge(Exception):
    """A merge of outputs broke a law, or ended an input. ``replica``: the input's name, or empty for the merge."""

    def __init__(self, replica: str, problem: str) -> None:
        super().__init__(problem)
        self.replica = replica


@dataclass(frozen=True)
class CheckedMerge:
    """A merge that kept all laws. ``elements``, ``events``: of its output."""

    elements: Sequence[Element]
    events: Sequence[Event]


def drawn_kills(random: Random, sizes: Mapping[str, int], share: float = 0.6) -> dict[str, int]:
    """Return after how many of its elements an input is killed, by name; at least one input lives."""
    names = list(sizes)
    survivor = names[random.randrange(len(names))]
    return {name: random.randrange(sizes[name] + 1) for name in names if name != survivor and random.random() < share}


def merged(
    random: Random,
    streams: Mapping[str, Sequence[Element]],
    killed: Mapping[str, int],
    properties: Properties = NOTHING,
) -> CheckedMerge:
    """Merge streams in an order, by a policy and on an engine that are drawn, with a restart. Raises WrongMerge.

    ``killed``: as of ``drawn_kills``. ``properties``: what every stream promises, by which the algorithm is chosen.
    """
    sizes = {name: killed.get(name, len(stream)) for name, stream in streams.items()}
    kind = FACET_LEVELS["interleaving"][random.randrange(len(FACET_LEVELS["interleaving"]))]
    policy = random.choice(INDEX_POLICIES if random.random() < OTHER_POLICIES else ANY_POLICIES)
    follow = Follow(Merge(MergeConfig(policy=policy, engine=random.choice((PYTHON, best())))))
    restart = random.randrange(sum(sizes.values()) + 1)
    taken = dict.fromkeys(streams, 0)
    try:
        for name in streams:
            follow.attach(name, properties)
            if not sizes[name]:
                follow.detach(name)
        for count, name in enumerate(interleaved(random, sizes, kind), 1):
            refused = follow.publish(name, streams[name][taken[name]])
            taken[name] += 1
            if refused.detached:
                raise WrongMerge(name, f"the merge ended it: {refused.detached[0].reason}")
            if name in killed and taken[name] == killed[name]:
                follow.detach(name)
            if count == restart:
                follow.restore()
    except AssertionError as problem:
        raise WrongMerge("", f"{problem} (policy {policy}, killed: {shown_kills(killed)})") from None
    return CheckedMerge(follow.elements, follow.events())


def promised_by_all(nodes: Iterable[PlanNode]) -> Properties:
    """Return what the results of all plans promise."""
    return frozenset.intersection(*(derive(node)[node].promises for node in nodes))


def shown_kills(killed: Mapping[str, int]) -> str:
    """Return in words who was killed."""
    return ", ".join(f"{name} after {count} elements" for name, count in killed.items()) or "none"
