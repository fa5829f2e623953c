"""A wide-area network on one machine: a network namespace behind a link with delay, jitter and loss. Linux, root.

    clients in the namespace | far TUN <-> a process: each packet waits, some are dropped <-> near TUN | servers

Clients and servers are unchanged: TCP retransmits and reorders as on a real slow and lossy line.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import selectors
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from bench.rig.processes import forked

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
PACKET = 65_536


@dataclass(frozen=True)
class Line:
    """One direction: each packet waits ``delay_s`` and up to ``jitter_s`` more. ``loss``: probability of its loss."""

    delay_s: float = 0.010
    jitter_s: float = 0.005
    loss: float = 0.01


@dataclass(frozen=True)
class Wan:
    """A network. ``namespace``: that of the clients; ``near``: the address of the servers."""

    namespace: str
    near: str

    def enter(self) -> None:
        """Move this process, which has one thread, to the namespace."""
        with Path(f"/run/netns/{self.namespace}").open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter the namespace {self.namespace}")


def problem() -> str | None:
    """Return why there can be none on this machine, or None."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces and TUN devices need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return None if shutil.which("ip") else "the command ip is not installed"


@contextlib.contextmanager
def wan(folder: Path, line: Line, seed: int = 1) -> Iterator[Wan]:
    """Yield the namespace with its line; both are deleted at the end."""
    number = os.getpid() % 4096
    found = Wan(f"lmerge{number}", f"10.{200 + number // 1024}.{number // 4 % 256}.{number % 4 * 64 + 1}")
    far = found.near.rsplit(".", 1)[0] + f".{number % 4 * 64 + 2}"
    near_device, far_device = f"lmn{number}", f"lmf{number}"
    _ip("netns", "add", found.namespace)
    carrier = None
    try:
        carrier = forked("wan", folder, carry, found, near_device, far_device, line, seed)
        assert carrier.receive() == "open"
        for inside, device, address in (((), near_device, found.near), (("-n", found.namespace), far_device, far)):
            _ip(*inside, "addr", "add", f"{address}/26", "dev", device)
            _ip(*inside, "link", "set", device, "up")
            _ip(*inside, "link", "set", "lo", "up")
        yield found
    finally:
        if carrier is not None:
            carrier.kill()
        _ip("netns", "del", found.namespace)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def carry(wan_: Wan, near_device: str, far_device: str, line: Line, seed: int, pipe: Connection) -> None:
    """Run the process that carries packets between the two devices."""
    near = _tun(near_device)
    wan_.enter()
    far = _tun(far_device)
    pipe.send("open")
    random, count = Random(seed), 0
    waiting: list[tuple[float, int, int, bytes]] = []  # (due, number, device, packet)
    selector = selectors.DefaultSelector()
    selector.register(near, selectors.EVENT_READ, far)
    selector.register(far, selectors.EVENT_READ, near)
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in selector.select(pause):
            with contextlib.suppress(BlockingIOError):
                packet = os.read(key.fd, PACKET)
                if random.random() >= line.loss:
                    count += 1
                    due_s = time.monotonic() + line.delay_s + random.random() * line.jitter_s
                    heapq.heappush(waiting, (due_s, count, key.data, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # a full queue or a device that is not up: the packet is lost
                os.write(device, packet)


def _tun(name: str) -> int:
    """Open a TUN device of this namespace."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device
