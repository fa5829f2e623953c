"""The run of `lmerge demo`: servers, replicas, a subscriber, three kills, and the comparison of the tables.

A replica in Spark takes longer to start than the others, and the start of its JVM uses the whole machine. So the clock
waits for it, for some time, and the run then measures the merge and not that start. On a slow machine the replay begins
without it, and it joins when it can. The output ends when the four other inputs have ended. The replica in Spark
changes no verdict.

Called by `demo`. The main thread reads processes and counters ten times a second, kills, restarts and draws. A second
thread only reads the subscription into the ledger, so that the gaps which it measures are those of the stream. Every
process that was started has ended when `run_demo` returns, also after an error.
"""

from __future__ import annotations

import gc
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lmerge.client import Subscriber, SubscriberLimits
from lmerge.client.subscribe.follower import JOINED
from lmerge.core.elements import INF, NEG_INF
from lmerge.demo.clock import ReplayClockFile
from lmerge.demo.fleet import ESSENTIAL, MERGE, DemoReplicas
from lmerge.demo.judge import FlightsJudge
from lmerge.demo.ledger import Ledger
from lmerge.demo.observe import Observation, observe
from lmerge.demo.pace import BACK_S_MAX, KILL, REPLICA, START, KillSchedule, Situation, planned_kills
from lmerge.demo.processes import END_S_MAX, READY_S_MAX
from lmerge.demo.servers import SERVERS, Servers
from lmerge.demo.verdict import DemoVerdict, Kill, OutputSummary
from lmerge.demo.view import DemoView, Scene, count_of
from lmerge.errors import Unavailable
from lmerge_replicas.flights.flight import DAY
from lmerge_replicas.flights.replay import ReplayClock, first_instant
from lmerge_replicas.flights.source import Days

TICK_S = 0.1
OBSERVE_S = 0.25  # between queries of the server; each costs it about a millisecond
START_S = 0.3  # from the start message to the first element, so that all replicas have read it
STUCK_S_MAX = 60.0  # no output for so long is a failure on any machine
LOAD_S_MAX = 60.0  # the year takes 3 s on a free core
SPARK_NEEDED_S_MAX = 600.0  # with --spark yes
SPARK_S_MAX = 30.0  # a JVM, a session and a first batch take half of it on two free cores
KILL_WINDOW_S = 2.0  # the stall of a kill is the longest one in this time after it
VICTIM = SERVERS - 1  # the number of the server that is killed; the first one describes the merge


class DemoOptions(NamedTuple):
    """What to run.

    ``seconds``: length of the replay on a machine that keeps up. ``without_spark``: why there is no replica in Spark;
    empty if there is one. ``needs_spark``: the demo waits for it and fails without it. ``capacity``: the measured
    capacity, as text.
    """

    days: Days
    seconds: float
    kills: int = 2
    server_kills: int = 1
    without_spark: str = ""
    needs_spark: bool = False
    capacity: str = ""

    @property
    def day_count(self) -> int:
        """The number of days."""
        return (self.days.last - self.days.first).days + 1

    @property
    def speed(self) -> float:
        """Days a second. The last arrivals come a day after the last departures."""
        return (self.day_count + 1) / self.seconds

    @property
    def way(self) -> int:
        """The time from the first departure to that of the last few elements, in microseconds of application time."""
        return self.day_count * DAY + DAY // 2


