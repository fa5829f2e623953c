"""A generator of hostile calls: random and structured bytes for every method of a server, from one seed.

It sends no well-formed element to a merge that others use. What it sends there must be refused, and so must not change
anything for the publishers and subscribers of that merge. It may spoil its own merges.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import grpc
from service_world import WRITTEN_TOO_LATE, batch_message, ins, stable

from lmerge.service.server import SERVICE, Server
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

GOOD_MERGE = "good"
NASTY = [
    "",
    " ",
    " a",
    "a ",
    "\x1b]0;owned\x07",
    "a\nb",
    "\x00",
    "\u202eevil",
    "\ufeffa",
    "a" * 201,
    "ä" * 101,
    "[red]x[/]",
    "{merge}",
    "../../x",
    "a" * 5000,
    "\x9b31m",
    "\u200b",
    "*",
    "lmerge reset",
    "inf",
]
OWN_MERGES = ["h0", "h1", "h2"]
NUMBERS = [0, 1, 2, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
TIMES = [0, 1, -1, 10**12, 2**63 - 1, -(2**63), 2**62]
TYPES = ["int", "string", "float", "decimal", "list", "struct", "", "no type", "list<int>", "int\x1b[0m", "x" * 3000]
HEALTH = "/grpc.health.v1.Health/"
METHODS = [
    *(f"/{SERVICE}/{name}" for name in sorted(Server(Settings())._handlers())),
    HEALTH + "Check",
    HEALTH + "Watch",
    HEALTH + "List",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    f"/{SERVICE}/Nothing",
    "/x/y",
]
# How a call must never end: by a fault of the server.
NEVER = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


class HostileCalls:
    """Makes hostile calls. ``codes``: how they have ended; ``sent``: how many messages were sent."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.codes: Counter[grpc.StatusCode] = Counter()
        self.sent = 0
        self.last = ""  # the last call, as text

    async def call(self, channel: Any) -> grpc.StatusCode:
        """Make one call; return how it ended. It is cancelled where the server would wait for more."""
        method = self.random.choice(METHODS)
        is_stream = method.endswith(("/Publish", "/Stage", "ServerReflectionInfo")) or self.random.random() < 0.05
        messages = self._messages(method) if is_stream else [self._message(method)]
        self.sent += len(messages)
        call = channel.stream_stream(method)() if is_stream else channel.unary_stream(method)(messages[0])
        try:
            if is_stream:
                for message in messages:
                    await call.write(message)
                await call.done_writing()
            for _ in range(4):
                if await call.read() is grpc.aio.EOF:
                    break
            else:
                call.cancel()
            code = await call.code() if call.done() or not is_stream else grpc.StatusCode.CANCELLED
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, ValueError) as error:
            # The last two kinds: the call had ended before all was written.
            code = error.code() if isinstance(error, grpc.aio.AioRpcError) else await call.code()
        except BaseException:
            call.cancel()
            raise
        finally:
            call.cancel()
        code = grpc.StatusCode(code) if not isinstance(code, grpc.StatusCode) else code
        details = await _details(call)
        if details == WRITTEN_TOO_LATE:
            code = grpc.StatusCode.CANCELLED
        self.codes[code] += 1
        self.last = f"{method}: {len(messages)} messages, streamed {is_stream}: {details}"
        return code

    # The messages.

    def _messages(self, method: str) -> list[bytes]:
        random = self.random
        if method.endswith("/Publish") and random.random() < 0.7:
            attach = self._attach()
            rest = [self._publish_rest(attach.merge) for _ in range(random.randint(0, 4))]
            return [self._bent(m.SerializeToString()) for m in (pb.PublishRequest(attach=attach), *rest)]
        return [self._message(method) for _ in range(random.randint(1, 5))]

    def _message(self, method: str) -> bytes:
        random = self.random
        kind = random.random()
        if kind < 0.3:
            return random.randbytes(random.choice([0, 1, 2, 7, 30, 300, 5000]))
        name = method.rpartition("/")[2]
        described = pb.DESCRIPTOR.services_by_name["Lmerge"].methods_by_name.get(name)
        if described is None:
            return random.randbytes(random.randint(0, 40))
        made = getattr(pb, described.input_type.name)()
        self._fill(made, 0)
        if hasattr(made, "merge"):
            made.merge = random.choice(OWN_MERGES + NASTY)  # never the good merge: the method may change it
        return self._bent(made.SerializeToString())

    def _bent(self, data: bytes) -> bytes:
        random = self.random
        kind = random.random()
        if kind < 0.6 or not data:
            return data
        at = random.randrange(len(data))
        if kind < 0.8:
            return data[:at]
        return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]

    def _attach(self) -> pb.Attach:
        random = self.random
        role: Any = random.choice([0, 1, 2, 2, 9])
        merge = random.choice([GOOD_MERGE, GOOD_MERGE, *OWN_MERGES, random.choice(NASTY)])
        attach = pb.Attach(
            merge=merge,
            replica=random.choice([f"evil {random.randrange(9)}", random.choice(NASTY)]),
            incarnation=random.choice(NUMBERS),
            role=role,
            properties=random.sample(["key", "ordered", "insert-only", "no promise", "\x1b[2J"], random.randint(0, 2)),
        )
        if random.random() < 0.5:
            attach.join_at = random.choice(TIMES)
        if random.random() < 0.7:
            attach.schema.SetInParent()
            for _ in range(random.choice([0, 1, 2, 2, 3000])):
                self._column(attach.schema.columns.add(), 0)
        if merge == GOOD_MERGE:
            attach.role = pb.ROLE_OBSERVE  # one that is accepted is compared, and changes no output
        return attach

    def _column(self, column: Any, depth: int) -> None:
        random = self.random
        column.name, column.type = random.choice([*NASTY, "a", "b", "c"]), random.choice(TYPES)
        column.scale = random.choice([0, 0, 2, 99, -1, 2**31 - 1])
        if random.random() < 0.2:
            column.round_digits = random.choice([0, 2, 99, -(2**31)])
        if depth < 30 and random.random() < 0.3:
            self._column(column.children.add(), depth + 1)

    def _publish_rest(self, merge: str) -> pb.PublishRequest:
        random = self.random
        kind = random.randrange(6)
        if kind == 0 and merge != GOOD_MERGE:
            batch = batch_message([ins("x", 1, 5), stable(random.choice(TIMES))])
        else:
            batch = pb.Batch(
                kinds=random.randbytes(3),
                vs=random.randbytes(random.choice([0, 8, 24])),
                ve=random.randbytes(24),
                payload_ends=random.randbytes(12),
                payloads=random.randbytes(9),
            )
            batch.kinds = bytes([3 + random.randrange(9)]) + batch.kinds  # an unknown kind: the whole batch is refused
        if kind < 3:
            numbered = pb.PublishRequest.SequencedBatch(sequence=random.choice([1, 1, 2, 0]), batch=batch)
            return pb.PublishRequest(batch=numbered)
        if kind == 3:
            return pb.PublishRequest(skip=pb.PublishRequest.Skip(until=random.choice(TIMES)))
        if kind == 4:
            parts = [pb.PublishRequest.Commit.Part(partition=1, attempt=2)] * random.randint(0, 2)
            commit = pb.PublishRequest.Commit(sequence=1, query=random.choice(NASTY), parts=parts)
            return pb.PublishRequest(commit=commit)
        return pb.PublishRequest(attach=self._attach())

    def _fill(self, message: Any, depth: int) -> None:
        random = self.random
        for field in message.DESCRIPTOR.fields:
            if random.random() < 0.3 or depth > 3:
                continue
            values = [self._value(field) for _ in range(random.randint(0, 3) if field.is_repeated else 1)]
            for value in values:
                if field.message_type is not None:
                    inner = getattr(message, field.name)
                    self._fill(inner.add() if field.is_repeated else inner, depth + 1)
                elif field.is_repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)

    def _value(self, field: Any) -> Any:
        random = self.random
        if field.cpp_type == field.CPPTYPE_STRING:
            return random.randbytes(9) if field.type == field.TYPE_BYTES else random.choice([*NASTY, "a"])
        if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return random.choice([0.0, -1.0, float("inf"), float("nan"), 0.01])
        if field.cpp_type == field.CPPTYPE_BOOL:
            return random.random() < 0.5
        if field.cpp_type == field.CPPTYPE_INT64:
            return random.choice(TIMES)
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_ENUM):
            return random.choice([0, 1, 2, 7])
        if field.cpp_type == field.CPPTYPE_UINT32:
            return random.choice([0, 1, 2**32 - 1])
        return random.choice(NUMBERS) if field.cpp_type == field.CPPTYPE_UINT64 else None


async def _details(call: Any) -> str:
    return str(await call.details()) if call.done() else "given up"
