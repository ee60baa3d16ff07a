"""`python -m benchmarks.shift --data DIR`: coverage on rows unlike the training rows, on the UCI sets.

For each feature, the rows are sorted by it and split twice. *gap*: the middle third is the test set. *tail*: the outer
sixths are the test set (Foong et al. 2019, in-between uncertainty; Ober & Rasmussen 2019). Features with fewer than 10
different values are left out, because a third of the rows would share one value. Sets of more than 10,000 rows are cut
to 10,000, drawn with seed 0. All features take hours; ``--features N`` takes N of a set, evenly spaced. The aim is a
raw 95 % coverage of at least 0.90 over the sets. A peer gets the same splits, and counts with the better of its raw and
its conformal answer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.comparison import peer_job
from benchmarks.datasets import SETS, TABULAR, UCI, Split, add_data, numeric, read_set, split_task
from benchmarks.peers import peers_of
from benchmarks.processes import add_cache
from benchmarks.results import Kept, Report, add_counts, command, positive, some_of, table
from benchmarks.runner import Cell, add_fits, fit_job, fits_of, grouped, mean, reports_of, values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import pyarrow as pa

    from murho.model.arrays import Doubles, Ints

SHIFTS = ("gap", "tail")
MOST_ROWS = 10_000
FEWEST_VALUES = 10
BEHIND = 1.1
"""Ratio of the CRPS from which a split is counted as behind."""


def _lowest(reports: Sequence[Report]) -> str:
    return f"{100.0 * min(values(reports, 'raw.coverage.95')):.1f}"


COLUMNS: dict[str, Cell] = {
    "raw 95 %": mean("raw.coverage.95", 100.0),
    "lowest": _lowest,
    "calibrated 95 %": mean("calibrated.coverage.95", 100.0),
}


def shifted_splits(feature: Doubles, rows: Ints) -> dict[str, Split]:
    """Return the two splits along a feature.

    Args:
        feature: Its values, ``[N]``; ties stay in the order of the table.
        rows: Row numbers of these values in the table, ``[N]``.

    Returns:
        ``gap`` and ``tail``.
    """
    order = rows[np.argsort(feature, kind="stable")]
    places, third, sixth = np.arange(len(order)), len(order) // 3, len(order) // 6
    middle = (places >= third) & (places < len(order) - third)
    inside = (places >= sixth) & (places < len(order) - sixth)
    return {"gap": Split(order[~middle], order[middle]), "tail": Split(order[inside], order[~inside])}


def splits_of(name: str, read: pa.Table, most: int | None = None, most_rows: int = MOST_ROWS) -> dict[str, Split]:
    """``SHIFT-SET-FEATURE`` → split, along each continuous feature of a set, or along ``most`` of them, evenly spaced.

    Args:
        name: Name of the set.
        read: Its table.
        most: Most features.
        most_rows: Most rows; of a larger set so many are drawn.
    """
    rows = np.arange(read.num_rows)
    if len(rows) > most_rows:
        rows = np.sort(np.random.default_rng(0).choice(rows, most_rows, replace=False))
    numbers = {each: numeric(read[each].to_pylist()) for each in read.column_names if each != SETS[name].target}
    columns = {each: column[rows] for each, column in numbers.items() if column is not None}
    known = {each: ~np.isnan(column) for each, column in columns.items()}
    chosen = [each for each, column in columns.items() if len(np.unique(column[known[each]])) >= FEWEST_VALUES]
    if most is not None and most < len(chosen):
        chosen = [chosen[len(chosen) * number // most] for number in range(most)]
    return {
        f"{shift}-{name}-{each}": split
        for each in chosen
        for shift, split in shifted_splits(columns[each][known[each]], rows[known[each]]).items()
    }


def render_beside(crps: dict[str, tuple[float, float]]) -> str:
    """One line per split with the CRPS of Murho and of the peer, then the geometric mean of the ratios."""
    ratios = np.array([ours / theirs for ours, theirs in crps.values()])
    rows = [[name, f"{ours:.4g}", f"{theirs:.4g}", f"{ours / theirs:.2f}"] for name, (ours, theirs) in crps.items()]
    return (
        f"{table(['CRPS', 'Murho', 'peer', 'ratio'], rows)}\n\n"
        f"geometric mean of the ratios {np.exp(np.log(ratios).mean()):.2f}; Murho is more than 10 % behind on "
        f"{(ratios > BEHIND).sum()} of {len(ratios)} splits, at worst {ratios.max():.2f} times"
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    known = UCI | TABULAR
    add_data(parser, known, UCI)
    add_fits(parser)
    parser.add_argument("--features", type=positive, metavar="N", help="features of a set (default all)")
    add_counts(parser, rows=(MOST_ROWS, "of a set"))
    parser.add_argument("--shifts", type=some_of(SHIFTS), default=list(SHIFTS), help="gap, tail (default both)")
    parser.add_argument("--peer", choices=peers_of("table"), help="beside Murho")
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    own, jobs, beside = {"budget": options.budget}, [], []
    for name in options.sets:
        read = read_set(SETS[name], options.data)
        for split_name, split in splits_of(name, read, options.features, options.rows).items():
            shift = split_name.partition("-")[0]
            if shift in options.shifts:
                jobs.append(fit_job(split_name, f"{shift}, {name}", split_task, options.data, name, split, own))
                if options.peer:
                    beside.append(peer_job(options.peer, split_name, options.data, name, split, options.cache))
    lines = fits_of(jobs, options)
    print(grouped("shift, set", COLUMNS, lines))
    overall = np.mean([np.mean(values(reports, "raw.coverage.95")) for reports in lines.values()])
    print(f"\nraw 95 % coverage over sets and shifts: {100.0 * overall:.1f} % (aim: at least 90 %)")
    if beside:
        kept = Kept(options.output / "fits.jsonl")
        theirs = reports_of([job for job in beside if job], kept, workers=1, fresh=options.fresh)
        ours = {job.name: kept.get(job.name, job.of) for job in jobs}
        crps = {}
        for job in jobs:
            report, other = ours[job.name], theirs.get(f"{options.peer}-{job.name}")
            if report and other:
                found = [other[kind]["crps"] for kind in ("raw", "calibrated") if other[kind]]
                crps[job.name] = (report["calibrated"]["crps"], min(found))
        print(f"\n{render_beside(crps)}")
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
