"""The run of `lmerge demo`: servers, replicas, subscriber, three murders, and the judge.

A replica in Spark takes longer to start than the others, and the JVM's start takes what the machine has. So the clock
waits for it, for some time: what is measured is then the merge. On a slow machine the replay begins without it, and it
joins when it can. The output ends when the three others have ended theirs. How Spark fares changes no verdict.

Called by `demo`. The main thread conducts: it looks at processes and counters ten times a second, kills, restarts,
draws. A second thread does nothing but read the subscription into the ledger, so that the gaps which it measures
are the stream's. Whatever happens, every process that was started has ended when `run_demo` returns.
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

from lmerge.client import Subscriber
from lmerge.client.subscribe.follower import JOINED
from lmerge.core.elements import INF, NEG_INF
from lmerge.demo.clock import Clockmaker
from lmerge.demo.fleet import MERGE, DemoReplicas
from lmerge.demo.judge import FlightsJudge
from lmerge.demo.ledger import Ledger
from lmerge.demo.observe import Observation, observe
from lmerge.demo.pace import BACK_S_MAX, KILL, REPLICA, START, Conductor, Look, acts_of
from lmerge.demo.processes import END_S_MAX, READY_S_MAX
from lmerge.demo.servers import SERVERS, Servers
from lmerge.demo.verdict import DemoVerdict, Kill, OutputSummary
from lmerge.demo.view import DemoView, Scene, count_of
from lmerge.errors import Unavailable
from replicas.flights.flight import DAY
from replicas.flights.replay import ReplayClock, first_instant
from replicas.flights.source import Days
from replicas.flights.style import STYLES

TICK_S = 0.1
OBSERVE_S = 0.25  # between questions to the server; each costs it about a millisecond
START_S = 0.3  # from the word "go" to the first element, so that all three hear it in time
STUCK_S_MAX = 60.0  # no output for so long, on any machine, is a failure
LOAD_S_MAX = 60.0  # the year takes 3 s on a free core
SPARK_NEEDED_S_MAX = 600.0  # whoever says that it must be there has a reason to wait
SPARK_S_MAX = 30.0  # a JVM, a session and a first batch take half of it on two free cores
KILL_WINDOW_S = 2.0  # the stall "around a kill" is looked for in this time after it
VICTIM = SERVERS - 1  # the first is asked how the merge fares


class DemoOptions(NamedTuple):
    """What to run. ``seconds``: of the replay, if the machine keeps up. ``without_spark``: why there is no replica in
    Spark; empty if there is one. ``needs_spark``: it is waited for, and the demo fails without. ``capacity``: what was
    measured, in words.
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
        """How many days."""
        return (self.days.last - self.days.first).days + 1

    @property
    def speed(self) -> float:
        """Days a second. The last arrivals come a day after the last departures."""
        return (self.day_count + 1) / self.seconds

    @property
    def way(self) -> int:
        """From the first instant to where little is left to say, in microseconds of application time."""
        return self.day_count * DAY + DAY // 2


