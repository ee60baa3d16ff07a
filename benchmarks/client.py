"""What the client of the service adds: time of a call and of its import, memory for a big table, calls amid faults.

``python -m benchmarks.client`` starts `murho serve` with a checkpoint and measures on loopback

- a small call beside a bare ``httpx`` POST of the same body, in turns;
- ``import murho_client`` after ``import httpx, numpy``, in fresh processes;
- ``Client.predict_file`` of a table with ``--rows`` rows, and of one with a tenth of them: time and peak memory;
- ``--calls`` calls through a proxy that resets, delays, cuts bodies, and answers 429 and 503: how many are lost, and
  how many are answered wrongly.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import orjson
from murho_client import Client, MurhoClientError

from benchmarks.command_line import add_output, add_rounds, positive
from benchmarks.faulty_proxy import FaultyProxy
from benchmarks.processes import ProcessError
from benchmarks.results import ROOT, facts, table, write_json
from murho.model.checkpoint.checkpoint import default_root, find_checkpoint
from murho.model.errors import MurhoError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from murho_client import Model, Prediction

__all__ = ["big_table", "faults", "import_time", "main", "small_call"]

SAMPLES = 64
"""Draws behind each answer."""
DISTINCT_ROWS = 50
THREADS = 8
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


@contextmanager
def served(checkpoints: Path) -> Iterator[str]:
    """The address of a service of its own, which ends with the context.

    Raises:
        ProcessError: The service did not become ready.
    """
    command = [sys.executable, "-m", "benchmarks.murho_command", "serve", "--checkpoints", str(checkpoints.resolve())]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--port", "0"], cwd=ROOT, stderr=log)  # noqa: S603 - our own script
        try:
            yield _address(process, log)
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Any) -> str:
    while True:
        log.seek(0)
        said: str = log.read().decode()
        if "Ready: " in said:
            return "http://" + said.partition(" on http://")[2].partition(",")[0]
        if process.poll() is not None:
            raise ProcessError(f"murho serve ended with status {process.returncode}:\n{said}")
        time.sleep(0.1)


def random_rows(model: Model, count: int, seed: int = 0) -> dict[str, list[Any]]:
    """Columns of random rows within the training range, ``[B]`` each."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    for feature in model.raw["features"]:
        low, high = feature["min"], feature["max"]
        match feature["kind"]:
            case "categorical":
                columns[feature["name"]] = rng.choice(feature["categories"], count).tolist()
            case "boolean":
                columns[feature["name"]] = (rng.random(count) < 0.5).tolist()
            case "date":
                first, last = (date.fromisoformat(text[:10]) for text in (low, high))
                days = rng.integers((last - first).days + 1, size=count).tolist()
                columns[feature["name"]] = [(first + timedelta(days=day)).isoformat() for day in days]
            case _:
                columns[feature["name"]] = rng.uniform(low, high, count).round(3).tolist()
    return columns


def small_call(client: Client, url: str, model: str, rounds: int) -> dict[str, float]:
    """Median seconds of a call for one row, and of a bare POST of the same body on a connection that is kept open."""
    columns = random_rows(client.model(model), 1)
    body = orjson.dumps({"inputs": columns, "samples": SAMPLES, "percentiles": [5.0, 50.0, 95.0]})
    seconds: dict[str, list[float]] = {"client": [], "httpx": []}
    with httpx.Client(base_url=url) as bare:

        def post() -> None:
            answer = bare.post(f"/models/{model}/predict", content=body, headers={"content-type": "application/json"})
            answer.raise_for_status().json()

        calls = {"client": lambda: client.predict(columns, model, samples=SAMPLES), "httpx": post}
        for _ in range(rounds + 5):
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(values[5:])) for name, values in seconds.items()}


def import_time(rounds: int) -> float:
    """Median seconds that ``import murho_client`` takes after ``import httpx, numpy``, in fresh processes."""
    return float(np.median([float(_python(IMPORT)) for _ in range(rounds)]))


