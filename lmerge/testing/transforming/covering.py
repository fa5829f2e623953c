"""Covering arrays over a space of tests, and the ledger of what they cover.

The arrays come from covertable. A row of strength 2 takes every pair of words that can be together into some tree, of
strength 3 every triple. The ledger counts what the trees really have, so it is the proof and not the promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from random import Random
from typing import Any, Final, TypeAlias

from lmerge.client.extras import extra
from lmerge.errors import UsageError
from lmerge.testing.transforming.expanding import Cell
from lmerge.testing.transforming.spaces import TestSpace

STRENGTHS: Final = (1, 2, 3)
COMPLETIONS_MAX: Final = 50
ATTEMPTS_MAX: Final = 10_000
"""Of drawing a row at random, before the words are found to exclude each other."""

Combination: TypeAlias = "tuple[tuple[str, str], ...]"
"""Words of different factors, in the order of the factors, each as (factor, word)."""


def covering_rows(space: TestSpace, strength: int, seed: int) -> list[Cell]:
    """Return cells that have every combination of ``strength`` words that can be together.

    Raises UsageError for another strength than 1 to 3, and for a space that no cell satisfies.
    """
    if strength not in STRENGTHS:
        raise UsageError(f"the strength is {strength!r:.20}; it is 1, 2 or 3")
    opened = space.open_factors
    if len(opened) <= strength:
        rows = [dict(zip((one.name for one in opened), levels)) for levels in product(*(one.levels for one in opened))]
        allowed = [row for row in rows if not _broken(space, row)]
    else:
        allowed = _arrays(space, strength, seed)
    fixed = {factor.name: factor.levels[0] for factor in space.factors if len(factor.levels) == 1}
    found: list[Cell] = [{**fixed, **row} for row in allowed if not _broken(space, {**fixed, **row})]
    if not found:
        reasons = sorted({one.reason for one in space.unfit})
        raise UsageError(f"no tree has all that is asked for: {'; '.join(reasons)}")
    return found


def _arrays(space: TestSpace, strength: int, seed: int) -> list[dict[str, str]]:
    """Return rows for all factors, from covertable without constraints, then mended.

    With its own constraints covertable takes seven times as long for a space of 21 factors: it looks ahead at each of
    its candidates. Here few words exclude each other, so few rows have to be mended, and few combinations are lost.
    """
    covertable = extra("covertable", "testing", "covering arrays need")
    names = {f"f{at}": factor.name for at, factor in enumerate(space.factors)}
    factors = {short: list(factor.levels) for short, factor in zip(names, space.factors, strict=True)}
    made = covertable.make(factors, strength=strength, salt=str(seed))
    rows = [{names[short]: level for short, level in row.items()} for row in made]
    random = Random(f"rows {seed}")
    mended = [row for row in (_mended(space, random, row) for row in rows) if row is not None]
    return mended + _completing(space, strength, random, mended)


def _mended(space: TestSpace, random: Random, row: dict[str, str]) -> dict[str, str] | None:
    """Return a row in which no two words exclude each other: of two, the later factor gets another word."""
    kept: dict[str, str] = {}
    for factor in space.factors:
        if not _broken(space, {**kept, factor.name: row[factor.name]}):
            kept[factor.name] = row[factor.name]
    return _completed(space, random, kept)


def _completed(space: TestSpace, random: Random, kept: dict[str, str]) -> dict[str, str] | None:
    """Return a row with these words and others that fit, or None if none do."""
    for _ in range(COMPLETIONS_MAX):
        row = dict(kept)
        for factor in space.factors:
            if factor.name in row:
                continue
            fitting = [level for level in factor.levels if not _broken(space, {**row, factor.name: level})]
            if not fitting:
                break
            row[factor.name] = fitting[random.randrange(len(fitting))]
        else:
            return row
    return None


def _completing(
    space: TestSpace, strength: int, random: Random, rows: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """Return rows for the combinations that mended rows have lost, several in a row where they fit each other."""
    ledger = CoverageLedger(space, strength)
    for row in rows:
        ledger.add(row)
    missing = ledger.missing()
    found: list[dict[str, str]] = []
    covered: set[Combination] = set()
    for one in missing:
        if one in covered:
            continue
        kept = dict(one)
        for other in missing:
            if other not in covered and all(kept.get(name, level) == level for name, level in other):
                both = {**kept, **dict(other)}
                if not _broken(space, both) and ledger.completes(both):
                    kept = both
        completed = _completed(space, random, kept)
        if completed is not None:
            found.append(completed)
            levels = [(factor.name, completed[factor.name]) for factor in space.open_factors]
            covered.update(combinations(levels, strength))
    return found


def random_row(space: TestSpace, random: Random) -> Cell:
    """Return a cell drawn at random. Raises UsageError if the words exclude each other."""
    for _ in range(ATTEMPTS_MAX):
        row = {factor.name: random.choice(factor.levels) for factor in space.factors}
        if not _broken(space, row):
            return row
    raise UsageError(f"no tree was found in {ATTEMPTS_MAX} that has all that is asked for")


def _broken(space: TestSpace, row: Cell) -> bool:
    return any(row.get(one.one) == one.level and row.get(one.other) == one.other_level for one in space.unfit)


@dataclass
class CoverageLedger:
    """Which combinations of ``strength`` words the trees have had, and which cannot be."""

    space: TestSpace
    strength: int
    covered: set[Combination] = field(default_factory=set)
    pairs: set[Combination] = field(default_factory=set)
    trees: int = 0

    def add(self, cell: Cell) -> None:
        """Count a tree that has been judged."""
        self.trees += 1
        levels = [(factor.name, cell[factor.name]) for factor in self.space.open_factors if factor.name in cell]
        self.covered.update(combinations(levels, self.strength))
        self.pairs.update(combinations(levels, 2))

    @property
    def possible(self) -> int:
        """The number of combinations, with those that cannot be."""
        sizes = [len(factor.levels) for factor in self.space.open_factors]
        if len(sizes) < self.strength:
            return 0
        return sum(prod(chosen) for chosen in combinations(sizes, self.strength))

    def missing(self) -> list[Combination]:
        """Return the combinations that no tree has had and that can be."""
        return [one for one in self._uncovered() if self._reason(one) is None]

    def excluded(self) -> dict[Combination, str]:
        """Return the combinations that cannot be, with the reason of each."""
        reasons = ((one, self._reason(one)) for one in self._uncovered())
        return {one: reason for one, reason in reasons if reason is not None}

    def report(self) -> dict[str, Any]:
        """Return the counts, what is missing and what is excluded as JSON values."""
        excluded = self.excluded()
        labels = {factor.name: factor.label for factor in self.space.factors}
        missing = self.missing()
        return {
            "strength": self.strength,
            "trees": self.trees,
            "combinations": self.possible,
            "covered": len(self.covered),
            "excluded": [{"words": _shown(one, labels), "reason": reason} for one, reason in excluded.items()],
            "missing": [_shown(one, labels) for one in missing],
        }

    def by_factors(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Return for each two factors, by label, how many pairs of words are covered, excluded, and there at all."""
        found: dict[tuple[str, str], tuple[int, int, int]] = {}
        for one, other in combinations(self.space.open_factors, 2):
            every = [
                ((one.name, level), (other.name, other_level)) for level in one.levels for other_level in other.levels
            ]
            covered = sum(pair in self.pairs for pair in every)
            excluded = sum(self._reason(pair) is not None for pair in every if pair not in self.pairs)
            found[one.label, other.label] = covered, excluded, len(every)
        return found

    def _uncovered(self) -> Iterable[Combination]:
        for factors in combinations(self.space.open_factors, self.strength):
            for levels in product(*(factor.levels for factor in factors)):
                one = tuple((factor.name, level) for factor, level in zip(factors, levels))
                if one not in self.covered:
                    yield one

    def _reason(self, one: Sequence[tuple[str, str]]) -> str | None:
        """Return why a combination cannot be: two of its words exclude each other, or no cell has them all."""
        row = dict(one)
        for pair in self.space.unfit:
            if row.get(pair.one) == pair.level and row.get(pair.other) == pair.other_level:
                return pair.reason
        return None if self.completes(row) else "every cell with these words has two that exclude each other"

    def completes(self, row: dict[str, str]) -> bool:
        """Return whether the factors that constraints are about can be chosen so that none is broken."""
        constrained = {name for one in self.space.unfit for name in (one.one, one.other)}
        left = [factor for factor in self.space.factors if factor.name in constrained and factor.name not in row]
        if not left:
            return True
        for level in left[0].levels:
            tried = {**row, left[0].name: level}
            if not _broken(self.space, tried) and self.completes(tried):
                return True
        return False


def _shown(one: Combination, labels: Mapping[str, str]) -> dict[str, str]:
    return {labels[name]: level for name, level in one}
