"""Outbox: what was said and not sent yet is counted until it has been sent, whatever happens to connections."""

from __future__ import annotations

from lmerge.client.outbox import Outbox
from lmerge.core.elements import INSERT


def said(*payloads: bytes, bytes_max: int) -> Outbox:
    outbox = Outbox("a", bytes_max=bytes_max)
    for at, payload in enumerate(payloads):
        outbox.put_row((INSERT, at, at + 10, 0, payload))
    return outbox


def test_what_waits_is_counted_until_it_is_taken(engine: str) -> None:
    outbox = said(b"x" * 100, b"x" * 100, bytes_max=200)
    assert outbox.bytes > 200
    taken = outbox.take()
    assert taken is not None
    assert (sum(batch.count for batch in taken[0]), taken[1], outbox.bytes) == (2, 2, 0)
    assert outbox.take() is None


def test_a_restart_makes_no_room_until_the_prelude_has_been_sent(engine: str) -> None:
    outbox = said(b"x" * 100, b"x" * 100, bytes_max=200)
    for _ in range(3):
        prelude, count = outbox.restart()
        assert (prelude[0].count, len(prelude), count) == (2, 1, 2)
        assert outbox.is_full
    assert outbox.take() is None, "the prelude has said it"
    assert outbox.bytes == 0


def test_what_is_said_after_a_restart_waits_behind_the_prelude(engine: str) -> None:
    outbox = said(b"first", bytes_max=200)
    prelude, count = outbox.restart()
    outbox.put_row((INSERT, 1, 11, 0, b"second"))
    taken = outbox.take()
    assert taken is not None
    assert [batch.payloads for batch in (*prelude, *taken[0])] == [[b"first"], [b"second"]]
    assert (count, taken[1]) == (1, 2)
