"""L5: equal input in equal batches gives equal bytes; the order of a hash table never shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import law_app
import pytest

PLANS = 40


def printed(hash_seed: str, implementation: str) -> str:
    worlds = Path(law_app.__file__).parent
    path = f"{worlds}:{worlds.parents[1]}"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    program = [sys.executable, law_app.__file__, implementation, str(PLANS)]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.timeout(120)
def test_l5_two_processes_with_other_hashes_print_the_same_bytes(implementation: str) -> None:
    found = printed("1", implementation)
    assert found.count("\n") > 100 * PLANS // 10
    assert printed("2", implementation) == found
