"""Runs trees or drawn merges on the package that is imported until something is wrong, and prints what it took as JSON.

``found_defects.py`` runs it on copies of the package, each with a seeded defect: ``python finders.py KIND OPTIONS``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final


def find_tree(seeds: Sequence[int], left_out: Mapping[str, Sequence[str]], shrinks: bool) -> dict[str, Any]:
    """Check the covering arrays of pairs, seed by seed, until a tree is bad. ``left_out``: levels, by factor."""
    from lmerge.testing.checking.full_checks import check_fully
    from lmerge.testing.checking.session import every_operator
    from lmerge.testing.judging.verdict import Judge
    from lmerge.testing.systems.engine import EngineSystem
    from lmerge.testing.transforming.covering import covering_rows
    from lmerge.testing.transforming.transformer import Transformer

    count, system = 0, EngineSystem()
    with Judge() as judge:
        for seed in seeds:
            transformer = Transformer(every_operator(), seed)
            for number, cell in enumerate(covering_rows(transformer.space, 2, seed)):
                if any(cell[name] in levels for name, levels in left_out.items()):
                    continue
                count += 1
                try:
                    verdict = check_fully(transformer.tree(cell, number), system, judge)
                except Exception as problem:  # of the defect, in a place where no query can fail
                    return {"count": count, "found": f"{type(problem).__name__}: {problem}"[:200]}
                if verdict.is_bad:
                    found = verdict.failure or str(verdict.blamed)
                    case = _shrunk(verdict, system, judge) if shrinks else {}
                    return {"count": count, "found": found[:200], **case}
    return {"count": None, "tried": count}


def _shrunk(verdict: Any, system: Any, judge: Any) -> dict[str, Any]:
    from lmerge.testing.evidence.shrinking import Shrinker
    from lmerge.testing.systems.inputs import inputs_of

    began = monotonic()
    small = Shrinker(system, judge).shrunk(verdict, inputs_of(verdict.tree))
    return {"elements": small.elements, "operators": small.operators, "seconds": monotonic() - began}


def find_merge(seeds: Sequence[int], rounds: int = 100) -> dict[str, Any]:
    """Play sessions of drawn merges, of every kind in turn, until one is wrong."""
    count = 0
    for number in range(rounds * len(seeds)):
        for play in _sessions(number):
            count += 1
            try:
                play()
            except Exception as problem:  # an assertion, or what the defect raises
                return {"count": count, "found": f"{type(problem).__name__}: {problem}"[:200]}
    return {"count": None, "tried": count}


def _sessions(number: int) -> Iterator[Callable[[], object]]:
    from lmerge.testing.merges.declared import JUDGED_POLICIES, PROMISES
    from lmerge.testing.merges.judged import broken_session
    from lmerge.testing.merges.lawful import cut_session, lawful_session
    from lmerge.testing.merges.policies import policy_session
    from lmerge.testing.merges.sessions import (
        crowded_session,
        downgraded_session,
        early_session,
        joining_session,
        restored_session,
        twin_session,
    )

    policy = JUDGED_POLICIES[number % len(JUDGED_POLICIES)]
    for algorithm in ("r3", "r4"):
        yield partial(policy_session, algorithm, policy, number)
    for session in (
        broken_session,
        restored_session,
        joining_session,
        early_session,
        downgraded_session,
        lawful_session,
        cut_session,
        crowded_session,
    ):
        yield partial(session, number)
    for algorithm in PROMISES:
        yield partial(twin_session, number, algorithm)


FINDERS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {"trees": find_tree, "merges": find_merge}

if __name__ == "__main__":
    print(json.dumps(FINDERS[sys.argv[1]](**json.loads(sys.argv[2]))))
