"""The garbage collection of the Python processes that Spark keeps."""

from __future__ import annotations

import subprocess
import sys

_TASKS = """
import gc
from lmerge.spark.sink.workers import freeze_loaded

kept = []
for task in range(4):
    kept.append([[task]])  # what a task leaves that is still used
    freeze_loaded()
    print(gc.get_freeze_count())

lost = []
lost.append(lost)
del lost
print(gc.collect())
"""


def test_what_is_loaded_is_frozen_once_at_the_second_task_and_later_garbage_is_still_collected() -> None:
    output = subprocess.run([sys.executable, "-c", _TASKS], capture_output=True, text=True, check=True).stdout
    *frozen, found = map(int, output.split())
    assert frozen[0] == 0 < 1_000 < frozen[1] == frozen[2] == frozen[3]
    assert found >= 1
