"""``lmerge test``: check queries by scenarios, and repeat saved cases (docs/testing.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lmerge import terminal
from lmerge.errors import UsageError
from lmerge.temporal.durations import duration_of

if TYPE_CHECKING:
    from lmerge.testing.checking.session import CheckedScenario, TreeBudget
    from lmerge.testing.checking.tree_verdict import TreeVerdict
    from lmerge.testing.intents.fluent import IntentScenario
    from lmerge.testing.judging.verdict import Judge
    from lmerge.testing.systems.system import System

EXTRA: Final = "testing"
# The differences are the result of the command, as in diff.
FOUND: Final = 1
PROGRESS_EVERY: Final = 25
MICROSECONDS: Final = 1_000_000
SAVED_MAX: Final = 10
_STRENGTH: Final = typer.Option(min=1, max=3, metavar="2|3", help="Every pair of words, or every triple, is tested.")


def check_queries(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Files NAME.scenario.json, or folders of them; by default all is open."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For how long trees are made, such as 60s or 10m.")
    ] = None,
    trees: Annotated[int | None, typer.Option(metavar="N", help="How many trees are made for a scenario.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Equal seeds, equal trees.")] = 0,
    strength: Annotated[int, _STRENGTH] = 2,
    system: Annotated[str, typer.Option(metavar="NAME", help="The system under test.")] = "engine",
    folder: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write junit.xml, verdicts.json, index.html and cases."),
    ] = None,
) -> None:
    """Check queries: make trees of scenarios, run them on a system, and judge every operator by SQL.

    Example: lmerge test --budget 60s --report findings

    Without a budget or a number of trees, the covering array of each scenario is tested once. A case that was saved is
    repeated as it was. Needs the extra 'testing'. Exit code 1: something differs; what was found is made smaller, and
    saved with --report. Exit code 2: a file that cannot be read, or options that cannot be.
    """
    from lmerge.client.extras import extra

    for module in ("duckdb", "hypothesis", "covertable"):
        extra(module, EXTRA, "lmerge test needs")
    from lmerge.testing.checking.session import TreeBudget, every_operator
    from lmerge.testing.evidence.cases import SavedCase, load
    from lmerge.testing.evidence.documents import RunDocument, write_documents
    from lmerge.testing.evidence.report import summary
    from lmerge.testing.judging.verdict import Judge
    from lmerge.testing.systems.registered import SYSTEMS

    terminal.utf8()
    chosen = SYSTEMS.find(system)
    limits = TreeBudget(_seconds(budget), trees)
    if trees is not None and trees < 1:
        raise UsageError(f"--trees is {trees}; at least one tree is tested")
    loaded = [(path, load(path)) for path in _files(paths)] if paths else [(None, every_operator())]
    checked, cases = [], []
    with Judge() as judge, terminal.until_closed():
        for path, one in loaded:
            if isinstance(one, SavedCase):
                cases.append((str(path), _repeated(str(path), one, judge)))
            else:
                checked.append(_scenario(one, chosen, judge, limits, seed, strength))
        run = RunDocument(checked, cases, seed)
        bad = [one for one in run.verdicts if one.is_bad]
        run = replace(run, smaller=_show_bad(bad, chosen, judge, folder))
        if folder is not None:
            try:
                write_documents(folder, run)
            except OSError as problem:
                raise UsageError(f"cannot write the report to {str(folder)!r}: {problem.strerror}") from None
        terminal.line(summary(run.verdicts))
    if bad:
        raise typer.Exit(FOUND)


def _seconds(budget: str | None) -> float | None:
    if budget is None:
        return None
    found = duration_of(budget, "lmerge test", "a budget") / MICROSECONDS
    if found <= 0:
        raise UsageError(f"--budget is {budget!r:.64}; in no time nothing is tested")
    return found


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of scenarios. Raises UsageError for a folder without one."""
    from lmerge.testing.evidence.cases import SUFFIX

    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob(f"*{SUFFIX}"))
            if not inside:
                raise UsageError(f"there is no file *{SUFFIX} in {str(path)!r}")
            found += inside
        else:
            found.append(path)
    return found


def _scenario(
    stated: IntentScenario, system: System, judge: Judge, limits: TreeBudget, seed: int, strength: int
) -> CheckedScenario:
    from lmerge.testing.checking.session import check_scenario

    count = [0]

    def observe(verdict: TreeVerdict) -> None:
        count[0] += 1
        if count[0] % PROGRESS_EVERY == 0:
            terminal.error(f"{stated.name}: {count[0]} trees")

    if limits.is_covering:
        group = "triple" if strength == 3 else "pair"
        terminal.error(f"{stated.name}: choosing trees that together have every {group} of words")
    found = check_scenario(stated, system, judge, seed=seed, strength=strength, budget=limits, observe=observe)
    ledger = found.transformer.ledger.report()
    missing = f", {len(ledger['missing'])} are missing" if ledger["missing"] else ""
    terminal.line(
        f"{stated.name}: {len(found.verdicts)} trees in {found.seconds:.1f} s; {ledger['covered']} of "
        f"{ledger['combinations']} combinations of words are covered, {len(ledger['excluded'])} cannot be{missing}"
    )
    return found


def _repeated(name: str, case: object, judge: Judge) -> TreeVerdict:
    from lmerge.testing.checking.full_checks import check_fully
    from lmerge.testing.evidence.cases import SavedCase
    from lmerge.testing.systems.registered import SYSTEMS

    assert isinstance(case, SavedCase)
    verdict = check_fully(case.tree, SYSTEMS.find(case.system), judge, case.inputs)
    terminal.line(f"{name}: {verdict.outcome}{f' (it was: {case.found})' if case.found else ''}")
    return verdict


def _show_bad(bad: Sequence[TreeVerdict], system: System, judge: Judge, folder: Path | None) -> dict[str, TreeVerdict]:
    """Print each difference, of the first ones a smaller case, which is saved if there is a folder.

    Returns the verdicts of the smaller ones, by the names of their trees.
    """
    from lmerge.testing.evidence.cases import SavedCase, save_case
    from lmerge.testing.evidence.report import report
    from lmerge.testing.evidence.shrinking import Shrinker
    from lmerge.testing.systems.inputs import inputs_of

    smaller: dict[str, TreeVerdict] = {}
    for verdict in bad[:SAVED_MAX]:
        found = verdict
        if verdict.system == system.name and set(verdict.tree.data) and not verdict.tree.is_given:
            small = Shrinker(system, judge).shrunk(verdict, inputs_of(verdict.tree))
            found = smaller[verdict.tree.name] = small.verdict
            if folder is not None:
                blamed = found.blamed
                what = found.failure or ("" if blamed is None else f"{blamed.name}: {blamed.reason}")
                name = re.sub(r"[^A-Za-z0-9]+", "-", verdict.tree.name).strip("-")
                path = save_case(folder, name, SavedCase(small.tree, small.inputs, system.name, what))
                terminal.line(f"saved: {path}")
        terminal.line(report(found))
        terminal.line()
    if len(bad) > SAVED_MAX:
        terminal.line(f"... and {len(bad) - SAVED_MAX} more")
    return smaller
