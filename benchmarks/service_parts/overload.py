"""A service that gets three times what it can do: what it still answers, how soon it refuses, how soon it recovers."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.processes import ProcessError
from benchmarks.service_parts.measures import CONNECTIONS, middle

if TYPE_CHECKING:
    from benchmarks.service_parts.bodies import Requests
    from benchmarks.service_parts.measures import Bench
    from benchmarks.service_parts.servers import RunningServer

__all__ = ["overload"]

TIMES = 3.0
MOST_CONNECTIONS = 4000
SETTLING = 5.0
"""Seconds at the beginning in which the queue fills; goodput and memory count from then on."""
PROBE_EVERY = 0.1
RECOVERED = 5.0
"""The service has recovered when a request for one row takes less than this many times what it took before."""
WAIT_FOR_RECOVERY = 90.0


class _Probe(threading.Thread):
    """Asks a path again and again; keeps when it asked, how long the answer took, and its status (0: none)."""

    def __init__(self, port: int, path: str, body: bytes | None = None) -> None:
        super().__init__(daemon=True)
        self._port, self._path, self._body = port, path, body
        self.asked: list[tuple[float, float, int]] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            connection = HTTPConnection("127.0.0.1", self._port, timeout=WAIT_FOR_RECOVERY)
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


class _Memory(threading.Thread):
    """Reads the memory of a server every so many seconds."""

    def __init__(self, server: RunningServer, every: float) -> None:
        super().__init__(daemon=True)
        self._server, self._every = server, every
        self.read: list[tuple[float, int]] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(self._every):
            self.read.append((time.monotonic(), self._server.memory()))


def overload(bench: Bench, server: RunningServer, requests: Requests, body: bytes, seconds: float) -> dict[str, Any]:
    """Measures a service under `TIMES` what it can do.

    Args:
        bench: The load generator.
        server: A held service.
        requests: Requests for one row each.
        body: The body of one of them, for the probe.
        seconds: Length of the overload.

    Returns:
        ``capacity`` and ``goodput`` (answers with 200 a second), ``refusal`` percentiles, ``count`` by status,
        ``memory`` in bytes at the beginning and the end, ``healthz`` seconds, ``recovery`` seconds, and more.
    """
    server.resume()
    bench.load(server, requests, connections=CONNECTIONS, seconds=1.0)
    measured = bench.load(server, requests, connections=CONNECTIONS, seconds=max(2.0, min(5.0, seconds)))
    alone = bench.load(server, requests, connections=1, seconds=1.0)
    if measured["latency"] is None or alone["latency"] is None:
        raise ProcessError(
            f"the service answers {measured['count']} with {CONNECTIONS} connections, {alone['count']} with 1"
        )
    usual = alone["latency"]["p50"]
    health, probe = _Probe(server.port, "/healthz"), _Probe(server.port, server.server.path, body)
    memory = _Memory(server, min(1.0, seconds / 20.0))
    for thread in (health, probe, memory):
        thread.start()
    offered = TIMES * measured["rate"]
    done = bench.load(server, requests, connections=MOST_CONNECTIONS, seconds=seconds, rate=offered)
    recovery = _recovery(probe, done["end"], RECOVERED * usual)
    for thread in (health, probe, memory):
        thread.done.set()
    for thread in (health, probe, memory):
        thread.join(5.0)
    server.hold()
    settled = round(min(SETTLING, seconds / 2.0))
    in_overload = [took for begin, took, _ in health.asked if done["begin"] <= begin <= done["end"]]
    sizes = [size for when, size in memory.read if done["begin"] + settled <= when <= done["end"]]
    fifth = max(1, len(sizes) // 5)
    per_second = done["per_second"][settled:]
    return {
        "seconds": seconds,
        "capacity": measured["rate"],
        "offered": offered,
        "goodput": float(np.mean(per_second)) if per_second else float("nan"),
        "usual_latency": usual,
        "latency": done["latency"],
        "refusal": done["refusal"],
        "count": done["count"],
        "lost": done["lost"] + done["refused_connections"],
        "wrong": done["wrong"],
        "late": done["late"],
        "load_processor": done["processor"],
        "healthz": {"p50": middle(in_overload), "max": max(in_overload, default=float("nan"))},
        "healthz_failed": sum(status != 200 for _, _, status in health.asked),
        "memory": {"begin": middle(sizes[:fifth]), "end": middle(sizes[-fifth:]), "max": max(sizes, default=0)},
        "recovery": recovery,
        "per_second": done["per_second"],
    }


def _recovery(probe: _Probe, end: float, usual: float) -> float | None:
    """Seconds from the end of the load to the answer to a request that took no longer than usual; None: never."""
    limit = time.monotonic() + WAIT_FOR_RECOVERY
    while time.monotonic() < limit:
        for begin, took, status in list(probe.asked):
            if begin >= end and status == 200 and took <= usual:
                return begin + took - end
        time.sleep(0.05)
    return None
