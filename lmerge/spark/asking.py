"""What the servers of a query say of its merge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lmerge.client.describe import describe_merge
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, ServerGone, Unavailable, UnknownMerge
from lmerge.spark.read_options import ReadOptions
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

# A server that does not answer a question for so long is taken to be away.
ANSWER_S: Final = 3.0


class Known(NamedTuple):
    """What one server says of the merge."""

    target: str
    stable_point: int
    retained_from: int
    schema: Schema | None


class Answers(NamedTuple):
    """What servers say of the merge: those that have it, why others do not, and why others did not answer."""

    known: list[Known]
    unknown: list[LmergeError]
    away: list[LmergeError]

    @property
    def retained_from(self) -> int:
        """What ends from here on, somebody has."""
        return min(known.retained_from for known in self.known)

    def problem(self, options: ReadOptions) -> LmergeError:
        """Why nobody knows the merge."""
        if self.unknown:
            return UnknownMerge(f"cannot read {options}: {self.unknown[0]}; it begins with its first replica")
        return ServerGone(f"cannot read {options}: {'; '.join(map(str, self.away))}")


def ask(options: ReadOptions) -> Answers:
    """Ask all servers at once. Raises what is no server's fault, as PermissionDenied."""
    answers = Answers([], [], [])
    with ThreadPoolExecutor(len(options.servers)) as pool:
        for answer in pool.map(lambda target: _ask(options, target), options.servers):
            if isinstance(answer, Known):
                answers.known.append(answer)
            elif isinstance(answer, UnknownMerge):
                answers.unknown.append(answer)
            else:
                answers.away.append(answer)
    return answers


def _ask(options: ReadOptions, target: str) -> Known | LmergeError:
    try:
        answer: pb.DescribeMergeResponse = describe_merge(
            target, options.merge, security=options.security, timeout_s=ANSWER_S
        )
    except (UnknownMerge, Unavailable) as problem:
        return problem
    return Known(
        target, answer.summary.stable_point, answer.retained_from if answer.HasField("retained_from") else NEG_INF,
        Schema.from_message(answer.schema) if answer.HasField("schema") else None,
    )
