"""The configuration of a merge, as one value: which algorithm runs, what its output shows, and which engine runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lmerge.core.engines import selection
from lmerge.core.engines.python_engine import ALGORITHMS
from lmerge.core.policy import LAZY, Closing, Policy, parse_closing, parse_policy
from lmerge.core.properties import R3_MINUS, Case
from lmerge.errors import UsageError

AUTO: Final = "auto"


@dataclass(frozen=True)
class MergeConfig:
    """The configuration of a merge.

    ``algorithm``: ``auto``, or fixed: ``r0`` .. ``r4``. With ``auto`` the case follows from the inputs' promises, and
    becomes more general when an input that promises less attaches. ``policy`` and ``closing``: see ``policy``.
    ``allow_downgrade``: when an input breaks only a *property*, the input stays and the algorithm changes (law 6);
    needs ``auto``. Otherwise the input is detached. ``track_live``: keep the output's live events also under R0-R2,
    which do not need them; ``live_events()`` and switching do. ``engine``: ``python``, ``native``, or ``auto`` (native
    where it is built); both give the same output. ``shards``: threads that share the work; native engine, R3 and R4
    only. With shards the output table is the same, but elements between two stables come in another order, and of the
    stables that one batch causes only the last is emitted.
    """

    algorithm: str = AUTO
    policy: Policy | str = LAZY
    closing: Closing | str = "all"
    allow_downgrade: bool = False
    track_live: bool = True
    engine: str = selection.AUTO
    shards: int = 1

    @property
    def fixed(self) -> str | None:
        """The algorithm that is fixed; None if it follows from the inputs' promises."""
        return None if self.algorithm == AUTO else self.algorithm

    @property
    def parsed_policy(self) -> Policy:
        """The output policy. Raises UsageError if its text is none."""
        return parse_policy(self.policy) if isinstance(self.policy, str) else self.policy

    @property
    def parsed_closing(self) -> Closing:
        """The closing rule. Raises UsageError if its text is none."""
        return parse_closing(self.closing) if isinstance(self.closing, str) else self.closing

    @property
    def resolved_engine(self) -> str:
        """The engine that runs here, ``python`` or ``native``. Raises UsageError if it is not available."""
        return selection.resolve(self.engine)

    def check(self) -> None:
        """Raise UsageError if a value is impossible, or if values do not fit together."""
        if self.algorithm != AUTO and self.algorithm not in ALGORITHMS:
            raise UsageError(
                f"unknown algorithm {self.algorithm!r}; it is auto, {', '.join(case.algorithm for case in Case)}"
            )
        policy, _ = self.parsed_policy, self.parsed_closing
        if self.allow_downgrade and self.fixed:
            raise UsageError(f"the algorithm cannot be fixed to {self.algorithm} and downgraded as well")
        if self.allow_downgrade and not self.track_live:
            raise UsageError("a downgrade needs the output's live events: allow_downgrade needs track_live")
        self._check_shards(policy)
        if self.fixed and policy.needs_index and ALGORITHMS[self.fixed].case < Case.R3:
            raise UsageError(f"policy {policy} needs r3 or r4: {self.fixed} keeps no events")
        if policy != LAZY and self.fixed == R3_MINUS:
            raise UsageError("r3- is kept for comparison and supports only the lazy policy")

    def _check_shards(self, policy: Policy) -> None:
        engine = self.resolved_engine
        if self.shards == 1:
            return
        if not 1 <= self.shards <= selection.SHARDS_MAX:
            raise UsageError(f"a merge has 1 to {selection.SHARDS_MAX} shards, not {self.shards}")
        if engine != selection.NATIVE:
            why = selection.native_problem() or "the python engine was asked for"
            raise UsageError(f"{self.shards} shards need the native engine: {why}")
        if self.fixed not in (None, Case.R3.algorithm, Case.R4.algorithm):
            raise UsageError(f"{self.shards} shards need r3 or r4: {self.fixed} keeps no index that they could share")
        if self.allow_downgrade:
            raise UsageError(f"a merge of {self.shards} shards cannot be downgraded")
        if policy.counts_elements:
            raise UsageError(f"policy {policy} needs one shard: of {self.shards} shards none gets all inserts")


DEFAULTS: Final = MergeConfig()
