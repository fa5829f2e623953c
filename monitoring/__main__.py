"""Write the generated files of this package, or check that they are as they would be written.

python -m monitoring [--check]
"""

from __future__ import annotations

import argparse
import sys

from monitoring.artifacts import ROOT, files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m monitoring", description="Write the dashboards and alerts.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    is_check = parser.parse_args().check
    differing = [name for name, text in files().items() if not _is_as(name, text)]
    for name in differing:
        print(f"{name}: {'differs; make monitoring writes it' if is_check else 'written'}")
        if not is_check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(files()[name], encoding="utf-8")
    return 1 if is_check and differing else 0


def _is_as(name: str, text: str) -> bool:
    path = ROOT / name
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
