"""Unit costs of one service and of `murho predict`, measured on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from benchmarks.processes import ProcessError
from benchmarks.results import ROOT
from benchmarks.service_parts.bodies import http, records, rows_of, stored
from benchmarks.service_parts.measures import Bench, middle
from benchmarks.service_parts.servers import murho, running
from murho.model.checkpoint.checkpoint import find_checkpoint
from murho.model.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.scale_parts.simulation import Costs

__all__ = ["CONNECTIONS", "UnitCosts", "costs_of", "measure"]

CONNECTIONS = (1, 4, 8, 32, 128)
"""Connections whose rates are measured. The first and the fourth give the costs, the others judge the simulation."""
ROWS_A_REQUEST = (10, 100)
"""Rows of larger requests whose rates are measured, with 32 connections."""
SAMPLES = 256
COPIES = 20
"""Further models whose memory is measured."""
OFFLINE_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What was measured.

    Attributes:
        rates: Requests a second by number of connections, one row and 256 draws each.
        row_rates: The same with 32 connections, by number of rows a request; empty in files of before.
        half_load: ``p50`` and ``p99`` of answers at half of the rate with 32 connections, seconds.
        ready: Seconds from the start of a service to its first answer.
        memory: Bytes of a service with one model.
        model_memory: Bytes of each further model.
        rows: Rows a second of `murho predict`, 256 draws, one process.
    """

    rates: Mapping[int, float]
    row_rates: Mapping[int, float]
    half_load: Mapping[str, float]
    ready: float
    memory: float
    model_memory: float
    rows: float

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "rates": {str(connections): rate for connections, rate in self.rates.items()},
            "row_rates": {str(rows): rate for rows, rate in self.row_rates.items()},
            "half_load": dict(self.half_load),
            **{name: getattr(self, name) for name in ("ready", "memory", "model_memory", "rows")},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnitCosts:
        """The inverse of `to_json`."""
        rates, row_rates = (
            {int(number): float(rate) for number, rate in of.items()}
            for of in (data["rates"], data.get("row_rates", {}))
        )
        return cls(
            rates, row_rates, **{name: data[name] for name in ("half_load", "ready", "memory", "model_memory", "rows")}
        )


def costs_of(measured: UnitCosts, **limits: Any) -> Costs:
    """The costs of a flight: with one connection a flight holds one request, with 32 it holds 32.

    Args:
        measured: The unit costs.
        limits: Other attributes of `Costs`.
    """
    from benchmarks.scale_parts.simulation import Costs

    one, many = 1.0 / measured.rates[1], 32.0 / measured.rates[32]
    each = (many - one) / 31.0
    return Costs(fixed=max(one - each, 0.0), each=each, ready=measured.ready, **limits)


def measure(checkpoints: Path, model: str, directory: Path, *, rounds: int, seconds: float) -> UnitCosts:
    """Measure everything.

    Args:
        checkpoints: Directory with the demo.
        model: Its name.
        directory: For files.
        rounds: Turns of each load; medians are taken.
        seconds: Length of a turn.

    Raises:
        ProcessError: The service or `murho predict` failed.
    """
    version = find_checkpoint(checkpoints, model, None)
    schema = Schema.from_json(orjson.loads((version / "model.json").read_bytes())["schema"], "schema")
    bodies = [_body([row]) for row in rows_of(records(schema, 64))]
    roots = {1: directory / "one", 1 + COPIES: directory / "many"}
    for count, root in roots.items():
        for number in range(count):
            shutil.copytree(version, root / (model if number == 0 else f"{model}{number}") / version.name)
    memories = {}
    with Bench(rounds, seconds) as bench:
        for count, root in roots.items():
            begin = time.monotonic()
            with running(murho(root, model, log_level="warning", default_model=model), bodies[0]) as server:
                started = time.monotonic() - begin
                memories[count] = server.memory()
                if count > 1:
                    continue
                ready = started
                requests = stored([http(server.server.path, body) for body in bodies], directory / "requests.http")
                rates = {}
                for connections in CONNECTIONS:
                    done = bench.rates([server], {"murho": requests}, connections)["murho"]
                    rates[connections] = middle([one["rate"] for one in done])
                row_rates = {}
                for rows in ROWS_A_REQUEST:
                    larger = [_body(rows_of(records(schema, rows, seed=seed))) for seed in range(16)]
                    of_rows = [http(server.server.path, body) for body in larger]
                    sent = {"murho": stored(of_rows, directory / f"{rows}.http")}
                    row_rates[rows] = middle([one["rate"] for one in bench.rates([server], sent, 32)["murho"]])
                server.resume()
                halves = bench.at_half_load(server, requests, rates[32])
        half_load = {level: middle([one["latency"][level] for one in halves]) for level in ("p50", "p99")}
    return UnitCosts(
        rates=rates,
        row_rates=row_rates,
        half_load=half_load,
        ready=ready,
        memory=float(memories[1]),
        model_memory=(memories[1 + COPIES] - memories[1]) / COPIES,
        rows=_offline(roots[1], model, schema, directory),
    )


def _body(rows: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"inputs": rows, "samples": SAMPLES})


def _offline(root: Path, model: str, schema: Schema, directory: Path) -> float:
    """Rows a second of `murho predict` on a CSV file, the start of the process left out."""
    import pyarrow as pa
    from pyarrow import csv

    table = pa.table(records(schema, OFFLINE_ROWS))
    took = {}
    for count in (1_000, OFFLINE_ROWS):
        path = directory / f"{count}.csv"
        csv.write_csv(table.slice(0, count), path)
        command = [sys.executable, "-m", "murho", "predict", str(path), "--model", model, "--checkpoints", str(root)]
        begin = time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--output", str(directory / "scored.csv")], cwd=ROOT, capture_output=True, text=True, check=False
        )
        took[count] = time.monotonic() - begin
        if done.returncode:
            raise ProcessError(f"murho predict ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return (OFFLINE_ROWS - 1_000) / (took[OFFLINE_ROWS] - took[1_000])
