"""What a run of ``lmerge test`` leaves in a folder: JUnit XML for CI, JSON for programs, a page with the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from lmerge.testing.checking.session import CheckedScenario
from lmerge.testing.checking.tree_verdict import TreeVerdict
from lmerge.testing.evidence.report import report, summary
from lmerge.testing.judging.verdict import Judgement

_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1e293b;background:#fff}
h1{font-size:1.5rem} h2{font-size:1.15rem;margin-top:2rem} table{border-collapse:collapse;font-size:12px}
th,td{border:1px solid #cbd5e1;padding:.2rem .45rem;text-align:right} th{background:#f1f5f9;font-weight:600}
th.row{text-align:left} td.whole{background:#dcfce7} td.part{background:#fef9c3} td.none{background:#f8fafc}
pre{background:#f8fafc;border:1px solid #cbd5e1;padding:.8rem;overflow:auto;font-size:12px} .bad{color:#b91c1c}
li{margin:.15rem 0} .scroll{overflow:auto}
"""


@dataclass(frozen=True)
class RunDocument:
    """All that a run checked. ``cases``: single cases from files, by name.

    ``smaller``: the verdict of the smallest case of trees that are different, by the tree's name.
    """

    scenarios: Sequence[CheckedScenario]
    cases: Sequence[tuple[str, TreeVerdict]] = ()
    seed: int = 0
    smaller: Mapping[str, TreeVerdict] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[TreeVerdict]:
        """All verdicts."""
        return [*(one for checked in self.scenarios for one in checked.verdicts), *(one for _, one in self.cases)]

    def report(self, verdict: TreeVerdict) -> str:
        """Return the report of a tree's smallest case, or of the tree."""
        return report(self.smaller.get(verdict.tree.name, verdict))