class Race:
    """One replay in progress: the acts of the play, and what the view and the verdict need to know."""

    def __init__(self, options: DemoOptions, servers: Servers, fleet: DemoReplicas, ledger: Ledger, clock: Clockmaker) -> None:
        self.options, self.servers, self.fleet, self.ledger, self.clock = options, servers, fleet, ledger, clock
        # The last mark lies before the last arrivals, so that the stream cannot end there.
        self.conductor = Conductor(acts_of(options.kills, options.server_kills), options.day_count * DAY / options.way)
        self.kills: list[Kill] = []
        self.server_kills: list[Kill] = []
        self.subscriber: Subscriber | None = None
        self.joined_servers = 0  # that the subscriber counts on
        self.is_over = threading.Event()
        self.stood_s = 0.0  # for so long the replay stood still
        self._stands_since_s: float | None = None
        self._has_given_up = False
        self.news: list[tuple[float, str]] = []
        self.began_s = time.monotonic()
        self.observation = Observation()
        self.spark_words = options.without_spark
        self._first = first_instant(options.days)
        self._next_observation_s = 0.0
        self._output_window: list[tuple[float, int]] = []

    @property
    def elapsed_s(self) -> float:
        """Since loading, and then the replay, began."""
        return max(time.monotonic() - self.began_s, 0.0)

    @property
    def progress(self) -> float:
        """How much of the way the output has come, 0 to 1."""
        point = self.ledger.stable_point
        if point in (INF, NEG_INF):
            return 1.0 if point == INF else 0.0
        return min(max((point - self._first) / self.options.way, 0.0), 1.0)

    def tell(self, text: str) -> None:
        """A line of news."""
        self.news.append((self.elapsed_s, text))

    def tick(self) -> None:
        """Look, and act where it is time to."""
        self.fleet.listen()
        self.servers.check()
        now = time.monotonic()
        if now >= self._next_observation_s:
            self._next_observation_s = now + OBSERVE_S
            self.look()
        self._note_returns()
        self._act(now)
        self._look_after_spark()
        if self.ledger.idle_s(now) > STUCK_S_MAX:
            raise Unavailable(f"no output for {STUCK_S_MAX:.0f} s at {self.progress:.0%} of the way")

    def look(self) -> None:
        """Ask the server, and the subscriber."""
        if self.subscriber is not None:
            self.joined_servers = sum(source.state == JOINED for source in self.subscriber.sources)
        self.observation = observe(self.servers.first, MERGE)
        self.fleet.observe(self.observation.inputs)

    def scene(self) -> Scene:
        """This moment, for the view."""
        now = time.monotonic()
        window = self._output_window
        window.append((now, self.ledger.elements))
        while now - window[0][0] > 2.0:
            window.pop(0)
        rate = (window[-1][1] - window[0][1]) / max(window[-1][0] - window[0][0], TICK_S)
        seen = self.observation
        return Scene(
            self.elapsed_s, self.fleet.flights, self.progress, self.ledger.stable_point, self.ledger.elements, rate,
            seen.live_events, seen.survives_losses, seen.algorithm, self.ledger.idle_s(now) * 1e3,
            self.ledger.longest_gap_s * 1e3, self.fleet.scenes(self.ledger.stable_point), tuple(self.news),
            self.servers.up, SERVERS,
        )

    def finished(self, kills: list[Kill]) -> tuple[Kill, ...]:
        """The kills, each with the stall around it."""
        return tuple(
            kill._replace(stall_ms=self.ledger.stall(since, since + KILL_WINDOW_S).longest_ms)
            for kill in kills for since in [self.began_s + kill.at_s]
        )

    def _act(self, now: float) -> None:
        """Do what the plot demands, and let the clock run as far as it allows."""
        is_whole = self.fleet.is_complete and self.servers.up == SERVERS == self.joined_servers
        order = self.conductor.next(Look(now, self.progress, is_whole))
        if order.deed == KILL:
            (self._kill if order.victim == REPLICA else self._kill_server)()
        elif order.deed == START:
            (self._start_again if order.victim == REPLICA else self._start_server)()
        self.clock.stop_at(INF if order.until is None else self._first + int(order.until * self.options.way))
        self.clock.wait_for(self.ledger.stable_point)
        self._note_standing(now)
        if self.conductor.has_given_up and not self._has_given_up:
            self._has_given_up = True
            self.tell(f"not all are back after {BACK_S_MAX:.0f} s: the replay goes to its end without them")

    def _note_standing(self, now: float) -> None:
        """The clock stands, or goes on: the ledger must know, for that is no stall of the stream."""
        if self.clock.is_standing and self._stands_since_s is None:
            self._stands_since_s = now
            self.ledger.replay_stops(now)
            self.tell("the replay waits until all are back")
        elif self._stands_since_s is not None and not self.clock.is_standing:
            self.ledger.replay_goes_on(now)
            self.stood_s += now - self._stands_since_s
            self._stands_since_s = None

    def _start_again(self) -> None:
        name = self.kills[-1].replica
        self.tell(f"{name} starts again: a new process, with nothing but the raw table")
        self.fleet.launch(name)

    def _kill_server(self) -> None:
        pid = self.servers.kill(VICTIM)
        self.joined_servers = SERVERS - 1
        self.server_kills.append(Kill(f"server {VICTIM + 1}", pid, self.elapsed_s, 0.0))
        self.tell(f"SIGKILL to server {VICTIM + 1} (process {pid}), one of the {SERVERS} that everybody talks to")

    def _start_server(self) -> None:
        self.tell(f"server {VICTIM + 1} starts again, with nothing but its port")
        self.servers.start(VICTIM)

    def _note_returns(self) -> None:
        """Whether a replica that was killed is in the merge again, and a server counts again for the subscriber."""
        for i, kill in enumerate(self.kills):
            if kill.rejoined_s is None and self.fleet.replicas[kill.replica].state == "joined":
                self.kills[i] = kill._replace(rejoined_s=self.elapsed_s)
                self.tell(f"{kill.replica} has joined again")
        for i, kill in enumerate(self.server_kills):
            if kill.rejoined_s is None and self.servers.up == SERVERS and self.joined_servers == SERVERS:
                self.server_kills[i] = kill._replace(rejoined_s=self.elapsed_s)
                self.tell(f"{kill.replica} has joined again")

    def _look_after_spark(self) -> None:
        """The one in Spark may have gone by itself: that is told."""
        spark = self.fleet.spark
        if spark is not None and spark.state == "gone" and not self.spark_words:
            self.spark_words = f"the replica in Spark did not live: {spark.gone}"
            self.tell("the replica in Spark has gone by itself; the others go on")

    def spark_fared(self) -> str:
        """What there is to say of the replica in Spark when all is over; empty if it took part as it should."""
        spark = self.fleet.spark
        has_come = spark is None or spark.totals.elements > 0
        return self.spark_words or ("" if has_come else "the replica in Spark had not joined when the stream ended")

    def _kill(self) -> None:
        name, share = self.fleet.winner(spared={kill.replica for kill in self.kills})
        self.look()
        pid = self.fleet.kill(name)
        self.kills.append(Kill(name, pid, self.elapsed_s, share))
        self.tell(f"SIGKILL to {name} (process {pid}), which was making {share:.0%} of the output")