class DemoRun:
    """One replay in progress: its kills, and the state that the view and the verdict show."""

    def __init__(
        self, options: DemoOptions, servers: Servers, fleet: DemoReplicas, ledger: Ledger, clock: ReplayClockFile
    ) -> None:
        self.options, self.servers, self.fleet, self.ledger, self.clock = options, servers, fleet, ledger, clock
        # The last mark is before the last arrivals, so that the stream cannot end there.
        self.schedule = KillSchedule(
            planned_kills(options.kills, options.server_kills), options.day_count * DAY / options.way
        )
        self.kills: list[Kill] = []
        self.server_kills: list[Kill] = []
        self.subscriber: Subscriber | None = None
        self.joined_servers = 0  # servers that the subscriber has joined
        self.is_over = threading.Event()
        self.stood_s = 0.0  # how long the replay has stood still
        self._stands_since_s: float | None = None
        self._has_given_up = False
        self.news: list[tuple[float, str]] = []
        self.began_s = time.monotonic()
        self.observation = Observation()
        self.spark_note = options.without_spark
        self._first = first_instant(options.days)
        self._next_observation_s = 0.0
        self._output_window: list[tuple[float, int]] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of loading; once the replay has begun, since then."""
        return max(time.monotonic() - self.began_s, 0.0)

    @property
    def progress(self) -> float:
        """The part of the replay that the output has reached, 0 to 1."""
        point = self.ledger.stable_point
        if point in (INF, NEG_INF):
            return 1.0 if point == INF else 0.0
        return min(max((point - self._first) / self.options.way, 0.0), 1.0)

    def report(self, text: str) -> None:
        """Add a line of news."""
        self.news.append((self.elapsed_s, text))

    def tick(self) -> None:
        """Read the state of all processes, and do what is due."""
        self.fleet.read_messages()
        self.servers.check()
        now = time.monotonic()
        if now >= self._next_observation_s:
            self._next_observation_s = now + OBSERVE_S
            self.observe()
        self._note_rejoins()
        self._act(now)
        self._check_spark()
        if self.ledger.idle_s(now) > STUCK_S_MAX:
            raise Unavailable(f"no output for {STUCK_S_MAX:.0f} s at {self.progress:.0%} of the way")

    def observe(self) -> None:
        """Read the state of the merge from the server, and that of the subscriber."""
        if self.subscriber is not None:
            self.joined_servers = sum(source.state == JOINED for source in self.subscriber.sources)
        self.observation = observe(self.servers.first, MERGE)
        self.fleet.observe(self.observation.inputs)

    def scene(self) -> Scene:
        """Return the present state for the view."""
        now = time.monotonic()
        window = self._output_window
        window.append((now, self.ledger.elements))
        while now - window[0][0] > 2.0:
            window.pop(0)
        rate = (window[-1][1] - window[0][1]) / max(window[-1][0] - window[0][0], TICK_S)
        seen = self.observation
        return Scene(
            self.elapsed_s,
            self.fleet.flights,
            self.progress,
            self.ledger.stable_point,
            self.ledger.elements,
            rate,
            seen.live_events,
            seen.survives_losses,
            seen.algorithm,
            self.ledger.idle_s(now) * 1e3,
            self.ledger.longest_gap_s * 1e3,
            self.fleet.scenes(self.ledger.stable_point),
            tuple(self.news),
            self.servers.up,
            SERVERS,
        )

    def finished(self, kills: list[Kill]) -> tuple[Kill, ...]:
        """Return the kills, each with its stall."""
        return tuple(
            kill._replace(stall_ms=self.ledger.stall(since, since + KILL_WINDOW_S).longest_ms)
            for kill in kills
            for since in [self.began_s + kill.at_s]
        )

    def _act(self, now: float) -> None:
        """Do the next step of the schedule, and set the stop of the clock."""
        is_whole = self.fleet.is_complete and self.servers.up == SERVERS == self.joined_servers
        step = self.schedule.next(Situation(now, self.progress, is_whole))
        if step.action == KILL:
            (self._kill if step.victim == REPLICA else self._kill_server)()
        elif step.action == START:
            (self._start_again if step.victim == REPLICA else self._start_server)()
        self.clock.stop_at(INF if step.until is None else self._first + int(step.until * self.options.way))
        self.clock.wait_for(self.ledger.stable_point)
        self._note_standing(now)
        if self.schedule.has_given_up and not self._has_given_up:
            self._has_given_up = True
            self.report(f"not all are back after {BACK_S_MAX:.0f} s: the replay goes to its end without them")

    def _note_standing(self, now: float) -> None:
        """Report to the ledger that the clock stops or continues: a stop is no stall of the stream."""
        if self.clock.is_standing and self._stands_since_s is None:
            self._stands_since_s = now
            self.ledger.replay_stops(now)
            self.report("the replay waits until all are back")
        elif self._stands_since_s is not None and not self.clock.is_standing:
            self.ledger.replay_goes_on(now)
            self.stood_s += now - self._stands_since_s
            self._stands_since_s = None

    def _start_again(self) -> None:
        name = self.kills[-1].replica
        self.report(f"{name} starts again: a new process, with nothing but the raw table")
        self.fleet.launch(name)

    def _kill_server(self) -> None:
        pid = self.servers.kill(VICTIM)
        self.joined_servers = SERVERS - 1
        self.server_kills.append(Kill(f"server {VICTIM + 1}", pid, self.elapsed_s, 0.0))
        self.report(f"SIGKILL to server {VICTIM + 1} (process {pid}), one of {SERVERS} that all clients connect to")

    def _start_server(self) -> None:
        self.report(f"server {VICTIM + 1} starts again, with nothing but its port")
        self.servers.start(VICTIM)

    def _note_rejoins(self) -> None:
        """Note when a replica that was killed has joined again, and when the subscriber has joined the server again."""
        for i, kill in enumerate(self.kills):
            if kill.rejoined_s is None and self.fleet.replicas[kill.replica].state == "joined":
                self.kills[i] = kill._replace(rejoined_s=self.elapsed_s)
                self.report(f"{kill.replica} has joined again")
        for i, kill in enumerate(self.server_kills):
            if kill.rejoined_s is None and self.servers.up == SERVERS and self.joined_servers == SERVERS:
                self.server_kills[i] = kill._replace(rejoined_s=self.elapsed_s)
                self.report(f"{kill.replica} has joined again")

    def _check_spark(self) -> None:
        """Report it if the replica in Spark has ended by itself."""
        spark = self.fleet.spark
        if spark is not None and spark.state == "gone" and not self.spark_note:
            self.spark_note = f"the replica in Spark has failed: {spark.gone}"
            self.report("the replica in Spark has ended by itself; the others go on")

    def spark_outcome(self) -> str:
        """Return the problem of the replica in Spark at the end; empty if it took part as planned."""
        spark = self.fleet.spark
        has_published = spark is None or spark.totals.elements > 0
        return self.spark_note or ("" if has_published else "the replica in Spark had not joined when the stream ended")

    def _kill(self) -> None:
        name, share = self.fleet.winner(spared={kill.replica for kill in self.kills})
        self.observe()
        pid = self.fleet.kill(name)
        self.kills.append(Kill(name, pid, self.elapsed_s, share))
        self.report(f"SIGKILL to {name} (process {pid}), which was making {share:.0%} of the output")


def run_demo(options: DemoOptions, view: DemoView) -> DemoVerdict:
    """Run the demo and return its verdict, also a bad one. Raises LmergeError if something does not work."""
    total_began_s = time.monotonic()
    with _signals_as_exceptions(), tempfile.TemporaryDirectory(prefix="lmerge-demo-") as scratch:
        folder = Path(scratch)
        servers = Servers(folder, closing=f"quorum:{len(ESSENTIAL)}")
        clock = ReplayClockFile(folder / "clock.json")
        fleet = DemoReplicas(
            servers.addresses, options.days, options.speed, folder, clock.path, spark=not options.without_spark
        )
        ledger = Ledger()
        gc.freeze()  # the loaded modules stay: collections that scan them would only pause the reader
        try:
            run = DemoRun(options, servers, fleet, ledger, clock)
            failures = _subscribe(run)
            _load(run, view)
            _replay(run, view, failures)
            replay_s = run.elapsed_s
            run.observe()
            run.is_over.set()
        finally:
            gc.unfreeze()
            with _sigint_ignored():
                deadline = time.monotonic() + END_S_MAX
                fleet.end(at_s=deadline)
                servers.end(at_s=deadline)
    with FlightsJudge(options.days) as judge:
        raw, comparison = judge.counts(), judge.compare(ledger.events())
    seen = run.observation
    return DemoVerdict(
        (options.days.first.isoformat(), options.days.last.isoformat()),
        raw,
        comparison,
        OutputSummary.of(ledger),
        ledger.stall(),
        run.finished(run.kills),
        options.kills,
        run.finished(run.server_kills),
        options.server_kills,
        {name: replica.totals for name, replica in fleet.replicas.items()},
        seen.algorithm,
        seen.algorithm_reason,
        seen.policy,
        seen.engine,
        replay_s,
        time.monotonic() - total_began_s,
        run.spark_outcome(),
        run.stood_s,
    )


def _load(run: DemoRun, view: DemoView) -> None:
    """Wait until all replicas have loaded the table and Spark has started, then start the clock."""
    spark = run.fleet.spark
    options = run.options
    if options.capacity:
        run.report(f"{options.capacity}: {options.days.first} to {options.days.last} in {options.seconds:.0f} s")
    run.report(
        f"{count_of(run.fleet.essential)} replicas read the raw table" + ("; Spark starts for a fifth" if spark else "")
    )
    if run.spark_note:
        run.report(run.spark_note)
    for name in run.fleet.replicas:
        run.fleet.launch(name)
    began_s = time.monotonic()
    patience_s = SPARK_NEEDED_S_MAX if run.options.needs_spark else SPARK_S_MAX
    while True:
        run.fleet.read_messages()
        view.show(run.scene())
        waited_s = time.monotonic() - began_s
        if any(replica.state != "loaded" for replica in run.fleet.essential):
            if waited_s > LOAD_S_MAX:
                raise Unavailable(f"the replicas had not loaded the flights after {LOAD_S_MAX:.0f} s")
        elif spark is None or spark.state in ("loaded", "gone") or waited_s > patience_s:
            break
        time.sleep(TICK_S)
    if run.options.needs_spark and spark is not None and spark.state != "loaded":
        raise Unavailable(spark.gone or f"Spark has not started within {patience_s:.0f} s")
    loading_s = run.elapsed_s
    start = time.time() + START_S
    run.clock.start(ReplayClock(start, first_instant(run.options.days), run.options.speed * 86_400))
    run.fleet.begin(start)
    run.began_s = time.monotonic() + START_S
    if spark is not None and spark.state == "loading":
        run.report(f"Spark has not started within {SPARK_S_MAX:.0f} s: its replica joins when it can")
    run.report(f"loaded in {loading_s:.1f} s; the replay begins: {run.options.speed:.1f} days a second")


def _replay(run: DemoRun, view: DemoView, failures: list[BaseException]) -> None:
    while not run.ledger.is_complete:
        run.tick()
        view.show(run.scene())
        if failures:
            raise failures[0]
        time.sleep(TICK_S)
    run.report("the output is complete")
    view.show(run.scene())


def _subscribe(run: DemoRun) -> list[BaseException]:
    """Start the thread that reads the merged stream into the ledger. Return the list to which it adds its error."""
    ledger = run.ledger
    failures: list[BaseException] = []
    attached = threading.Event()

    def read() -> None:
        try:
            # The demo kills servers itself, and its view shows which are down.
            quiet = SubscriberLimits(report_after_s=None)
            with Subscriber(run.servers.addresses, MERGE, name="demo", limits=quiet) as subscriber:
                attached.set()
                run.subscriber = subscriber
                for batch in subscriber.batches():
                    ledger.take(batch, time.monotonic())
                    if ledger.is_complete:
                        break
                run.is_over.wait()  # until then its state can be read
        except BaseException as error:
            failures.append(error)

    threading.Thread(target=read, name="subscriber", daemon=True).start()
    attached.wait(READY_S_MAX)
    return failures


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into exceptions as Ctrl-C does, so that the processes are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _sigint_ignored() -> Iterator[None]:
    """Ignore a second Ctrl-C while the processes are ended, which takes at most END_S_MAX."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)
