"""A replica ends when it is asked to, also while it waits for a server that does not answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from lmerge.replica import driven
driven.LEAVE_S = 0.1
from lmerge_replicas.flights.__main__ import main
sys.exit(main(["conservative", "--server", sys.argv[1], "--replica", "a", "--last", "2013-01-02"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_replica_ends_though_its_server_is_silent(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        replica = subprocess.Popen([sys.executable, "-c", PROGRAM, address], stderr=subprocess.PIPE, text=True)
        try:
            connection, _ = silent.accept()
            with connection:
                replica.send_signal(number)
                errors = replica.communicate(timeout=60)[1]
        finally:
            replica.kill()
            replica.wait()
    assert replica.returncode == 130
    assert errors.splitlines()[-1] == "stopped before a server had merged everything"
