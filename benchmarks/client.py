"""`python -m benchmarks.client`: what the client of the service adds: a call, its import, memory for a big table.

Starts `murho serve` with a checkpoint and measures on loopback

- a small call beside a bare ``httpx`` POST of the same body, in turns;
- ``import murho_client`` after ``import httpx, numpy``, in fresh processes;
- ``Client.predict_file`` of a table with ``--rows`` rows, and of one with a tenth of them: time and peak memory.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import orjson
import pyarrow as pa
from murho_client import Client
from pyarrow import csv

from benchmarks.processes import ProcessError
from benchmarks.requests import DISTINCT, bodies_of, records, schema_of
from benchmarks.results import ROOT, Report, add_counts, command, table
from benchmarks.servers import murho, running
from murho.model.checkpoint.checkpoint import DEFAULT_ROOT
from murho.model.checkpoint.stores import DirectoryStore

if TYPE_CHECKING:
    import argparse

SAMPLES = 64
IMPORT = """
import time, httpx, numpy
begin = time.perf_counter()
import murho_client
print(time.perf_counter() - begin)
"""
SCORE = """
import sys, time
from benchmarks.peers.exchange import peak_memory
from murho_client import Client
url, model, source, destination, samples = sys.argv[1:]
begin = time.perf_counter()
with Client(url, timeout=600) as client:
    rows = client.predict_file(source, destination, model, samples=int(samples), progress=False)
print([rows, time.perf_counter() - begin, peak_memory()])
"""


def small_call(url: str, model: str, columns: dict[str, list[object]], rounds: int) -> dict[str, float]:
    """Median seconds of a call for one row, and of a bare POST of the same body on a connection that is kept open."""
    body = orjson.dumps({"inputs": columns, "samples": SAMPLES, "percentiles": [5.0, 50.0, 95.0]})
    taken: dict[str, list[float]] = {"httpx": [], "murho_client": []}
    with httpx.Client(base_url=url) as bare, Client(url) as client:

        def post() -> None:
            answer = bare.post(f"/models/{model}/predict", content=body, headers={"content-type": "application/json"})
            answer.raise_for_status().json()

        def predict() -> None:
            client.predict(columns, model, samples=SAMPLES)

        calls = {"httpx": post, "murho_client": predict}
        for _ in range(rounds + 5):
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[5:]) for name, values in taken.items()}


def _python(code: str, *arguments: str) -> str:
    words = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    if done.returncode:
        raise ProcessError(done.stderr)
    return done.stdout


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--checkpoints", type=Path, default=DEFAULT_ROOT, metavar="DIR", help="default checkpoints")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    add_counts(parser, rows=(1_000_000, "of the table"), rounds=(200, "small calls"))


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    schema, files = schema_of(DirectoryStore(options.checkpoints).find(options.model)), []
    path, words = murho(options.checkpoints.resolve(), options.model)
    with (
        tempfile.TemporaryDirectory() as name,
        running(path, words, bodies_of(records(schema, DISTINCT), 1, SAMPLES)) as server,
    ):
        url = f"http://127.0.0.1:{server.port}"
        calls = small_call(url, options.model, records(schema, 1), options.rounds)
        imported = statistics.median(float(_python(IMPORT)) for _ in range(min(options.rounds, 11)))
        for rows in (max(options.rows // 10, 1), options.rows):
            csv.write_csv(pa.table(records(schema, rows)), f"{name}/rows.csv")
            given = (url, options.model, f"{name}/rows.csv", f"{name}/scored.csv", str(SAMPLES // 4))
            written, seconds, peak = orjson.loads(_python(SCORE, *given))
            if written != rows:
                raise ProcessError(f"{rows} rows were given, {written} written")
            files.append({"rows": rows, "seconds": seconds, "peak": peak})
    lines = [[name, f"{1e3 * seconds:.2f}"] for name, seconds in calls.items()]
    lines.append(["ratio", f"{calls['murho_client'] / calls['httpx']:.2f}"])
    print(f"{table(['one row', 'ms'], lines)}\n\nimport beyond httpx and numpy: {1e3 * imported:.0f} ms\n")
    lines = [[f"{of['rows']:,}", f"{of['seconds']:.1f}", f"{of['peak'] / 2**20:.0f}"] for of in files]
    print(table(["rows of a CSV file", "s", "peak MiB"], lines))
    return {"small_call": calls, "import": imported, "files": files}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
