"""What large loads take, from unit costs of one machine, with a simulation that is checked against that machine.

``python -m benchmarks.scale`` measures one service and `murho predict` with the demo; with ``--costs FILE`` it takes
the unit costs of an earlier run. It prints

- measured and simulated rates and latencies of one service;
- replicas for 1,000, 100,000 and 10,000,000 requests a second, cores for 10^12 rows, memory for 100,000 models;
- what a load that jumps does under an autoscaler.

Without ``--checkpoints``, the demo (``examples/cars.csv``) is trained first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from benchmarks.command_line import add_output, add_rounds
from benchmarks.processes import ProcessError
from benchmarks.results import ROOT, facts, table, write_json
from benchmarks.scale_parts.plans import check_rows, jump_rows, model_rows, request_rows, request_size_rows, row_rows
from benchmarks.scale_parts.unit_costs import UnitCosts, costs_of, measure
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

TITLES = {
    "check": ["one service", "measured", "simulated", "ratio"],
    "requests": ["requests/s", "replicas of one core", "machines of 64 cores", "p99, ms"],
    "request_sizes": ["rows a request", "requests/s", "rows/s", "time beside one row"],
    "rows": ["rows", "core hours", "cores to end in a day"],
    "models": ["models, all loaded", "GB", "machines of 256 GB"],
    "jump": ["seconds to ready", "refused", "seconds until none is", "most replicas", "p99 in the end, ms"],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    chosen = _options(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as `murho` does for itself
    try:
        measured = _unit_costs(chosen)
    except (MurhoError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    costs = costs_of(measured)
    tables = {
        "check": check_rows(measured, costs),
        "requests": request_rows(costs),
        "request_sizes": request_size_rows(measured),
        "rows": row_rows(measured),
        "models": model_rows(measured),
        "jump": jump_rows(costs),
    }
    print(f"a flight of k requests takes {1e3 * costs.fixed:.3f} + k {1e3 * costs.each:.3f} ms of a core")
    print(f"a service is ready after {measured.ready:.1f} s, and takes {measured.memory / 1e6:.0f} MB with one model")
    print(f"murho predict scores {measured.rows:,.0f} rows/s")
    for name, rows in tables.items():
        print(f"\n{table(TITLES[name], rows)}")
    chosen.output.mkdir(parents=True, exist_ok=True)
    write_json(chosen.output / "scale.json", {**facts(), "costs": measured.to_json(), "tables": tables})
    return 0


def _unit_costs(chosen: argparse.Namespace) -> UnitCosts:
    if chosen.costs is not None:
        return UnitCosts.from_json(orjson.loads(chosen.costs.read_bytes())["costs"])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        checkpoints = chosen.checkpoints
        if checkpoints is None:
            checkpoints = directory / "checkpoints"
            cars = ROOT / "examples" / "cars.csv"
            print("training the demo ...", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "murho", "train", str(cars), "--config", str(cars.with_suffix(".toml"))]
            command += ["--name", chosen.model, "--checkpoints", str(checkpoints)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - ours
            if done.returncode:
                raise ProcessError(f"murho train ended with status {done.returncode}:\n{done.stderr[-2000:]}")
        return measure(checkpoints, chosen.model, directory, rounds=chosen.rounds, seconds=chosen.seconds)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--costs", type=Path, metavar="FILE", help="scale.json of an earlier run: nothing is measured")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="with the demo (default: it is trained)")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    add_rounds(parser, 5)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of a turn (default 3)")
    add_output(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
