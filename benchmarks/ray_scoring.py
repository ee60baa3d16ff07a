"""`python -m benchmarks.ray_scoring`: rows a second of `murho predict --engine ray`, beside `murho predict`.

The table has 8 columns of seeded random cells; the model is a network with one hidden layer of 32 units. Ray has 1 and
2 workers. Wall time and processor time are of the whole command, start of Ray included.
"""

from __future__ import annotations

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

from benchmarks.processes import ProcessError, train
from benchmarks.results import Report, add_counts, command, table

if TYPE_CHECKING:
    import argparse

PER_GROUP = 1_000_000
SYSTEMS: dict[str, tuple[str, ...]] = {
    "murho predict": (),
    "ray, 1 worker": ("--engine", "ray", "--workers", "1"),
    "ray, 2 workers": ("--engine", "ray", "--workers", "2"),
}
QUICK = (
    *("--epochs", "20", "--hidden", "32", "--members", "1", "--noise", "homoscedastic", "--transform", "none"),
    *("--encoding", "standard", "--whiten", "no", "--temperature", "1", "--no-report"),
)


def write_rows(path: Path, rows: int, *, labelled: bool = False) -> None:
    """Write a Parquet file of 6 numbers, a category, a date and perhaps ``y``, a million rows a row group."""
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


def measured(place: Path, words: tuple[str, ...]) -> dict[str, float]:
    """Run `murho`, and look at its processes and those below them.

    Returns:
        ``seconds`` of wall time, ``processor`` seconds of all, and the peak resident memory of the ``largest``, bytes.
    """
    # Without the last, Ray's workers have a lower priority than the command that they are compared with.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    began, command_line = time.monotonic(), [sys.executable, "-m", "murho", *words]
    running = subprocess.Popen(command_line, cwd=place, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    ticks, peaks, family = dict[int, int](), dict[int, int](), {running.pid}
    while running.poll() is None:
        for stat in Path("/proc").glob("[0-9]*/stat"):  # a process that has ended keeps its last figures
            try:
                fields, status = stat.read_text().rpartition(")")[2].split(), (stat.parent / "status").read_text()
            except OSError:  # it has ended
                continue
            pid = int(stat.parent.name)
            if pid in family or int(fields[1]) in family:
                family.add(pid)
                ticks[pid] = int(fields[11]) + int(fields[12])
                peaks[pid] = max(peaks.get(pid, 0), int((status.partition("VmHWM:")[2].split() or ["0"])[0]))
        time.sleep(0.2)
    if running.returncode:
        raise ProcessError(f"{' '.join(words)} ended with {running.returncode}")
    processor = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
    return {"seconds": time.monotonic() - began, "processor": processor, "largest": 1024.0 * max(peaks.values())}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(parser, rows=(1_000_000, "of the table"), rounds=(1, "of each, in turns"))


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_rows(place / "train.parquet", 3_000, labelled=True)
        write_rows(place / "rows.parquet", options.rows)
        train(place / "train.parquet", "y", place / "checkpoints", "big", *QUICK)
        for turn in range(options.rounds):
            for number, system in enumerate(runs):
                words = ("predict", "rows.parquet", "--model", "big", "--output", f"scored-{number}-{turn}.parquet")
                runs[system].append(measured(place, (*words, *SYSTEMS[system])))
    lines = []
    for system, of in runs.items():
        seconds, processor, largest = (statistics.median(each[key] for each in of) for key in of[0])
        rates = (f"{options.rows / seconds:,.0f}", f"{options.rows / processor:,.0f}")
        lines.append([system, f"{seconds:.1f}", *rates, f"{largest / 2**20:,.0f}"])
    print(table(["", "seconds", "rows/s", "rows/s of a processor", "largest process, MiB"], lines))
    return {"rows": options.rows, "runs": runs}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
