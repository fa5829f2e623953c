"""What the Python processes that Spark keeps do about garbage, and about delayed acknowledgements."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from lmerge.spark.sink.workers import acknowledge_at_once

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


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux delays and has the option")
def test_all_tcp_connections_of_the_process_acknowledge_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        left, right = socket.socketpair()
        with other, left, right:
            for connection in (one, other):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            assert acknowledge_at_once() >= 2
            assert [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) for end in (one, other)] == [1, 1]
            one.sendall(b"still open")
            assert other.recv(10) == b"still open"
            left.sendall(b"also")
            assert right.recv(4) == b"also"
