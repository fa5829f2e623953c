"""What the servers of a query say of its merge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lmerge.client.describe import describe_merge
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, MergeReset, ServerGone, Unavailable, UnknownMerge
from lmerge.spark.source.options import ReadOptions
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

# A server that does not answer a question for so long is taken to be away.
ANSWER_S: Final = 3.0
# What follows the words of a MergeReset: what a user can do.
ANEW: Final = "a query that begins anew, with another checkpoint, reads what the merge is since"


class Known(NamedTuple):
    """What one server says of the merge."""

    target: str
    stable_point: int
    retained_from: int
    schema: Schema | None
    epoch: int = 0


class Answers(NamedTuple):
    """What servers say of the merge: those that have it, why others do not, and why others did not answer."""

    known: list[Known]
    unknown: list[LmergeError]
    away: list[LmergeError]

    @property
    def retained_from(self) -> int:
        """What ends from here on, somebody has."""
        return min(known.retained_from for known in self.known)

    @property
    def stable_point(self) -> int:
        """How far the merge is; -inf: nobody knows it."""
        return max((known.stable_point for known in self.known), default=NEG_INF)

    @property
    def epoch(self) -> int | None:
        """Of the merge, the newest where its servers were not all reset; None: nobody knows it."""
        return max((known.epoch for known in self.known), default=None)

    def of_epoch(self, epoch: int | None) -> Answers:
        """The same from servers that are in this epoch of the merge only; None: in the newest."""
        epoch = self.epoch if epoch is None else epoch
        return self._replace(known=[known for known in self.known if known.epoch == epoch])

    def going_on(self, epoch: int | None, options: ReadOptions) -> Answers:
        """The same for who reads this epoch. Raises MergeReset if all that know the merge are in another one."""
        answers = self.of_epoch(epoch)
        if self.known and not answers.known:
            raise MergeReset(
                f"cannot read {options} in epoch {epoch}: it was reset, and is in epoch {self.epoch}, which does not "
                f"go on from there; {ANEW}"
            )
        return answers

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
        Schema.from_message(answer.schema) if answer.HasField("schema") else None, answer.epoch,
    )
