"""A replica that publishes an event each hundredth of a second until it is killed: ``steady_app.py TARGET NAME``.

It also ends with the process that has started it, so nothing is left of a test that was killed.
"""

from __future__ import annotations

import os
import sys
import time

from lmerge.client import Publisher

PACE_S = 0.01


def main(target: str, name: str) -> None:
    with Publisher(target, "flights", name, properties=["key"]) as publisher:
        began_s, at, parent = time.monotonic(), 0, os.getppid()
        while os.getppid() == parent:
            at += 1
            publisher.insert(b"event %d" % at, 10 * at, 10 * at + 5)
            publisher.stable(10 * at)
            while time.monotonic() < began_s + PACE_S * at:
                time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