def write_documents(folder: Path, run: RunDocument) -> None:
    """Write ``junit.xml``, ``verdicts.json`` and ``index.html`` into a folder. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(junit(run)).write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
    (folder / "verdicts.json").write_text(json.dumps(as_json(run), indent=1) + "\n")
    (folder / "index.html").write_text(page(run), encoding="utf-8")


def junit(run: RunDocument) -> ElementTree.Element:
    """Return the verdicts as JUnit has them: a test case for each tree."""
    root = ElementTree.Element("testsuites", name="lmerge test")
    for name, verdicts in _suites(run):
        bad = [one for one in verdicts if one.is_bad]
        skipped = [one for one in verdicts if one.outcome is Judgement.NOT_JUDGED]
        counts = {"tests": len(verdicts), "failures": len(bad), "skipped": len(skipped)}
        suite = ElementTree.SubElement(root, "testsuite", {"name": name, **{key: str(n) for key, n in counts.items()}})
        for one in verdicts:
            case = ElementTree.SubElement(suite, "testcase", name=one.tree.name, classname=f"{name}.{one.system}")
            if one.is_bad:
                _text(ElementTree.SubElement(case, "failure", message=str(one.outcome)), run.report(one))
            elif one.outcome is Judgement.NOT_JUDGED:
                ElementTree.SubElement(case, "skipped", message=_reason(one))
    return root


def _text(element: ElementTree.Element, text: str) -> None:
    """Give an element a text, without the characters that XML cannot have."""
    element.text = "".join(c if c in "\n\t" or c >= " " else repr(c)[1:-1] for c in text)


def _suites(run: RunDocument) -> Iterator[tuple[str, Sequence[TreeVerdict]]]:
    for checked in run.scenarios:
        yield checked.transformer.scenario.name, checked.verdicts
    if run.cases:
        yield "cases", [one for _, one in run.cases]


def _reason(verdict: TreeVerdict) -> str:
    blamed = verdict.blamed
    return verdict.failure or ("" if blamed is None else f"{blamed.name}: {blamed.reason}")


def as_json(run: RunDocument) -> dict[str, Any]:
    """Return the verdicts and ledgers as JSON values."""
    scenarios = [
        {
            "name": checked.transformer.scenario.name,
            "system": checked.system,
            "seconds": round(checked.seconds, 3),
            "ledger": checked.transformer.ledger.report(),
            "verdicts": [_verdict(run, one) for one in checked.verdicts],
        }
        for checked in run.scenarios
    ]
    cases = [{"file": name, **_verdict(run, one)} for name, one in run.cases]
    return {"seed": run.seed, "summary": summary(run.verdicts), "scenarios": scenarios, "cases": cases}


def _verdict(run: RunDocument, verdict: TreeVerdict) -> dict[str, Any]:
    found: dict[str, Any] = {"tree": verdict.tree.name, "outcome": str(verdict.outcome)}
    if verdict.outcome is not Judgement.EQUAL:
        found["reason"] = _reason(verdict)
    if verdict.is_bad:
        found["blamed"] = None if verdict.blamed is None else verdict.blamed.name
        found["report"] = run.report(verdict)
    return found


def page(run: RunDocument) -> str:
    """Return the page: what was found, and for each scenario which pairs of words were covered."""
    parts = [f"<h1>lmerge test</h1><p>{escape(summary(run.verdicts))}; seed {run.seed}</p>"]
    for one in run.verdicts:
        if one.is_bad:
            name, text = escape(one.tree.name), f"<pre>{escape(run.report(one))}</pre>"
            is_small = one.tree.name in run.smaller or one.tree.is_given
            parts.append(f"<h2 class=bad>{name}</h2>{text}" if is_small else _folded(name, _reason(one), text))
    for checked in run.scenarios:
        parts += _ledger(checked)
    title = "<title>lmerge test</title>"
    return f"<!doctype html><html lang=en><meta charset=utf-8>{title}<style>{_STYLE}</style>{''.join(parts)}</html>\n"


def _folded(name: str, reason: str, text: str) -> str:
    """Return a tree that was not made smaller: its reason, and the report where it is asked for."""
    return f"<details><summary><b class=bad>{name}</b> {escape(reason)}</summary>{text}</details>"


def _ledger(checked: CheckedScenario) -> Iterator[str]:
    ledger = checked.transformer.ledger
    found = ledger.report()
    what = {1: "words", 2: "pairs of words", 3: "triples of words"}[ledger.strength]
    yield f"<h2>{escape(checked.transformer.scenario.name)} on {escape(checked.system)}</h2>"
    yield (
        f"<p>{found['trees']} trees judged in {checked.seconds:.1f} s. {found['covered']} of {found['combinations']} "
        f"{what} are covered, {len(found['excluded'])} cannot be, {len(found['missing'])} are missing.</p>"
    )
    labels = [factor.label for factor in checked.transformer.space.open_factors]
    counts = ledger.by_factors()
    yield "<p>Pairs of words by their factors: covered, of those that can be together.</p>"
    yield "<div class=scroll><table><tr><th>"
    yield "".join(f"<th>{escape(label)}" for label in labels[1:])
    for at, label in enumerate(labels[:-1]):
        cells = "<td class=none>" * at
        for other in labels[at + 1 :]:
            covered, excluded, every = counts[label, other]
            css = "whole" if covered == every - excluded else "part" if covered else "none"
            cells += f"<td class={css}>{covered}/{every - excluded}"
        yield f"<tr><th class=row>{escape(label)}{cells}"
    yield "</table></div>"
    if found["excluded"]:
        reasons: dict[str, list[str]] = {}
        for one in found["excluded"]:
            levels = ", ".join(f"{label} {level}" for label, level in one["words"].items())
            reasons.setdefault(one["reason"], []).append(levels)
        yield "<h2>What cannot be together</h2><ul>"
        for reason, pairs in reasons.items():
            yield f"<li>{escape(reason)}: {escape('; '.join(pairs[:12]))}{' ...' if len(pairs) > 12 else ''}"
        yield "</ul>"
