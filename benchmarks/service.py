"""`python -m benchmarks.service`: the service under load, beside a bare FastAPI route, LitServe and MLServer.

Every server is a process of its own on loopback, and so is wrk, which makes the load (``apt-get install wrk``). Servers
take turns; those whose turn it is not are held (SIGSTOP), so that they take no processor. Ratios are of the same round;
medians of the rounds are shown. Measured are

- ``rates``: one row, 32 connections, with one and two front ends, beside the route and peers with as many;
- ``latency``: one connection beside `Posterior.predict` alone and the route; and requests at random times at half load;
- ``record``: one row, 32 connections, with a store that keeps the answers, and without;
- ``overload``: three times what the service can do;
- ``ends``: a killed front end, and SIGTERM, under load: requests without an answer;
- ``memory``: of two front ends beside one, with ten models.

Without ``--checkpoints``, the demo (``examples/cars.csv``) is trained first, and requests are rows of its table. With
them, requests are random rows within the range of each column; most of these are unlike the training rows, and go
through the network twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import Peer
from benchmarks.processes import ProcessError, SystemProcess, add_cache, train
from benchmarks.requests import bodies_of, oip_body, records, rows_of, schema_of, table_records
from benchmarks.results import ROOT, Report, add_counts, add_names, command, numbers, ratio, table
from benchmarks.servers import PEERS, Server, murho, peer, running
from murho.model.checkpoint.stores import DirectoryStore
from murho.model.runtime import available_processors

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

MEASURES = ("rates", "latency", "record", "overload", "ends", "memory")
CONNECTIONS, SAMPLES = 32, 256
WARM_UP = 1.0
"""Seconds of load before every turn that count for nothing: a held process comes back."""
CROWD = 2000
"""Connections of a load at random times: together they can send at any rate."""
SETTLING = 5.0
"""Seconds at the beginning of the overload in which the queue fills; they count for nothing."""
PROBE_EVERY, WAIT_FOR_RECOVERY, RECOVERED = 0.05, 60.0, 5.0
"""The service has recovered when a request takes less than so many times what it took before."""
MODELS = 10
ROUTE = "FastAPI route"
DEMO = ROOT / "examples" / "cars.csv"
ROWS = 256


def demo(checkpoints: Path | None, model: str, directory: Path) -> Path:
    """Return a directory with the demo alone: a copy, or trained now; returns it."""
    root = directory / "checkpoints"
    if checkpoints is None:
        train(DEMO, "Miles_per_Gallon", root, model, "--config", str(DEMO.with_suffix(".toml")))
    else:
        version = DirectoryStore(checkpoints).find(model)
        shutil.copytree(version, root / model / version.name)
    return root


def ours(workers: int) -> str:
    """Title of Murho with so many front ends."""
    return f"Murho, {workers} worker{'s' if workers > 1 else ''}"


class Bench:
    """What the measures share.

    Attributes:
        options: Of the command.
        servers: Title → server, all held.
        root: Directory of the checkpoints.
        version: Directory of the demo's version.
        columns: Rows that are asked.
        offline: `Posterior.predict` alone, in a process of its own.
        found: What was measured.
    """

    def __init__(self, options: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
        self.options, self.directory, self.stack, self.found = options, directory, stack, Report()
        self.root = demo(options.checkpoints, options.model, directory)
        self.version = DirectoryStore(self.root).find(options.model)
        self.schema = schema_of(self.version)
        own = options.checkpoints is None
        self.columns = table_records(self.schema, DEMO) if own else records(self.schema, ROWS)
        plain = bodies_of(self.columns, 1, SAMPLES)
        self.servers: dict[str, Server] = {}
        for workers in options.workers:
            self._start(ours(workers), *murho(self.root, options.model, workers), plain)
        tensors = [oip_body(self.schema, row) for row in rows_of(self.columns)[: len(plain)]]
        for name in options.systems if "rates" in options.measures else ():
            for workers in options.workers:
                try:
                    bodies = tensors if name == "mlserver" else plain
                    self._start(f"{name}, {workers}", *peer(name, self.version, workers, options.cache), bodies)
                except ProcessError as error:
                    print(f"{name} with {workers} is left out: {error}", flush=True)
        answer = directory / "answer.json"
        with self.first.turn():
            answer.write_bytes(self.first.post(plain[0])[1])
        words = [sys.executable, "-m", "benchmarks.bare_server", "--model", str(self.version), "--answer", str(answer)]
        self._start(ROUTE, "/predict", words, plain)
        script = Peer("offline", "Posterior.predict", "", "posterior_rows")
        threads = available_processors()
        self.offline = stack.enter_context(SystemProcess(script, None, cache=options.cache, threads=threads))

    def _start(self, title: str, path: str, words: Sequence[str], bodies: Sequence[bytes]) -> None:
        self.servers[title] = self.stack.enter_context(running(path, words, bodies))
        self.servers[title].signal(signal.SIGSTOP)

    @property
    def first(self) -> Server:
        """Murho with the fewest workers."""
        return self.servers[ours(self.options.workers[0])]

    def rates(self) -> None:
        """All servers in turn with 32 connections."""
        rounds: dict[str, list[Report]] = {title: [] for title in self.servers}
        for _ in range(self.options.rounds):
            for title, server in self.servers.items():
                rounds[title].append(measure_rate(server, CONNECTIONS, self.options.seconds))
        self.found["rates"] = rounds
        lines = []
        for title, of in rounds.items():
            line = [title, f"{_middle(of, 'rate'):,.0f}", f"{_ratio(of, rounds[ROUTE]):.2f}"]
            line += [f"{1e3 * _middle(of, level):.1f}" for level in ("p50", "p99")]
            lines.append([*line, str(sum(each["not_200"] + each["lost"] for each in of))])
        headers = ["one row, S = 256, 32 connections", "requests/s", "to the route", "median, ms", "p99, ms"]
        print(f"\n{table([*headers, 'not 200'], lines)}", flush=True)

    def latency(self) -> None:
        """One connection, beside the engine and the route; and half the load."""
        columns = {name: values[:1] for name, values in self.columns.items()}
        rounds, half = [], []
        for _ in range(self.options.rounds):
            engine = self.offline.ask((str(self.version), columns, SAMPLES, self.options.seconds / 2.0))
            alone, bare = (
                measure_rate(server, 1, self.options.seconds) for server in (self.first, self.servers[ROUTE])
            )
            rounds.append({"latency": alone["p50"], "engine": engine, "route": bare["p50"]})
            capacity = measure_rate(self.first, CONNECTIONS, 1.0)["rate"]
            half.append(measure_rate(self.first, 64, max(2.0, self.options.seconds), capacity / 2.0))
        self.found |= {"one_connection": rounds, "half_load": half}

    def record(self) -> None:
        """One service with a store; its answers are recorded and not, in turns."""
        path, words = murho(self.root, self.options.model)
        plain, rounds = self.first.bodies, []
        bodies = {"plain": plain, "recorded": [body[:-1] + b', "record": true}' for body in plain]}
        with running(path, [*words, "--store", str(self.directory / "store.db")], plain) as server:
            for _ in range(self.options.rounds):
                rates = {}
                for name, server.bodies in bodies.items():
                    rates[name] = measure_rate(server, CONNECTIONS, self.options.seconds)["rate"]
                rounds.append(rates)
        self.found["record"] = rounds

    def overload(self) -> None:
        """Three times what the service can do, in requests of many rows."""
        server, seconds = self.first, self.options.overload_seconds
        small, server.bodies = server.bodies, bodies_of(self.columns, self.options.overload_rows, SAMPLES)
        with server.turn():
            server.load(connections=CONNECTIONS, seconds=WARM_UP)
            capacity = server.load(connections=CONNECTIONS, seconds=5.0)["rate"]
            usual = server.load(connections=1, seconds=1.0)["p50"]
            probes = [_Probe(server, "/healthz", None), _Probe(server, server.path, server.bodies[0])]
            for probe in probes:
                probe.start()
            server.load(connections=CROWD, seconds=SETTLING, rate=3.0 * capacity)
            begin, memory = time.monotonic(), [server.memory()]
            done = server.load(connections=CROWD, seconds=seconds, rate=3.0 * capacity)
            end, memory = time.monotonic(), [*memory, server.memory()]
            health, asked = probes
            recovery = asked.recovered(end, RECOVERED * usual)
            for probe in probes:
                probe.done.set()
                probe.join()
        server.bodies = small
        refusals = [took for when, took, status in asked.asked if begin <= when <= end and status not in (0, 200)]
        self.found["overload"] = done | {
            "capacity": capacity,
            "refusal": statistics.median(refusals) if refusals else None,
            "healthz": max(took for when, took, _ in health.asked if begin <= when <= end),
            "memory": memory,
            "recovery": recovery,
        }
        print(
            f"\n{seconds:.0f} s at three times {capacity:,.0f} requests of {self.options.overload_rows} rows a second: "
            f"{done['requests'] - done['not_200']:,} answers, {done['not_200']:,} refusals, {done['lost']} lost, "
            f"{done['refused_connections']} connections refused; memory {memory[0] / 2**20:.0f} to "
            f"{memory[1] / 2**20:.0f} MiB",
            flush=True,
        )

    def ends(self) -> None:
        """Return a front end is killed, and the service is told to end, each amid load."""
        for name, number in (("killed_worker", signal.SIGKILL), ("sigterm", signal.SIGTERM)):
            workers = max(self.options.workers)
            if name == "killed_worker" and workers == 1:
                continue
            with running(*murho(self.root, self.options.model, workers), self.first.bodies) as server:
                goal = server.workers()[-1] if name == "killed_worker" else server.process.pid
                timer = threading.Timer(1.0 + self.options.seconds / 2.0, os.kill, (goal, number))
                timer.start()
                self.found[name] = server.load(connections=CONNECTIONS, seconds=max(2.0, self.options.seconds))
                timer.join()

    def memory(self) -> None:
        """Services with ten models, after some load."""
        many = self.directory / "ten"
        for number in range(MODELS):
            shutil.copytree(self.version, many / f"{self.options.model}{number or ''}" / self.version.name)
        found = {}
        for workers in self.options.workers:
            with running(*murho(many, self.options.model, workers), self.first.bodies) as server:
                server.load(connections=CONNECTIONS, seconds=WARM_UP)
                found[str(workers)] = server.memory()
        self.found["memory"] = found


def measure_rate(server: Server, connections: int, seconds: float, rate: float | None = None) -> Report:
    """Return a turn of a held server."""
    with server.turn():
        server.load(connections=connections, seconds=WARM_UP, rate=rate)
        return server.load(connections=connections, seconds=seconds, rate=rate)


class _Probe(threading.Thread):
    """Asks a path again and again; keeps when it asked, how long the answer took, and its status (0: none)."""

    def __init__(self, server: Server, path: str, body: bytes | None) -> None:
        super().__init__(daemon=True)
        self._server, self._path, self._body = server, path, body
        self.asked: list[tuple[float, float, int]] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            connection = HTTPConnection("127.0.0.1", self._server.port, timeout=WAIT_FOR_RECOVERY)
            with closing(connection), suppress(OSError, HTTPException):
                while not self.done.wait(PROBE_EVERY):
                    begin, status = time.monotonic(), 0
                    try:
                        headers = {"content-type": "application/json"} if self._body else {}
                        connection.request("POST" if self._body else "GET", self._path, self._body, headers)
                        response = connection.getresponse()
                        response.read()
                        status = response.status
                    finally:
                        self.asked.append((begin, time.monotonic() - begin, status))

    def recovered(self, end: float, usual: float) -> float | None:
        """Seconds from the end of the load to the answer to a request that took no longer than usual; None: never."""
        while time.monotonic() < end + WAIT_FOR_RECOVERY:
            for begin, took, status in list(self.asked):
                if begin >= end and status == 200 and took <= usual:
                    return begin + took - end
            time.sleep(PROBE_EVERY)
        return None


def _middle(rounds: Sequence[Report], name: str) -> float:
    return float(statistics.median(each[name] for each in rounds))


def _ratio(one: Sequence[Report], other: Sequence[Report]) -> float:
    """`ratio` of the rates."""
    return ratio([each["rate"] for each in one], [each["rate"] for each in other])


def claims_of(found: Report) -> list[list[str]]:
    """Return a line for everything that was measured: the claim, the value, the aim, and whether it is met."""
    claims: list[list[str]] = []

    def claim(said: str, value: float, aim: float, form: str = "{:.2f}", *, most: bool = True) -> None:
        met = value <= aim if most else value >= aim
        aimed = f"at {'most' if most else 'least'} {form.format(aim)}"
        claims.append([said, form.format(value), aimed, "yes" if met else "no"])

    rates = found.get("rates", {})
    for workers, aim in ((1, 0.75), (2, 0.75)):
        if ours(workers) not in rates:
            continue
        many = f"32 connections, {workers} worker{'s' * (workers > 1)}"
        claim(f"{many}: to the FastAPI route", _ratio(rates[ours(workers)], rates[ROUTE]), aim, most=False)
        if beside := [rates[f"{name}, {workers}"] for name in PEERS if f"{name}, {workers}" in rates]:
            least = min(_ratio(rates[ours(workers)], theirs) for theirs in beside)
            claim(f"{many}: to the better of LitServe and MLServer with as many", least, 4.0, most=False)
    if rounds := found.get("one_connection"):
        value = statistics.median(each["latency"] / (each["engine"] + each["route"]) for each in rounds)
        claim("1 connection: latency, to Posterior.predict and the route together", value, 1.4)
        claim("half the load: p99 to the median", statistics.median(d["p99"] / d["p50"] for d in found["half_load"]), 4)
    if rounds := found.get("record"):
        value = statistics.median(each["recorded"] / each["plain"] for each in rounds)
        claim("32 connections: recorded requests to those that are not", value, 0.9, most=False)
    if over := found.get("overload"):
        claim("3 x overload: answers, to what it can do", over["rate"] / over["capacity"], 0.9, most=False)
        claim("3 x overload: median time of a refusal, ms", 1e3 * (over["refusal"] or float("nan")), 20, "{:.0f}")
        claim("3 x overload: requests without an answer", over["lost"], 0, "{:.0f}")
        claim("3 x overload: memory at the end to the beginning", over["memory"][1] / over["memory"][0], 1.05)
        claim("3 x overload: /healthz, slowest, ms", 1e3 * over["healthz"], 50, "{:.0f}")
        recovery = float("inf") if over["recovery"] is None else over["recovery"]
        claim("3 x overload: as fast as before after, s", recovery, 1.0)
    if "killed_worker" in found:
        claim(
            "a front end is killed: requests without an answer", found["killed_worker"]["lost"], CONNECTIONS, "{:.0f}"
        )
    if "sigterm" in found:
        claim("SIGTERM: requests without an answer", found["sigterm"]["lost"], 0, "{:.0f}")
    if {"1", "2"} <= found.get("memory", {}).keys():
        claim("10 models: memory of two front ends to one", found["memory"]["2"] / found["memory"]["1"], 1.1)
    return claims


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="with the model (default: the demo, trained)")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    add_names(parser, systems=PEERS, measures=MEASURES)
    parser.add_argument("--workers", type=numbers, default=[1, 2], metavar="N,…", help="of every server (default 1,2)")
    add_counts(
        parser,
        rounds=(5, "turns of a server"),
        seconds=(3, "of a turn"),
        overload_seconds=(60, "of the overload"),
        overload_rows=(32, "a request of it"),
    )
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        bench = Bench(options, Path(name), stack)
        for measure in options.measures:
            getattr(bench, measure)()
    claims = claims_of(bench.found)
    if claims:
        print(f"\n{table(['claim', 'measured', 'aim', 'met'], claims)}")
    return bench.found | {"claims": claims}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
