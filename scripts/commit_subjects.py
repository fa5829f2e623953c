"""Commit subjects: ``area: verb object`` in at most 72 characters, from the commit on where the rule began.

    python scripts/commit_subjects.py [RANGE]

Called by ``make lint``. Merges are exempt. Without git, or where the history does not reach back to the rule (a copy,
a shallow clone), there is nothing to check.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "ceab05fa44d4cd1c9b90404aade368e84d3b74ad"  # the last commit before the rule
SUBJECT_MAX = 72
AREA = r"[a-z][a-z0-9_./-]*"


def problem(subject: str) -> str | None:
    """Return what is wrong with a subject, or None."""
    if len(subject) > SUBJECT_MAX:
        return f"{len(subject)} characters, above the {SUBJECT_MAX}"
    if not re.match(rf"{AREA}(?:, {AREA})*: ", subject):
        return "no area before a colon, in small letters"
    act = subject.partition(": ")[2]
    if not re.match(r"[a-z]+,? \S", act):
        return "no verb and object behind the area, in small letters"
    if act.endswith("."):
        return "a full stop at the end"
    return None


def subjects(commits: str, root: Path) -> list[tuple[str, str]] | None:
    """Return hash and subject of each commit of a range that is no merge; None if there is no such range here."""
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "log", "--no-merges", "--format=%h %s", commits],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    if listed.returncode:
        return None
    return [(name, subject) for name, _, subject in (line.partition(" ") for line in listed.stdout.splitlines())]


def main(arguments: list[str]) -> int:
    """Print each wrong subject. Return the exit code: 1 if there is one."""
    found = subjects(arguments[0] if arguments else f"{BEGIN}..HEAD", ROOT)
    if found is None:
        print("    commit subjects: skipped, the history is not here")
        return 0
    wrong = [(name, subject, why) for name, subject in found if (why := problem(subject)) is not None]
    for name, subject, why in wrong:
        print(f"{name} {subject!r}: {why}; a subject is `area: verb object`")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
