"""`python -m benchmarks.scale`: what large loads take, from unit costs of one machine.

Measures one service and `murho predict` with the demo (wrk makes the load: ``apt-get install wrk``); with ``--costs
FILE`` it takes the unit costs of the last line of an earlier ``results.jsonl`` that has some. It prints rates and
latencies of one service; replicas for 1,000, 100,000 and 10,000,000 requests a second, cores for 10^12 rows, and memory
for 100,000 models.
"""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
from pyarrow import csv

from benchmarks.processes import murho_command
from benchmarks.requests import bodies_of, records, schema_of
from benchmarks.results import Report, add_counts, command, table
from benchmarks.servers import murho, running
from benchmarks.service import SAMPLES, demo, measure_rate
from murho.model.checkpoint.checkpoint import find_checkpoint
from murho.model.errors import OptionError

if TYPE_CHECKING:
    import argparse

__all__ = ["main", "plans"]

CONNECTIONS = (1, 4, 8, 32, 128)
"""Connections whose rates are measured."""
COPIES = 20
"""Further models whose memory is measured."""
OFFLINE_ROWS = 200_000
CORES_A_MACHINE, MEMORY_A_MACHINE = 64, 256e9
HALF = 0.5
"""Share of the most that a replica can do for which replicas are planned: bursts and failures need the rest."""


def measure(options: argparse.Namespace, directory: Path) -> Report:
    """Unit costs: ``rates`` by connections (one row, S = 256), ``row_rates`` by rows a request with 32 connections.

    ``p50`` and ``p99`` of answers at half of the rate with 32 connections and ``ready``, from a start to the first
    answer, in seconds; ``memory`` of a service and ``model_memory`` of each further model, bytes; ``rows`` a second of
    `murho predict`.
    """
    root = demo(options.checkpoints, options.model, directory)
    version = find_checkpoint(root, options.model, None)
    schema, found = schema_of(version), Report(rates={}, row_rates={})

    def rate(connections: int, **more: float) -> Report:
        rounds = [measure_rate(server, connections, options.seconds, **more) for _ in range(options.rounds)]
        return {name: statistics.median(each[name] for each in rounds) for name in ("rate", "p50", "p99")}

    with running(*murho(root, options.model), bodies_of(schema, 1, SAMPLES)) as server:
        found |= {"ready": server.ready, "memory": float(server.memory())}
        for connections in CONNECTIONS:
            found["rates"][str(connections)] = rate(connections)["rate"]
        found |= rate(64, rate=HALF * found["rates"]["32"])
        for rows in (10, 100):
            server.bodies = bodies_of(schema, rows, SAMPLES, 16)
            found["row_rates"][str(rows)] = rate(32)["rate"]
    for number in range(COPIES):
        shutil.copytree(version, root / f"{options.model}{number}" / version.name)
    with running(*murho(root, options.model), bodies_of(schema, 1, SAMPLES)) as server:
        found["model_memory"] = (server.memory() - found["memory"]) / COPIES
    made, taken = pa.table(records(schema, OFFLINE_ROWS)), []
    for count in (1_000, OFFLINE_ROWS):
        csv.write_csv(made.slice(0, count), directory / "rows.csv")
        begin = time.monotonic()
        words = ("predict", str(directory / "rows.csv"), "--model", options.model, "--checkpoints", str(root))
        murho_command(*words, "--output", str(directory / "scored.csv"))
        taken.append(time.monotonic() - begin)
    return found | {"rows": (OFFLINE_ROWS - 1_000) / (taken[1] - taken[0])}


def plans(measured: Report) -> dict[str, list[list[str]]]:
    """The tables, headers first: title → lines."""
    rates = measured["rates"]
    most = max(rates.values())
    requests = [["requests/s", "replicas of one core", "machines of 64 cores"]]
    for wanted in (1_000, 100_000, 10_000_000):
        replicas = math.ceil(wanted / (HALF * most))
        requests.append([f"{wanted:,}", f"{replicas:,}", f"{math.ceil(replicas / CORES_A_MACHINE):,}"])
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
    return {"requests": requests, "request sizes": sizes, "rows": offline, "models": models}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="results.jsonl of an earlier run: nothing is measured"
    )
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="with the demo (default: it is trained)")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    add_counts(parser, rounds=(5, "turns of each load"), seconds=(3, "of a turn"))


def run(options: argparse.Namespace) -> Report:
    """Measures and prints."""
    if options.costs is not None:
        lines = map(orjson.loads, options.costs.read_bytes().splitlines())
        known = [line["costs"] for line in lines if line["benchmark"] == "scale"]
        if not known:
            raise OptionError(f"--costs: {options.costs} has no line of an earlier run of this command")
        measured: Report = known[-1]
    else:
        with tempfile.TemporaryDirectory() as name:
            measured = measure(options, Path(name))
    tables = plans(measured)
    for connections, rate in measured["rates"].items():
        print(f"{rate:,.0f} requests/s on {connections} connections")
    print(f"at half of that of 32, p50 {1e3 * measured['p50']:.1f} and p99 {1e3 * measured['p99']:.1f} ms")
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