def big_table(client: Client, url: str, model: str, rows: int, directory: Path) -> list[dict[str, float]]:
    """Time and peak memory of a process that predicts a CSV file, for a tenth of the rows and for all of them."""
    measured = []
    for count in (max(rows // 10, 1), rows):
        source, destination = directory / f"{count}.csv", directory / f"{count}-scored.csv"
        columns = random_rows(client.model(model), count)
        with source.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        written, seconds, peak = orjson.loads(
            _python(SCORE, url, model, str(source), str(destination), str(SAMPLES // 4))
        )
        with destination.open(newline="") as file:
            lines = sum(1 for _ in file) - 1
        if not written == lines == count:
            raise ProcessError(f"{count} rows were given, {lines} written")
        measured.append({"rows": count, "seconds": seconds, "peak": peak})
    return measured


def faults(client: Client, url: str, model: str, calls: int, rate: float) -> dict[str, Any]:
    """Calls through a faulty proxy, from several threads that share a client.

    Args:
        client: A client of the service itself, which gives the right answers.
        url: Address of the service.
        model: Name of the model.
        calls: Number of calls.
        rate: Probability that a request meets a fault.

    Returns:
        ``calls``, ``lost`` (an error), ``wrong``, ``seconds``, ``faults`` by name, and ``errors``, the first few.
    """
    described = client.model(model)
    columns = random_rows(described, DISTINCT_ROWS)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    right = [client.predict(row, model, samples=SAMPLES) for row in rows]
    address = httpx.URL(url)
    lost: list[str] = []
    with (
        FaultyProxy(address.host, address.port or 80, rate=rate) as proxy,
        Client(proxy.address) as shaken,
        ThreadPoolExecutor(THREADS) as threads,
    ):

        def wrong(number: int) -> bool:
            try:
                answer = shaken.predict(rows[number % DISTINCT_ROWS], model, samples=SAMPLES)
            except MurhoClientError as error:
                lost.append(str(error))
                return False
            return not _same(answer, right[number % DISTINCT_ROWS])

        begin = time.perf_counter()
        mistaken = sum(threads.map(wrong, range(calls)))
        seconds = time.perf_counter() - begin
    return {
        "calls": calls,
        "lost": len(lost),
        "wrong": mistaken,
        "seconds": seconds,
        "faults": dict(proxy.counts),
        "errors": lost[:5],
    }


def _same(one: Prediction, other: Prediction) -> bool:
    return all(
        np.allclose(getattr(one, name), getattr(other, name), rtol=1e-5) for name in ("mean", "std", "percentiles")
    )


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProcessError(done.stderr)
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints the tables, and writes ``client.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--checkpoints", type=Path, default=default_root(), metavar="DIR", help="default checkpoints")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    parser.add_argument("--rows", type=positive, default=1_000_000, metavar="N", help="of the table (default 1000000)")
    parser.add_argument("--calls", type=positive, default=10_000, metavar="N", help="amid faults (default 10000)")
    parser.add_argument("--faults", type=float, default=0.15, metavar="P", help="probability of a fault (default 0.15)")
    add_rounds(parser, 200, "small calls")
    add_output(parser)
    chosen = parser.parse_args(arguments)
    try:
        if not 0.0 <= chosen.faults < 1.0:
            raise OptionError(f"--faults: a probability from 0 to below 1, not {chosen.faults:g}")
        find_checkpoint(chosen.checkpoints, chosen.model, None)
        measured = _measure(chosen)
    except MurhoError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    print(_report(measured))
    chosen.output.mkdir(parents=True, exist_ok=True)
    write_json(chosen.output / "client.json", facts() | measured)
    return 0


def _measure(chosen: argparse.Namespace) -> dict[str, Any]:
    with (
        served(chosen.checkpoints) as url,
        Client(url, timeout=600.0) as client,
        tempfile.TemporaryDirectory() as directory,
    ):
        return {
            "small_call": small_call(client, url, chosen.model, chosen.rounds),
            "import": import_time(min(chosen.rounds, 11)),
            "faults": faults(client, url, chosen.model, chosen.calls, chosen.faults),
            "big_table": big_table(client, url, chosen.model, chosen.rows, Path(directory)),
        }


def _report(measured: dict[str, Any]) -> str:
    call, amid = measured["small_call"], measured["faults"]
    met = ", ".join(f"{count} {name}" for name, count in sorted(amid["faults"].items()))
    rows = [
        [f"{item['rows']:,}", f"{item['seconds']:.1f}", f"{item['peak'] / 2**20:.0f}"] for item in measured["big_table"]
    ]
    return "\n\n".join(
        (
            table(
                ["one row", "ms"],
                [
                    ["httpx", f"{1e3 * call['httpx']:.2f}"],
                    ["murho_client", f"{1e3 * call['client']:.2f}"],
                    ["ratio", f"{call['client'] / call['httpx']:.2f}"],
                ],
            ),
            f"import beyond httpx and numpy: {1e3 * measured['import']:.0f} ms",
            table(["rows of a CSV file", "s", "peak MiB"], rows),
            f"{amid['calls']} calls in {amid['seconds']:.0f} s: {amid['lost']} lost, {amid['wrong']} answered wrongly\n"
            f"({met})",
            *amid["errors"],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
