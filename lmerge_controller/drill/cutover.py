"""The cutover of a drill: an observer takes over from a replica, and one of the two may be killed in a phase.

Called by the runner as one fault. The cutover runs at all servers, as an operator would run it. Without a kill the
newcomer must take over. With one, either end is right: what counts is that the stream goes on, which the
judge decides, and that the redundancy is whole in the end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from lmerge.errors import LmergeError, Unavailable
from lmerge_controller.drill.probe.fleet import MERGE, ProbeFleet
from lmerge_controller.drill.scenario import DrillStep
from lmerge_controller.drill.targets.target import DrillTarget, Undo

INTERVALS: Final = 3
# At the server. The newcomer is certified after the interval in which it joins and three more.
TIMEOUT_S: Final = 10.0
INTERVAL_US_MAX: Final = int(TIMEOUT_S * 1e6 / (INTERVALS + 2))
JOIN_S_MAX: Final = 30.0
Wait = Callable[[Callable[[], bool], float, str], None]


def long_intervals(target: DrillTarget) -> list[str]:
    """Return the servers that compare too seldom for a drill, as text. Raises LmergeError if one does not answer.

    With the servers' default, a minute, certifying a newcomer in each phase at each server would take an hour.
    """
    from lmerge.client.admin import certify_merge

    found = []
    for address in target.addresses:
        interval_us = certify_merge(address, MERGE, security=target.security).interval
        if interval_us > INTERVAL_US_MAX:
            found.append(
                f"server {address} compares intervals of {interval_us / 1e6:g} s; a cutover within the time of a "
                f"drill needs --certify-interval of at most {INTERVAL_US_MAX} ({INTERVAL_US_MAX / 1e6:g} s)"
            )
    return found


def cut_over(fleet: ProbeFleet, target: DrillTarget, leaver: str, step: DrillStep, wait: Wait) -> Undo:
    """Cut over from ``leaver`` to a new replica at every server. Undone: the redundancy is as it was before.

    Raises Unavailable if no one was killed and the newcomer has not taken over.
    """
    newcomer = fleet.add(role="observe").orders.name
    kill_at = step.options.get("killAt")
    victim = leaver if step.options.get("kills") == "leaver" else newcomer
    ending = ""
    try:
        wait(lambda: fleet.replicas[newcomer].has_attached, JOIN_S_MAX, "the newcomer attaches")
        fleet.replicas[leaver].is_broken = True  # the servers end it when the newcomer has taken over
        ending = _at_all_servers(target, (leaver, newcomer), _killer(fleet, kill_at, victim), wait)
    finally:
        _settle(fleet, leaver, newcomer, has_taken_over=ending == "")
    if kill_at is None and ending:
        raise Unavailable(f"the newcomer has not taken over: {ending}")
    return lambda: None


def _killer(fleet: ProbeFleet, kill_at: str | None, victim: str) -> Callable[[str], None]:
    """Return what is called with each stage. It kills the victim at its stage, once."""

    def at(stage: str) -> None:
        if stage == kill_at and fleet.is_running(victim):
            fleet.kill(victim)

    return at


def _at_all_servers(target: DrillTarget, pair: tuple[str, str], at_stage: Callable[[str], None], wait: Wait) -> str:
    """Run the cutover. Return why the newcomer has not taken over, or an empty text."""
    from lmerge.client.admin import DONE

    steps: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    caller = threading.Thread(target=_call, args=(target, pair, steps), name="drill-cutover", daemon=True)
    caller.start()
    stage = text = ""

    def is_over() -> bool:
        nonlocal stage, text
        over = not caller.is_alive()
        while not steps.empty():
            stage, text = steps.get()
            at_stage(stage)
        return over

    wait(is_over, (len(target.addresses) + 1) * TIMEOUT_S, "the cutover ends")
    return "" if stage == DONE else text


def _call(target: DrillTarget, pair: tuple[str, str], steps: queue.SimpleQueue[tuple[str, str]]) -> None:
    from lmerge.client.admin import cutover

    leaver, newcomer = pair
    try:
        for progress in cutover(
            target.addresses,
            MERGE,
            leaver,
            newcomer,
            intervals=INTERVALS,
            security=target.security,
            timeout_s=TIMEOUT_S,
        ):
            steps.put((progress.stage, progress.words))
    except LmergeError as error:
        steps.put(("failed", str(error)))


def _settle(fleet: ProbeFleet, leaver: str, newcomer: str, *, has_taken_over: bool) -> None:
    """Leave one of the two: the newcomer if it has taken over everywhere, otherwise the leaver."""
    if has_taken_over:
        fleet.remove(leaver)
        fleet.promote(newcomer)
        return
    fleet.remove(newcomer)
    fleet.release(leaver)
    if fleet.is_running(leaver):
        fleet.replicas[leaver].is_broken = False
    else:
        fleet.restart(leaver)
