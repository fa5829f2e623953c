"""Prints the elements and the states of cases and random plans, for a comparison between processes."""

from __future__ import annotations

import random
import sys

import msgpack
from law_world import CASES, PlanUnderLaw, history_of, plan_of, random_case, together

from lmerge.temporal.plan.compiling import CompiledPlan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import ElementWriter


def node_at(plan: CompiledPlan, place: int) -> PlanNode:
    """Return the node whose stream is at a place: a source, or the last one of a step."""
    sources = len(plan.sources)
    return plan.sources[place] if place < sources else plan.steps[place - sources].nodes[-1]


def main(implementation: str, plans: int) -> None:
    """Print a line for each batch: its elements, and the state behind it."""
    cases = [(plan_of(stream), None) for stream in list(CASES.values())[::4]]
    for at, (plan, history) in enumerate([*cases, *map(random_case, range(plans))]):
        run, random_ = PlanUnderLaw(plan, implementation), random.Random(at)
        writer = ElementWriter(node_at(plan, plan.outputs[0]))
        for name, items in together(random_, history or history_of(random_, plan)):
            for delta in run.give(name, items):
                rows = list(writer.batch([delta]).rows(0))
                print(at, rows, msgpack.packb(run.graph.state()).hex())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
