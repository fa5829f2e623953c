"""Asks the servers of a query for the state of its merge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lmerge.client.describe import describe_merge
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, MergeReset, ServerGone, Unavailable, UnknownMerge
from lmerge.spark.source.options import ReadOptions
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

# A server that does not answer within this time counts as unreachable.
ANSWER_S: Final = 3.0
# Appended to the message of a MergeReset: what a user can do.
ANEW: Final = "a query with another checkpoint begins anew and reads the merge as it is since the reset"


class ServerAnswer(NamedTuple):
    """The state of the merge at one server."""

    target: str
    stable_point: int
    retained_from: int
    schema: Schema | None
    epoch: int = 0


class Answers(NamedTuple):
    """The servers' answers: those that have the merge, errors of those without it, errors of those unreachable."""

    found: list[ServerAnswer]
    missing: list[LmergeError]
    away: list[LmergeError]

    @property
    def retained_from(self) -> int:
        """The earliest time that a server retains: it has the events that end from then on."""
        return min(answer.retained_from for answer in self.found)

    @property
    def stable_point(self) -> int:
        """The merge's stable point; -inf: no server has it."""
        return max((answer.stable_point for answer in self.found), default=NEG_INF)

    @property
    def epoch(self) -> int | None:
        """The merge's epoch, the newest if not all servers were reset; None: no server has it."""
        return max((answer.epoch for answer in self.found), default=None)

    def of_epoch(self, epoch: int | None) -> Answers:
        """Return the answers of servers in this epoch of the merge; None: in the newest."""
        epoch = self.epoch if epoch is None else epoch
        return self._replace(found=[answer for answer in self.found if answer.epoch == epoch])

    def going_on(self, epoch: int | None, options: ReadOptions) -> Answers:
        """Return the answers for a reader of this epoch. Raises MergeReset if all servers are in another one."""
        answers = self.of_epoch(epoch)
        if self.found and not answers.found:
            raise MergeReset(
                f"cannot read {options} in epoch {epoch}: it was reset, and is in epoch {self.epoch}, which does not "
                f"continue that one; {ANEW}"
            )
        return answers

    def problem(self, options: ReadOptions) -> LmergeError:
        """Return the error if no server has the merge."""
        if self.missing:
            return UnknownMerge(f"cannot read {options}: {self.missing[0]}; it begins with its first replica")
        return ServerGone(f"cannot read {options}: {'; '.join(map(str, self.away))}")


def query_servers(options: ReadOptions) -> Answers:
    """Ask all servers at once. Raises errors that are not of one server, such as PermissionDenied."""
    answers = Answers([], [], [])
    with ThreadPoolExecutor(len(options.servers)) as pool:
        for answer in pool.map(lambda target: _query_server(options, target), options.servers):
            if isinstance(answer, ServerAnswer):
                answers.found.append(answer)
            elif isinstance(answer, UnknownMerge):
                answers.missing.append(answer)
            else:
                answers.away.append(answer)
    return answers


def _query_server(options: ReadOptions, target: str) -> ServerAnswer | LmergeError:
    try:
        answer: pb.DescribeMergeResponse = describe_merge(
            target, options.merge, security=options.security, timeout_s=ANSWER_S
        )
    except (UnknownMerge, Unavailable) as problem:
        return problem
    return ServerAnswer(
        target,
        answer.summary.stable_point,
        answer.retained_from if answer.HasField("retained_from") else NEG_INF,
        Schema.from_message(answer.schema) if answer.HasField("schema") else None,
        answer.epoch,
    )
