"""How much memory does a merge need, and how does that grow with the number of inputs?

10,000 and 100,000 live events of 16 and 1,000-byte payloads, all inputs equal in content; tracemalloc. R3 on in2t
stores a payload once; R3- once an input; Cleanse + R1 buffers every input. Target: R3 with 10 inputs at most 1.4 times
R3 with 2.
"""

from __future__ import annotations

import gc
import pickle
import tracemalloc

from bench.core_r3 import WORDS, arrivals
from bench.harness import begin
from lmerge.core.cleanse import Cleanse
from lmerge.core.merge import Merge
from lmerge.testing.workload import Workload, workload


def used(kind: str, inputs: int, payload_bytes: int, live: int) -> float:
    """Bytes per live event after the merge has come to a steady state."""
    spec = Workload(events=live * 2, live=live, payload_bytes=payload_bytes, inputs=inputs, stables=0.01)
    frozen = [pickle.dumps(batch) for batch in arrivals(workload(spec))[:-inputs]]
    gc.collect()
    tracemalloc.start()
    algorithm = "r1" if kind == "cleanse + r1" else kind
    merge = Merge(algorithm, track_live=False)
    cleansers = [Cleanse(str(at)) for at in range(inputs)]
    for at in range(inputs):
        merge.attach(str(at), WORDS[algorithm])
    for data in frozen:
        name, batch = pickle.loads(data)  # bytes and numbers of its own, as from a network
        if kind == "cleanse + r1":
            batch = cleansers[int(name)].apply(batch)
        merge.apply(name, batch)
    name = batch = None
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / live


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    ratios = {}
    for payload_bytes in (16, 1_000):
        for kind in ("r3", "r3-", "cleanse + r1"):
            sizes = {
                inputs: report.add(
                    f"{kind}, {inputs} inputs, {payload_bytes}-byte payloads",
                    [used(kind, inputs, payload_bytes, 5_000)], "B/live event",
                ).median
                for inputs in (2, 10)
            }
            ratios[kind, payload_bytes] = sizes[10] / sizes[2]
    for (kind, payload_bytes), ratio in ratios.items():
        report.note(f"{kind}, {payload_bytes}-byte payloads: 10 inputs / 2 inputs = {ratio:.2f}")
    worst = max(ratio for (kind, _), ratio in ratios.items() if kind == "r3")
    report.note(f"target 1.4 for r3: {'reached' if worst <= 1.4 else 'MISSED'} ({worst:.2f})")
    report.save("core_memory")


if __name__ == "__main__":
    main()
