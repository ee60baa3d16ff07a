"""`python -m benchmarks.scale`: what large loads take, from unit costs of one machine, with a simulation.

Measures one service and `murho predict` with the demo (wrk makes the load: ``apt-get install wrk``); with ``--costs
FILE`` it takes the unit costs of the last line of an earlier ``results.jsonl`` that has some. It prints measured and
simulated rates and latencies of one service; replicas for 1,000, 100,000 and 10,000,000 requests a second, cores for
10^12 rows, memory for 100,000 models; and what a load that jumps does under an autoscaler.

The simulation is of discrete events: a replica does one flight of requests at a time. A flight of k requests takes
``fixed + k each`` seconds of its core, and its requests are answered at its end. That is a queue with batch service
(Bailey 1954), with bounded batches.
"""

from __future__ import annotations

import heapq
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv

from benchmarks.processes import murho_command
from benchmarks.requests import DISTINCT, bodies_of, records, schema_of
from benchmarks.results import Report, add_counts, command, table
from benchmarks.servers import murho, running
from benchmarks.service import SAMPLES, demo, measure_rate
from murho.model.checkpoint.stores import DirectoryStore
from murho.model.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CONNECTIONS = (1, 4, 8, 32, 128)
"""Connections whose rates are measured. The first and the fourth give the costs, the others judge the simulation."""
COPIES = 20
"""Further models whose memory is measured."""
OFFLINE_ROWS = 200_000
CORES_A_MACHINE, MEMORY_A_MACHINE = 64, 256e9
HALF = 0.5
"""Share of the most that a replica can do for which replicas are planned: bursts and failures need the rest."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Unit costs of one replica with one core.

    Attributes:
        fixed: Seconds of a flight, whatever it holds.
        each: Seconds of each request in it.
        largest: Most requests in a flight.
        queue: Most requests that wait; another one is refused.
        ready: Seconds from the start of a replica to its first answer.
    """

    fixed: float
    each: float
    largest: int = 256
    queue: int = 4096
    ready: float = 10.0

    def flight(self, requests: int) -> float:
        """Seconds of a flight."""
        return self.fixed + requests * self.each

    @property
    def most(self) -> float:
        """Requests a second with full flights, the most that a replica can do."""
        return self.largest / self.flight(self.largest)


@dataclass(slots=True)
class Outcome:
    """What became of the requests: when answered ones arrived and what they took, when others were refused, seconds.

    ``replicas`` has the number of ready ones after each look of the autoscaler.
    """

    arrivals: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)

    def percentile(self, level: float, after: float = 0.0) -> float:
        """Return a percentile of the latencies of requests that arrived after a time, seconds."""
        return float(np.percentile(np.array(self.latencies)[np.array(self.arrivals) >= after], level))


@dataclass(slots=True)
class _Replica:
    waiting: deque[float] = field(default_factory=deque)
    flying: list[float] = field(default_factory=list)

    @property
    def pending(self) -> int:
        return len(self.waiting) + len(self.flying)


@dataclass(slots=True)
class PodAutoscaler:
    """The rule of Kubernetes' Horizontal Pod Autoscaler: ``wanted = ceil(replicas * metric / target)``.

    A ratio within a tenth of 1 changes nothing, a call at most doubles the number, and a smaller one is taken only if
    it was wanted for five minutes (Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details).

    Attributes:
        target: Pending requests of a replica that are wanted.
        least: Fewest replicas.
    """

    target: float
    least: int = 1
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def __call__(self, time: float, pending: list[int]) -> int:
        """Return the number of replicas, from the time in seconds and the pending requests of each ready replica."""
        count = len(pending)
        ratio = sum(pending) / count / self.target
        wanted = count if abs(ratio - 1.0) <= 0.1 else math.ceil(count * ratio)
        wanted = min(max(wanted, self.least), 2 * count)
        self._wanted.append((time, wanted))
        while self._wanted[0][0] < time - 300.0:
            self._wanted.popleft()
        return max(number for _, number in self._wanted) if wanted < count else wanted


def closed_loop(costs: Costs, clients: int, flights: int = 2_000) -> float:
    """Request a second of clients that each send the next request when the last one is answered.

    All requests of a flight are answered at its end and come back at once, so the next flight takes them together with
    those that waited.
    """
    flying, clock, answered = min(clients, costs.largest), 0.0, 0
    for _ in range(flights):
        clock, answered = clock + costs.flight(flying), answered + flying
        flying = min(clients - flying or flying, costs.largest)
    return answered / clock


