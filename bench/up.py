"""How long does `lmerge up examples/flights.yaml` take until the stream is merged?

From the start of the command to the line that names the merged stream (the first replica has joined, and events can
be read), and to the line that reports that all replicas have joined. Two servers, three replicas that read a year of
flights at their start. Target: a merged stream within 10 s.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import begin, bench_parser

EXAMPLE = Path(__file__).parent.parent / "examples" / "flights.yaml"
TARGET_S = 10.0
REPEATS = 5
# What the command prints, as the start of a line.
MERGED, JOINED = "merged stream flights at ", "flights is up: "


def once() -> tuple[float, float]:
    """Return the seconds to the merged stream, and to the last replica that joins."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.perf_counter()
        up = subprocess.Popen(
            [sys.executable, "-m", "lmerge", "up", str(EXAMPLE)], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        took_s: dict[str, float] = {}
        try:
            assert up.stdout is not None
            for line in up.stdout:
                for text in (MERGED, JOINED):
                    if line.startswith(text):
                        took_s.setdefault(text, time.perf_counter() - began_s)
                if JOINED in took_s:
                    break
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate()
            if up.returncode:  # otherwise it has ended all that it started
                subprocess.run([sys.executable, "-m", "lmerge", "down", "--all"], cwd=folder, check=False)
    assert up.returncode == 0
    return took_s[MERGED], took_s[JOINED]


def main() -> None:
    parser = bench_parser(__doc__, "up", "once")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="how often it is started")
    options = parser.parse_args()
    report = begin((__doc__ or "").splitlines()[0])
    runs = [once() for _ in range(1 if options.quick else options.repeats)]
    merged = report.add("to a merged stream", [run[0] for run in runs], "s")
    report.add("to all three replicas joined", [run[1] for run in runs], "s")
    verdict = "reached" if merged.median <= TARGET_S else "MISSED"
    report.note(f"target: a merged stream within {TARGET_S:.0f} s: {verdict} ({merged.median:.1f} s)")
    if not options.quick:
        report.save("up")


if __name__ == "__main__":
    main()