def run_demo(options: DemoOptions, view: DemoView) -> DemoVerdict:
    """Run it all. Raises LmergeError if something does not work; what is merely wrong is in the verdict."""
    total_began_s = time.monotonic()
    with _signals_as_exceptions(), tempfile.TemporaryDirectory(prefix="lmerge-demo-") as scratch:
        folder = Path(scratch)
        servers = Servers(folder, closing=f"quorum:{len(STYLES)}")
        clock = Clockmaker(folder / "clock.json")
        fleet = DemoReplicas(
            servers.addresses, options.days, options.speed, folder, clock.path, spark=not options.without_spark
        )
        ledger = Ledger()
        gc.freeze()  # what is loaded by now stays: looking through it again and again would only pause the reader
        try:
            race = Race(options, servers, fleet, ledger, clock)
            failures = _subscribe(race)
            _load(race, view)
            _replay(race, view, failures)
            replay_s = race.elapsed_s
            race.look()
            race.is_over.set()
        finally:
            gc.unfreeze()
            with _deaf():
                deadline = time.monotonic() + END_S_MAX
                fleet.end(at_s=deadline)
                servers.end(at_s=deadline)
    with FlightsJudge(options.days) as judge:
        raw, comparison = judge.counts(), judge.compare(ledger.events())
    seen = race.observation
    return DemoVerdict(
        (options.days.first.isoformat(), options.days.last.isoformat()), raw, comparison,
        OutputSummary.of(ledger),
        ledger.stall(), race.finished(race.kills), options.kills, race.finished(race.server_kills),
        options.server_kills,
        {name: replica.totals for name, replica in fleet.replicas.items()},
        seen.algorithm, seen.algorithm_reason, seen.policy, seen.engine, replay_s, time.monotonic() - total_began_s,
        race.spark_fared(), race.stood_s,
    )


def _load(race: Race, view: DemoView) -> None:
    """All replicas load the table, and Spark starts; then the clock starts."""
    spark = race.fleet.spark
    options = race.options
    if options.capacity:
        race.tell(f"{options.capacity}: {options.days.first} to {options.days.last} in {options.seconds:.0f} s")
    race.tell(f"{count_of(race.fleet.essential)} replicas read the raw table"
              + ("; Spark starts for a fourth" if spark else ""))
    if race.spark_words:
        race.tell(race.spark_words)
    for name in race.fleet.replicas:
        race.fleet.launch(name)
    began_s = time.monotonic()
    patience_s = SPARK_NEEDED_S_MAX if race.options.needs_spark else SPARK_S_MAX
    while True:
        race.fleet.listen()
        view.show(race.scene())
        waited_s = time.monotonic() - began_s
        if any(replica.state != "loaded" for replica in race.fleet.essential):
            if waited_s > LOAD_S_MAX:
                raise Unavailable(f"the replicas had not loaded the flights after {LOAD_S_MAX:.0f} s")
        elif spark is None or spark.state in ("loaded", "gone") or waited_s > patience_s:
            break
        time.sleep(TICK_S)
    if race.options.needs_spark and spark is not None and spark.state != "loaded":
        raise Unavailable(spark.gone or f"Spark has not started within {patience_s:.0f} s")
    loading_s = race.elapsed_s
    start = time.time() + START_S
    race.clock.start(ReplayClock(start, first_instant(race.options.days), race.options.speed * 86_400))
    race.fleet.begin(start)
    race.began_s = time.monotonic() + START_S
    if spark is not None and spark.state == "loading":
        race.tell(f"Spark has not started within {SPARK_S_MAX:.0f} s: its replica joins when it can")
    race.tell(f"loaded in {loading_s:.1f} s; the replay begins: {race.options.speed:.1f} days a second")


def _replay(race: Race, view: DemoView, failures: list[BaseException]) -> None:
    while not race.ledger.is_complete:
        race.tick()
        view.show(race.scene())
        if failures:
            raise failures[0]
        time.sleep(TICK_S)
    race.tell("the output is complete")
    view.show(race.scene())


def _subscribe(race: Race) -> list[BaseException]:
    """Start the thread that reads the merged stream into the ledger; what went wrong in it, if anything."""
    ledger = race.ledger
    failures: list[BaseException] = []
    attached = threading.Event()

    def read() -> None:
        try:
            with Subscriber(race.servers.addresses, MERGE, name="demo") as subscriber:
                attached.set()
                race.subscriber = subscriber
                for batch in subscriber.batches():
                    ledger.take(batch, time.monotonic())
                    if ledger.is_complete:
                        break
                race.is_over.wait()  # until then it can be asked
        except BaseException as error:
            failures.append(error)

    threading.Thread(target=read, name="subscriber", daemon=True).start()
    attached.wait(READY_S_MAX)
    return failures


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, so that the processes are ended."""
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
def _deaf() -> Iterator[None]:
    """Ctrl-C a second time does not interrupt the ending of the processes, which takes its time limit at most."""
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
