"""Rows a second of `murho predict --engine ray` with 1 and 2 workers, beside `murho predict` on the same table.

Run as ``python -m benchmarks.ray_scoring``. The table has 8 columns of seeded random cells; the model is a network with
one hidden layer of 32 units. Wall time and processor time are of the whole command, start of Ray included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.results import DEFAULT_OUTPUT, facts, table, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "write_rows"]

PER_GROUP = 1_000_000
SYSTEMS = ("murho predict", "ray, 1 worker", "ray, 2 workers")
QUICK = (
    *("--epochs", "20", "--hidden", "32", "--members", "1", "--noise", "homoscedastic", "--transform", "none"),
    *("--encoding", "standard", "--whiten", "no", "--temperature", "1", "--no-report"),
)


def write_rows(path: Path, rows: int, *, labelled: bool = False) -> None:
    """Writes a Parquet file of 8 features, a million rows a row group: 6 numbers, a category and a date.

    Args:
        path: The file.
        rows: Number of rows.
        labelled: Whether to add the target ``y``.
    """
    writer = None
    for first in range(0, rows, PER_GROUP):
        count, generator = min(PER_GROUP, rows - first), np.random.default_rng(first)
        columns = {f"x{index}": generator.normal(size=count).round(4) for index in range(6)}
        days = np.datetime64("2020-01-01") + generator.integers(0, 900, count).astype("timedelta64[D]")
        cells: dict[str, Any] = {**columns, "kind": generator.choice(["a", "b", "c"], count), "day": days}
        if labelled:
            cells["y"] = 2.0 * columns["x0"] + np.sin(columns["x1"]) + generator.normal(size=count)
        part = pa.table(cells)
        writer = writer or parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints a table, writes ``ray_scoring.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_scoring", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="rows of the table (default 1,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="measurements of each, in turns (default 1)")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="leave out the others")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR")
    asked = parser.parse_args(arguments)
    systems = [system for system in SYSTEMS if not asked.only or system in asked.only]
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_rows(place / "train.parquet", 3_000, labelled=True)
        write_rows(place / "rows.parquet", asked.rows)
        _run(place, ["train", "train.parquet", "--target", "y", "--name", "big", *QUICK])
        for turn in range(asked.rounds):
            for system in systems:
                output = f"{system.replace(', ', '-').replace(' ', '-')}-{turn}"
                words = ["predict", "rows.parquet", "--model", "big", "--output"]
                words.append(f"{output}.parquet")
                if system != SYSTEMS[0]:
                    words += ["--engine", "ray", "--workers", system.split()[1]]
                runs[system].append(_run(place, words))
    rows = []
    for system, measured in runs.items():
        seconds, processor, largest = (
            statistics.median(each[key] for each in measured) for key in ("seconds", "processor", "largest")
        )
        rates = (f"{asked.rows / seconds:,.0f}", f"{asked.rows / processor:,.0f}")
        rows.append([system, f"{seconds:.1f}", *rates, f"{largest / 2**20:,.0f}"])
    titles = ["", "seconds", "rows/s", "rows/s of a processor", "largest process, MiB"]
    sys.stdout.write(table(titles, rows) + "\n")
    asked.output.mkdir(parents=True, exist_ok=True)
    write_json(asked.output / "ray_scoring.json", {**facts(), "rows": asked.rows, "runs": runs})


def _run(place: Path, words: Sequence[str]) -> dict[str, float]:
    """Runs a command, and looks at its processes and those below them.

    Returns:
        ``seconds`` of wall time, ``processor`` seconds of all, and the peak resident memory of the ``largest``, bytes.
    """
    # Without the last, Ray's workers have a lower priority than the command that they are compared with.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    began = time.monotonic()
    command = [sys.executable, "-m", "murho", *words]
    running = subprocess.Popen(command, cwd=place, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - our own
    processor: dict[int, float] = {}
    largest = 0
    while running.poll() is None:
        # A process that has ended keeps its last figures.
        for pid in _below(running.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:  # it has ended
                continue
            processor[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            peak = status.partition("VmHWM:")[2].split()
            largest = max(largest, int(peak[0]) * 1024 if peak else 0)
        time.sleep(0.2)
    if running.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
    return {"seconds": time.monotonic() - began, "processor": sum(processor.values()), "largest": float(largest)}


def _below(pid: int) -> list[int]:
    """A process and all that it started, and these."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


if __name__ == "__main__":
    main()
