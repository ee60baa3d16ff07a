"""What is measured of running servers: in turns, one server at a time, the others held where they are."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.processes import SystemProcess
from murho.model.runtime import available_processors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from benchmarks.service_parts.bodies import Requests
    from benchmarks.service_parts.servers import RunningServer

__all__ = ["Bench", "middle"]

CONNECTIONS = 32
WARM_UP = 0.3
"""Seconds of load before every turn that count for nothing: a held process comes back."""
HALF_LOAD_CONNECTIONS = 256


class Bench:
    """The load generator, and `Posterior.predict` alone, in processes of their own; a context manager that ends them.

    Args:
        rounds: Turns of every server.
        seconds: Length of a turn.
    """

    def __init__(self, rounds: int, seconds: float) -> None:
        self.rounds, self.seconds = rounds, seconds
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name in ("load", "offline"):
                command = [sys.executable, "-m", f"benchmarks.service_parts.{name}", name, ""]
                process = stack.enter_context(SystemProcess(name, command, threads=available_processors()))
                setattr(self, f"_{name}", process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    _load: SystemProcess
    _offline: SystemProcess

    def load(self, server: RunningServer, requests: Requests, **options: Any) -> dict[str, Any]:
        """One load on a server, see `benchmarks.service_parts.load`."""
        return self._load.ask({"port": server.port, "file": str(requests.file), "sizes": requests.sizes, **options})

    @contextmanager
    def turn(self, server: RunningServer, requests: Requests, connections: int) -> Iterator[None]:
        """Lets a held server go on, warm, and holds it again at the end."""
        server.resume()
        try:
            self.load(server, requests, connections=connections, seconds=WARM_UP)
            yield
        finally:
            server.hold()

    def rates(
        self, servers: Sequence[RunningServer], requests: Mapping[str, Requests], connections: int = CONNECTIONS
    ) -> dict[str, list[dict[str, Any]]]:
        """What each server answers on connections that always have a request on the way; a summary a round.

        In it, ``per_request`` has the processor seconds of a request: ``first`` thread, which has the event loop, and
        ``all`` threads.
        """
        results: dict[str, list[dict[str, Any]]] = {server.server.name: [] for server in servers}
        for _ in range(self.rounds):
            for server in servers:
                own = requests[server.server.name]
                with self.turn(server, own, connections):
                    before = server.processor()
                    done = self.load(server, own, connections=connections, seconds=self.seconds)
                    took = np.subtract(server.processor(), before) / max(1, sum(done["count"].values()))
                    done["per_request"] = dict(zip(("first", "all"), took.tolist(), strict=True))
                results[server.server.name].append(done)
        return results

    def at_half_load(self, server: RunningServer, requests: Requests, capacity: float) -> list[dict[str, Any]]:
        """Answers at half of what a server can do, requests at random times; a summary a round."""
        results = []
        for _ in range(self.rounds):
            with self.turn(server, requests, CONNECTIONS):
                results.append(
                    self.load(
                        server,
                        requests,
                        connections=HALF_LOAD_CONNECTIONS,
                        seconds=max(self.seconds, 2.0),
                        rate=capacity / 2.0,
                    )
                )
        return results

    def beside_the_engine(
        self, server: RunningServer, requests: Requests, offline: Mapping[str, Any]
    ) -> list[dict[str, float]]:
        """Median latency on one connection and the time of `Posterior.predict` for the same rows, in turns, seconds."""
        results = []
        for _ in range(self.rounds):
            engine = self._offline.ask({**offline, "seconds": self.seconds / 2.0})["seconds"]
            with self.turn(server, requests, 1):
                done = self.load(server, requests, connections=1, seconds=self.seconds)
            if done["latency"] is not None:
                results.append({"latency": done["latency"]["p50"], "engine": engine})
        return results


def middle(values: Sequence[float]) -> float:
    """The median; NaN without values."""
    return float(np.median(values)) if len(values) else float("nan")