def open_loop(
    costs: Costs,
    rate: Callable[[float], float],
    seconds: float,
    *,
    replicas: int = 1,
    scale: PodAutoscaler | None = None,
    seed: int = 0,
) -> Outcome:
    """Request at random times (a Poisson process), each to the shorter queue of two replicas taken by chance.

    Args:
        costs: Unit costs.
        rate: Requests a second at a time.
        seconds: Time in which requests arrive.
        replicas: Ready replicas at the beginning.
        scale: The autoscaler, which looks every 15 s; None: the number stays.
        seed: Seed of arrivals and choices.
    """
    generator, outcome, order = np.random.default_rng(seed), Outcome(), 0
    ready, starting = [_Replica() for _ in range(replicas)], 0
    events: list[tuple[float, int, str, _Replica | None]] = []

    def plan(time: float, kind: str, replica: _Replica | None = None) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (time, order, kind, replica))

    def fly(time: float, replica: _Replica) -> None:
        count = min(len(replica.waiting), costs.largest)
        replica.flying = [replica.waiting.popleft() for _ in range(count)]
        plan(time + costs.flight(count), "landed", replica)

    plan(float(generator.exponential(1.0 / rate(0.0))), "arrival")
    if scale is not None:
        plan(15.0, "scale")
    while events:
        time, _, kind, replica = heapq.heappop(events)
        if kind == "arrival" and time < seconds:
            replica = min(
                (ready[number] for number in generator.integers(len(ready), size=2)), key=lambda of: of.pending
            )
            if len(replica.waiting) >= costs.queue:
                outcome.refused.append(time)
            else:
                replica.waiting.append(time)
                if not replica.flying:
                    fly(time, replica)
            plan(time + float(generator.exponential(1.0 / rate(time))), "arrival")
        elif kind == "landed" and replica is not None:
            outcome.arrivals += replica.flying
            outcome.latencies += [time - began for began in replica.flying]
            replica.flying = []
            if replica.waiting:
                fly(time, replica)
        elif kind == "scale" and scale is not None and time < seconds:
            wanted = max(1, scale(time, [one.pending for one in ready]))
            for _ in range(wanted - len(ready) - starting):
                starting += 1
                plan(time + costs.ready, "ready")
            del ready[wanted:]  # a replica that goes answers what it has: it only gets nothing new
            outcome.replicas.append(len(ready))
            plan(time + 15.0, "scale")
        elif kind == "ready":
            starting -= 1
            ready.append(_Replica())
    return outcome


def measure(options: argparse.Namespace, directory: Path) -> Report:
    """Return unit costs: ``rates`` by connections (one row, S = 256), ``row_rates`` by rows (32 connections).

    ``p50`` and ``p99`` of answers at half of the rate with 32 connections and ``ready``, from a start to the first
    answer, in seconds; ``memory`` of a service and ``model_memory`` of each further model, bytes; ``rows`` a second of
    `murho predict`.
    """
    root = demo(options.checkpoints, options.model, directory)
    version = DirectoryStore(root).find(options.model)
    schema, found = schema_of(version), Report(rates={}, row_rates={})

    def rate(connections: int, **more: float) -> Report:
        rounds = [measure_rate(server, connections, options.seconds, **more) for _ in range(options.rounds)]
        return {name: statistics.median(each[name] for each in rounds) for name in ("rate", "p50", "p99")}

    with running(*murho(root, options.model), bodies_of(records(schema, DISTINCT), 1, SAMPLES)) as server:
        found |= {"ready": server.ready, "memory": float(server.memory())}
        for connections in CONNECTIONS:
            found["rates"][str(connections)] = rate(connections)["rate"]
        found |= rate(64, rate=HALF * found["rates"]["32"])
        for rows in (10, 100):
            server.bodies = bodies_of(records(schema, rows + DISTINCT), rows, SAMPLES)
            found["row_rates"][str(rows)] = rate(32)["rate"]
    for number in range(COPIES):
        shutil.copytree(version, root / f"{options.model}{number}" / version.name)
    with running(*murho(root, options.model), bodies_of(records(schema, DISTINCT), 1, SAMPLES)) as server:
        found["model_memory"] = (server.memory() - found["memory"]) / COPIES
    made, taken = pa.table(records(schema, OFFLINE_ROWS)), []
    for count in (1_000, OFFLINE_ROWS):
        csv.write_csv(made.slice(0, count), directory / "rows.csv")
        begin = time.monotonic()
        words = ("predict", str(directory / "rows.csv"), "--model", options.model, "--checkpoints", str(root))
        murho_command(*words, "--output", str(directory / "scored.csv"))
        taken.append(time.monotonic() - begin)
    return found | {"rows": (OFFLINE_ROWS - 1_000) / (taken[1] - taken[0])}


def costs_of(measured: Report) -> Costs:
    """Return the costs of a flight: with one connection a flight holds one request, with 32 it holds 32."""
    one, many = 1.0 / measured["rates"]["1"], 32.0 / measured["rates"]["32"]
    each = (many - one) / 31.0
    return Costs(max(one - each, 0.0), each, ready=measured["ready"])


