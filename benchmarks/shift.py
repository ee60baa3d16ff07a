"""`python -m benchmarks.shift --data DIR`: coverage on rows unlike the training rows, on the UCI sets.

For each feature, the rows are sorted by it and split twice. *gap*: the middle third is the test set. *tail*: the outer
sixths are the test set (Foong et al. 2019, in-between uncertainty; Ober & Rasmussen 2019). Features with fewer than 10
different values are left out, because a third of the rows would share one value. Sets of more than 10,000 rows are cut
to 10,000, drawn with seed 0. All features take hours; ``--features N`` takes N of a set, evenly spaced. Scores are
averaged over the splits of a set, then over sets. The aim is a raw 95 % coverage of at least 0.90 over the sets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command_line import add_cache, add_options, positive, some_of
from benchmarks.datasets import SETS, UCI, Split, chosen_sets, read_set
from benchmarks.fits import Job, fit_all, sources
from benchmarks.results import facts, table, write_json
from benchmarks.shift_peers import PEERS, Beside, peer_reports, render_beside
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SHIFTS", "jobs_of", "main", "render", "shifted_splits"]

SHIFTS = ("gap", "tail")
MOST_ROWS = 10_000
FEWEST_VALUES = 10
SEED = 0


def shifted_splits(values: NDArray[np.float64], rows: NDArray[np.int64]) -> dict[str, Split]:
    """The two splits along a feature.

    Args:
        values: Values of the feature, ``[N]``; ties stay in the order of the table.
        rows: Row numbers of these values in the table, ``[N]``.

    Returns:
        ``gap`` and ``tail``.
    """
    order = rows[np.argsort(values, kind="stable")]
    third, sixth = len(order) // 3, len(order) // 6
    middle = slice(third, len(order) - third)
    inside = slice(sixth, len(order) - sixth)
    outside = np.concatenate([order[:sixth], order[len(order) - sixth :]])
    return {
        "gap": Split(np.concatenate([order[: middle.start], order[middle.stop :]]), order[middle]),
        "tail": Split(order[inside], outside),
    }


def jobs_of(name: str, read: pa.Table, most: int | None = None, most_rows: int = MOST_ROWS) -> list[Job]:
    """Jobs for both splits along each continuous feature of a set, or along `most` of them, evenly spaced.

    Args:
        name: Name of the set.
        read: Its table.
        most: Most features.
        most_rows: Most rows; of a larger set so many are drawn.
    """
    rows = np.arange(read.num_rows)
    if len(rows) > most_rows:
        rows = np.sort(np.random.default_rng(SEED).choice(rows, most_rows, replace=False))
    columns = {
        feature: _numbers_of(read[feature].to_pylist())[rows]
        for feature in read.column_names
        if feature != SETS[name].target
    }
    known = {feature: ~np.isnan(values) for feature, values in columns.items()}
    features = [
        feature for feature, values in columns.items() if len(np.unique(values[known[feature]])) >= FEWEST_VALUES
    ]
    if most is not None and most < len(features):
        features = [features[len(features) * number // most] for number in range(most)]
    return [
        Job(f"{shift}-{name}-{feature}", name, split, {})
        for feature in features
        for shift, split in shifted_splits(columns[feature][known[feature]], rows[known[feature]]).items()
    ]


def _numbers_of(cells: Sequence[str | None]) -> NDArray[np.float64]:
    """A column as numbers, NaN for missing cells; all NaN if it holds texts."""
    try:
        return np.array([np.nan if cell in (None, "") else float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return np.full(len(cells), np.nan)


def render(runs: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """A table with one line per set and shift, then means over sets.

    Args:
        runs: Shift → set → reports of its splits.
    """
    rows = []
    for shift, of_shift in runs.items():
        means = []
        for name, reports in of_shift.items():
            if not reports:
                continue
            numbers = _numbers(reports)
            means.append(numbers)
            rows.append([shift, name, str(len(reports)), *_cells(numbers)])
        if len(means) > 1:
            overall = {key: float(np.mean([numbers[key] for numbers in means])) for key in means[0]}
            cells = [cell if index < 4 else "-" for index, cell in enumerate(_cells(overall))]
            rows.append([shift, "mean of sets", "", *cells])
    headers = ["shift", "set", "splits", "raw 95 %", "lowest", "raw 90 %", "calibrated 95 %", "RMSE", "CRPS"]
    return table(headers, rows)


def _numbers(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    raw = [report["raw"]["coverage"] for report in reports]
    calibrated = [(report["calibrated"] or report["raw"])["coverage"]["95"] for report in reports]
    return {
        "raw 95": float(np.mean([coverage["95"] for coverage in raw])),
        "lowest": float(min(coverage["95"] for coverage in raw)),
        "raw 90": float(np.mean([coverage["90"] for coverage in raw])),
        "calibrated 95": float(np.mean(calibrated)),
        "rmse": float(np.mean([report["rmse"] for report in reports])),
        "crps": float(np.mean([report["crps"] for report in reports])),
    }


def _cells(numbers: Mapping[str, float]) -> list[str]:
    shares = [f"{100.0 * numbers[key]:.1f}" for key in ("raw 95", "lowest", "raw 90", "calibrated 95")]
    return [*shares, f"{numbers['rmse']:.4g}", f"{numbers['crps']:.4g}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shift", description=str(__doc__).splitlines()[0])
    add_options(parser, SETS, default=",".join(UCI))
    parser.add_argument("--features", type=positive, metavar="N", help="features of a set (default all)")
    parser.add_argument("--rows", type=positive, default=MOST_ROWS, metavar="N", help=f"of a set (default {MOST_ROWS})")
    parser.add_argument(
        "--shifts",
        type=some_of(SHIFTS, "shift"),
        default=list(SHIFTS),
        metavar="NAMES",
        help=f"some of {','.join(SHIFTS)} (default all)",
    )
    parser.add_argument("--peer", choices=PEERS, metavar="NAME", help=f"beside Murho: one of {','.join(PEERS)}")
    add_cache(parser)
    options = parser.parse_args(arguments)
    try:
        jobs, fits, of_peer = _fits(options)
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    runs = {
        shift: {
            name: [
                fits[job.name] | {"split": job.name}
                for job in jobs
                if job.dataset == name and job.name.startswith(f"{shift}-")
            ]
            for name in dict.fromkeys(job.dataset for job in jobs)
        }
        for shift in options.shifts
    }
    print(render(runs))
    overall = [
        np.mean([report["raw"]["coverage"]["95"] for report in reports])
        for of_shift in runs.values()
        for reports in of_shift.values()
        if reports
    ]
    print(f"\nraw 95 % coverage over sets and shifts: {100.0 * float(np.mean(overall)):.1f} % (aim: at least 90 %)")
    if of_peer:
        beside = [Beside.of(job.name, fits[job.name], of_peer[job.name]) for job in jobs if job.name in of_peer]
        print(f"\n{render_beside(options.peer, beside)}")
    path = Path(options.output) / "shift.json"
    write_json(path, {"benchmark": "shift", **facts(), "sources": sources(), "runs": runs, "peer": of_peer})
    print(f"wrote {path}")
    return 0


def _fits(options: argparse.Namespace) -> tuple[list[Job], dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The splits, and Murho's and the peer's reports of them by name."""
    names = chosen_sets(options.sets, SETS) if options.sets else list(UCI)
    jobs = [
        job
        for name in names
        for job in jobs_of(name, read_set(SETS[name], options.data), options.features, options.rows)
        if job.name.startswith(tuple(options.shifts))
    ]
    kept = options.output / "fits"
    of_peer = dict[str, dict[str, Any]]()
    if options.peer:
        of_peer = peer_reports(options.peer, jobs, options.data, kept, cache=options.cache, workers=options.jobs)
    fits = fit_all(jobs, options.data, kept, workers=options.jobs, fresh=options.fresh)
    return jobs, fits, of_peer


if __name__ == "__main__":
    sys.exit(main())
