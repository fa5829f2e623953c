"""An asyncio loop in virtual time: the clock jumps to the next timer when nothing is ready to run.

Time costs nothing, and nothing depends on the machine: the same program with the same seed takes the same steps in the
same order. Every task and callback belongs to a ``SimulatedProcess`` through its context. So a process can be paused
(its steps wait) or killed (its steps never run), as a signal would do it to a real one.

Code that blocks the thread cannot run here: there are no sockets and no threads. ``run_in_executor`` runs the function
in the loop, at a moment within a virtual delay of the process's disk. A run that goes on for too long, in virtual time
or in steps, ends with ``RunsForever``; one in which no task can ever go on, with ``Deadlock``.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

#: The process of the present step; None: the network's, or the scenario's own step.
PROCESS: Final[ContextVar[Holder | None]] = ContextVar("process", default=None)

# A run of the default scenarios takes some ten thousand steps.
STEPS_MAX: Final = 3_000_000


class Holder(Protocol):
    """The loop's interface to a process."""

    def holds(self, handle: asyncio.Handle) -> bool:
        """Return whether the step must wait; the process keeps it then."""

    def executor_delay_s(self) -> float:
        """Return how long the next function in a thread takes."""

    def function_begins(self) -> None:
        """Note that a function is about to run in a thread."""

    def function_ends(self) -> None:
        """Note that the caller has received the function's result."""


class RunsForever(Exception):
    """A limit of the run was reached."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """``run_until_complete`` as usual; ``time()`` starts at 0 and is virtual."""

    def __init__(self, *, time_max_s: float = 1e9, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self.steps = 0
        self.time_max_s = time_max_s
        self.steps_max = steps_max
        self.outside: Final = _outside()  # the context of steps that belong to no process
        self.tasks: dict[asyncio.Task[Any], None] = {}  # all that are not done, in order of creation
        self.problems: list[str] = []  # exceptions that were not handled
        self.ending = False  # the run is over: dead processes may unwind
        self._now = 0.0
        # By executor: its functions run one after another. Not by its id, which another one may have later.
        self._busy_until: dict[Any, float] = {}
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._unhandled)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def at(self, when_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """``call_at`` for a step that belongs to no process."""
        return self.call_at(when_s, callback, *args, context=self.outside)

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """``call_later`` for a step that belongs to no process."""
        return self.call_at(self._now + delay_s, callback, *args, context=self.outside)

    def release(self, handles: list[asyncio.Handle]) -> None:
        """Let steps run that were held."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Run the function at one moment of a virtual delay; its result comes at the end of the delay."""
        process = PROCESS.get()
        delay = 1e-6 + (process.executor_delay_s() if process is not None else 0.0)
        start = max(self._now, self._busy_until.get(executor, 0.0))
        self._busy_until[executor] = end = start + delay
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            result, problem = None, None
            if process is not None:
                process.function_begins()
            try:
                result = func(*args)
            except Exception as raised:
                problem = raised
            self.call_at(end, settle, result, problem)

        def settle(result: Any, problem: Exception | None) -> None:
            if process is not None:
                process.function_ends()
            _settle(future, result, problem)

        self.call_at(start + 0.6 * delay, run)
        return future

    def unwind(self, rounds_max: int = 200) -> None:
        """Cancel every task, those of dead processes as well, until all have ended."""
        self.ending = True
        self.steps_max, self.time_max_s = self.steps + 1_000_000, self._now + 1e6
        for _ in range(rounds_max):
            if not self.tasks:
                return
            for task in list(self.tasks):
                task.cancel()
            self.run_until_complete(_some_turns())
        left = [task.get_name() for task in self.tasks]
        self.tasks.clear()
        raise RunsForever(f"tasks do not end when they are cancelled: {', '.join(left)}")

    # asyncio's own hooks.

    def _run_once(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not ready:
            if not timers:
                raise Deadlock(f"at {self._now:.6f} s nothing is ready and no timer is set")
            self._now = max(self._now, timers[0].when())
            if self._now > self.time_max_s:
                raise RunsForever(f"the run is not over after {self.time_max_s:.0f} virtual seconds")
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is not None and not self.ending and process.holds(handle):
                continue
            self.steps += 1
            handle._run()
        if self.steps > self.steps_max:
            raise RunsForever(f"the run is not over after {self.steps_max} steps")

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no thread to wake."""

    def _make_task(self, loop: Any, coroutine: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        self.tasks[task] = None  # a task of a dead process must not be collected: its ``finally`` would run
        task.add_done_callback(self._forget, context=self.outside)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def _unhandled(self, _loop: Any, context: dict[str, Any]) -> None:
        if not self.ending:
            problem = context.get("exception")
            self.problems.append(f"{context.get('message')}: {type(problem).__name__}: {problem}")


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, on a loop of its own; return its result."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


async def later(seconds: float) -> None:
    """Return after ``seconds`` of the running loop."""
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, reached.set)
    await reached.wait()


def _settle(future: asyncio.Future[Any], result: Any, problem: Exception | None) -> None:
    if future.done():
        return
    if problem is not None:
        future.set_exception(problem)
    else:
        future.set_result(result)


async def _some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _outside() -> Context:
    context = copy_context()
    context.run(PROCESS.set, None)
    return context