def plans(measured: Report) -> dict[str, list[list[str]]]:
    """Return the tables, headers first: title → lines."""
    costs, rates = costs_of(measured), measured["rates"]
    check = [["one service", "measured", "simulated", "ratio"]]
    for connections, rate in rates.items():
        simulated = closed_loop(costs, int(connections))
        said = "fitted" if connections in ("1", "32") else f"{simulated / rate:.2f}"
        check.append([f"requests/s, {connections} connections", f"{rate:.0f}", f"{simulated:.0f}", said])
    half = open_loop(costs, lambda _: HALF * rates["32"], 60.0)
    for level in (50, 99):
        found, simulated = 1e3 * measured[f"p{level}"], 1e3 * half.percentile(level)
        line = [f"p{level} at half the load, ms", f"{found:.2f}", f"{simulated:.2f}", f"{simulated / found:.2f}"]
        check.append(line)
    p99 = 1e3 * open_loop(costs, lambda _: HALF * costs.most, 60.0).percentile(99.0)
    requests = [["requests/s", "replicas of one core", "machines of 64 cores", "p99, ms"]]
    for wanted in (1_000, 100_000, 10_000_000):
        replicas = math.ceil(wanted / (HALF * costs.most))
        machines = math.ceil(replicas / CORES_A_MACHINE)
        requests.append([f"{wanted:,}", f"{replicas:,}", f"{machines:,}", f"{p99:.1f}"])
    sizes = [["rows a request", "requests/s", "rows/s", "time beside one row"]]
    for rows, rate in {"1": rates["32"], **measured["row_rates"]}.items():
        sizes.append([rows, f"{rate:.0f}", f"{int(rows) * rate:,.0f}", f"{rates['32'] / rate:.1f}"])
    seconds = 1e12 / measured["rows"]
    offline = [["rows", "core hours", "cores to end in a day"]]
    offline.append(["1e+12", f"{seconds / 3600:,.0f}", f"{math.ceil(seconds / 86_400.0):,}"])
    models = [["models, all loaded", "GB", "machines of 256 GB"]]
    for count in (100, 100_000):
        memory = count * measured["model_memory"]
        models.append([f"{count:,}", f"{memory / 1e9:,.1f}", f"{math.ceil(memory / MEMORY_A_MACHINE):,}"])
    return {
        "check": check,
        "requests": requests,
        "request sizes": sizes,
        "rows": offline,
        "models": models,
        "a load that becomes four times as large after 30 s": _jump(costs),
    }


def _jump(costs: Costs, before: int = 2, seconds: float = 150.0) -> list[list[str]]:
    """Return a load that jumps from half of what ``before`` replicas can do to four times that."""
    low = HALF * before * costs.most
    lines = [["seconds to ready", "refused", "seconds until none is", "most replicas", "p99 in the end, ms"]]
    for ready in (2.0, 10.0, 60.0):
        found = open_loop(
            replace(costs, ready=ready),
            lambda time: low if time < 30.0 else 4.0 * low,
            seconds,
            replicas=before,
            scale=PodAutoscaler(target=costs.largest / 4.0, least=before),
        )
        share = len(found.refused) / (len(found.latencies) + len(found.refused))
        last, p99 = max(found.refused, default=30.0) - 30.0, 1e3 * found.percentile(99.0, after=seconds - 30.0)
        lines.append([f"{ready:.0f}", f"{share:.1%}", f"{last:.0f}", f"{max(found.replicas)}", f"{p99:.1f}"])
    return lines


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="results.jsonl of an earlier run: nothing is measured"
    )
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="with the demo (default: it is trained)")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    add_counts(parser, rounds=(5, "turns of each load"), seconds=(3, "of a turn"))


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    if options.costs is not None:
        lines = map(orjson.loads, options.costs.read_bytes().splitlines())
        known = [line["costs"] for line in lines if line["benchmark"] == "scale"]
        if not known:
            raise OptionError(f"--costs: {options.costs} has no line of an earlier run of this command")
        measured: Report = known[-1]
    else:
        with tempfile.TemporaryDirectory() as name:
            measured = measure(options, Path(name))
    costs, tables = costs_of(measured), plans(measured)
    print(f"a flight of k requests takes {1e3 * costs.fixed:.3f} + k {1e3 * costs.each:.3f} ms of a core")
    print(
        f"a service is ready after {measured['ready']:.1f} s, and takes {measured['memory'] / 1e6:.0f} MB with a model"
    )
    print(f"murho predict scores {measured['rows']:,.0f} rows/s")
    for title, (headers, *rows) in tables.items():
        print(f"\n{title}\n{table(headers, rows)}")
    return {"costs": measured, "tables": tables}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
