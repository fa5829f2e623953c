"""Generate the CustomResourceDefinition of the chart from the schema of a spec; `--check` only compares, as CI does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from lmerge_controller.kubernetes.crd import definition

FILE = Path(__file__).resolve().parent.parent / "charts" / "lmerge" / "crds" / "replicatedqueries.yaml"
HEAD = "# Made by `make crd` from lmerge_controller/model/replicated_query.schema.json. Do not edit.\n"


class _Plain(yaml.SafeDumper):
    """Writes a value that comes twice in full: anchors are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def text() -> str:
    """Return the file as it should be."""
    return HEAD + yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=10_000, allow_unicode=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only report whether the file is up to date")
    if not parser.parse_args().check:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(text())
    elif not FILE.exists() or FILE.read_text() != text():
        print(f"{FILE.name} is not what the schema gives: run `make crd`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
