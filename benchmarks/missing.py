"""`python -m benchmarks.missing --data DIR`: coverage with blanked cells, and the rate of false alarms.

Of each table, one split. *test*: the network learns from complete rows, and a share of the cells of the test rows is
blanked at random (seed 1). *all*: the same share of the training cells is blanked, too (seed 0). The aim is a coverage
of 87 to 93 % of the 90 % bands. A false alarm is a row of the complete test rows that is called unlike the training
rows: at most 1 %.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.command_line import add_options
from benchmarks.datasets import SETS, TABULAR, Split, chosen_sets, read_set, splits
from benchmarks.fits import Job, fit_all, sources, timed_fit
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError
from murho.model.evaluation.judging import judge_columns
from murho.model.runtime import use_threads_for_fitting
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["blanked", "jobs_of", "main", "measure_blanked", "render"]

DEFAULT_SETS = "yacht,autompg,energy,abalone,california"
MOST_ROWS = {"abalone": 2_000, "california": 3_000}
MOST_TEST_ROWS = 1_500
SHARES = (0.0, 0.1, 0.2)
BUDGET = 20.0
TRAINING_SEED, TEST_SEED = 0, 1


def blanked(rows: pa.Table, target: str, share: float, seed: int) -> pa.Table:
    """The table with a share of its cells missing, at random, except those of the target."""
    generator = np.random.default_rng(seed)
    columns = {}
    for name in rows.column_names:
        column = rows.column(name)
        gone = pa.array(generator.random(rows.num_rows) < share)
        columns[name] = column if name == target else pc.if_else(gone, pa.scalar(None, column.type), column)
    return pa.table(columns)


def jobs_of(name: str, read: pa.Table, budget: float) -> list[Job]:
    """One job with complete training rows, and one for each share with blanked ones."""
    (split,) = splits(SETS[name], read.num_rows, 1)
    split = Split(split.training[: MOST_ROWS.get(name)], split.test[:MOST_TEST_ROWS])
    jobs = [Job(f"missing-{name}-test", name, split, {"budget": budget})]
    return jobs + [
        Job(f"missing-{name}-all-{round(100 * share)}", name, split, {"budget": budget}) for share in SHARES if share
    ]


def measure_blanked(job: Job, data: Path) -> dict[str, Any]:
    """Fits once and scores the test rows with each share of blanked cells.

    Returns:
        ``shares``: a share in percent → ``coverage`` (raw and calibrated, of the 90 % band), ``width``, ``crps`` and
        ``alarms``, the share of rows called unlike the training rows. And ``rmse``, ``crps``, ``nll`` and ``seconds``.
    """
    dataset = SETS[job.dataset]
    read = read_set(dataset, data)
    training, test = (read.take(rows) for rows in (job.split.training, job.split.test))
    *_, where = job.name.split("-")
    shares = SHARES if where == "test" else (int(where) / 100.0,)
    if where != "test":
        training = blanked(training, dataset.target, shares[0], TRAINING_SEED)
    posterior, seconds = timed_fit(training, dataset.target, job.options)
    truth = target_from_table(test, dataset.target)
    of_shares = {}
    with use_threads_for_fitting("cpu"):
        for share in shares:
            columns = columns_from_table(blanked(test, dataset.target, share, TEST_SEED), posterior.schema)
            report = judge_columns(posterior, columns, truth).report()
            alarms = {
                warning.row for warning in posterior.input_warnings(columns) if "is missing" not in warning.message
            }
            of_shares[str(round(100 * share))] = {
                "coverage": {kind: report[kind]["coverage"]["90"] for kind in ("raw", "calibrated") if report[kind]},
                "width": (report["calibrated"] or report["raw"])["width"]["90"],
                "alarms": len(alarms) / len(truth),
                **{name: report[name] for name in ("rmse", "crps", "nll")},
            }
    first = next(iter(of_shares.values()))
    return {"shares": of_shares, "seconds": seconds, **{name: first[name] for name in ("rmse", "crps", "nll")}}


def render(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with one line per set, place and share.

    Args:
        runs: Name of a job → its report.
    """
    rows = []
    for job, report in runs.items():
        _, name, where = job.split("-")[:3]
        for share, scores in report["shares"].items():
            raw, calibrated = (100.0 * scores["coverage"].get(kind, np.nan) for kind in ("raw", "calibrated"))
            cells = [f"{raw:.1f}", f"{calibrated:.1f}", f"{scores['width']:.4g}", f"{scores['crps']:.4g}"]
            rows.append([name, where, f"{share} %", *cells, f"{100.0 * scores['alarms']:.2f}"])
    return table(["set", "rows", "blanked", "raw 90 %", "calibrated 90 %", "width", "CRPS", "called unlike, %"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=str(__doc__).splitlines()[0])
    add_options(parser, TABULAR)
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help=f"of a fit (default {BUDGET})")
    options = parser.parse_args(arguments)
    try:
        names = chosen_sets(options.sets or DEFAULT_SETS, TABULAR)
        jobs = [job for name in names for job in jobs_of(name, read_set(SETS[name], options.data), options.budget)]
        reports = fit_all(
            jobs,
            options.data,
            options.output / "fits",
            workers=options.jobs,
            fresh=options.fresh,
            measured=measure_blanked,
        )
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    runs = {job.name: reports[job.name] for job in jobs}
    print(render(runs))
    path = Path(options.output) / "missing.json"
    write_json(path, {"benchmark": "missing", **facts(), "sources": sources(), "runs": runs})
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
