"""`python -m benchmarks.classification --data DIR`: Murho with its defaults beside other classifiers of tables.

All systems have the same splits. Peers hold back the same 15 % of the training rows for early stopping and for their
calibration, Beta calibration for two classes and matrix scaling for more (`probmetrics`). The comparison takes Murho's
calibrated answer, which is its default, and the better of a peer's raw and calibrated answers. Peers' scores are read
from ``benchmarks/peers/results``. Missing scores are measured, each peer in an environment of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.class_fits import line_of, measure
from benchmarks.class_runs import ClassTrials
from benchmarks.class_tables import CLASSES
from benchmarks.command_line import add_cache, add_options, mean_and_error
from benchmarks.comparison import (
    MURHO,
    behind_cells,
    error_of,
    kinds_of,
    lowest_line,
    standing,
    with_error,
)
from benchmarks.datasets import chosen_sets, read_set, splits
from benchmarks.fits import Job, fit_all, sources
from benchmarks.peer_reports import add_peer_options, reports_of_peers, title_of
from benchmarks.peers import peers_of
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main", "render_set", "render_summary"]

PEERS = peers_of("classes")
SCORE = "log_loss"
BOTH = (SCORE, "brier")
ROWS_FOR_ECE = 2_000
"""Least test rows with which a calibration error is more than noise."""
GOAL_OF_ECE = 0.02


def render_set(name: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table of a set: one line per system and answer, the lowest log loss first."""
    verdict = standing(runs, SCORE)
    rows = []
    for system in sorted(runs, key=verdict[SCORE].__getitem__):
        reports = runs[system]
        for kind in kinds_of(reports):
            chosen = kind == verdict["answer"][system]
            rows.append(
                [
                    title_of(system, PEERS) if kind == kinds_of(reports)[0] else "",
                    kind + (" *" if chosen else ""),
                    str(len(reports)),
                    *(with_error(_mean(reports, kind, score), error_of(reports, kind, score)) for score in BOTH),
                    *(f"{_mean(reports, kind, score):.3f}" for score in ("ece", "auc", "accuracy")),
                    f"{mean_and_error([report['seconds'] for report in reports])[0]:.0f}",
                ]
            )
    return table([name, "answer", "splits", "log loss", "Brier", "ECE", "AUC", "accuracy", "seconds"], rows)


def render_summary(runs: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The summary: one line per set with the log loss of every system, the best peer, and Murho's distance to it.

    Args:
        runs: Set → system → reports of its splits.
    """
    systems = [system for system in (MURHO, *PEERS) if any(system in of_set for of_set in runs.values())]
    rows, verdicts = [], []
    for name, of_set in runs.items():
        verdict = standing(of_set, SCORE)
        verdicts.append(verdict)
        cells = [
            with_error(verdict[SCORE][system], verdict["error"][system]) if system in of_set else "-"
            for system in systems
        ]
        rows.append([name, *cells, *behind_cells(verdict)])
    lines = [
        table(
            ["log loss", *(title_of(system, PEERS) for system in systems), "best peer", "Murho behind it", "lowest"],
            rows,
        )
    ]
    compared = [verdict for verdict in verdicts if "behind" in verdict]
    if compared:
        lines.append(f"\n{lowest_line(compared, 'log loss')}.")
    errors = {
        name: _mean(of_set[MURHO], "calibrated", "ece")
        for name, of_set in runs.items()
        if MURHO in of_set and min(report["rows"] for report in of_set[MURHO]) >= ROWS_FOR_ECE
    }
    if errors:
        within = sum(error <= GOAL_OF_ECE for error in errors.values())
        shown = ", ".join(f"{name} {error:.3f}" for name, error in errors.items())
        lines.append(
            f"Where there are {ROWS_FOR_ECE:,} test rows, its calibration error is at most {GOAL_OF_ECE} on {within} "
            f"of {len(errors)}: {shown}."
        )
    return "\n".join(lines)


def _mean(reports: Sequence[Mapping[str, Any]], kind: str, score: str) -> float:
    """The mean over splits; NaN if a split has no such score."""
    return float(np.mean([np.nan if report[kind][score] is None else report[kind][score] for report in reports]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.classification", description=str(__doc__).splitlines()[0]
    )
    add_options(parser, CLASSES, "classification and mushroom")
    add_peer_options(parser, PEERS)
    parser.add_argument("--budget", type=float, metavar="S", help="seconds of each of Murho's fits (default: its own)")
    add_cache(parser)
    options = parser.parse_args(arguments)
    try:
        runs = _runs(options)
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    for name, of_set in runs.items():
        print(f"{render_set(name, of_set)}\n")
    print(
        "* the answer that is compared; ± standard error over splits (of one split: over its test rows); nats a row\n"
    )
    print(render_summary(runs))
    options.output.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / "classification.json"
    verdicts = {name: standing(of_set, SCORE) for name, of_set in runs.items()}
    write_json(
        path, {"benchmark": "classification", **facts(), "sources": sources(), "verdicts": verdicts, "runs": runs}
    )
    print(f"\nwrote {path}")
    return 0


def _runs(options: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Set → system → reports of its splits; sets without any are left out."""
    names = chosen_sets(options.sets, CLASSES)
    runs = reports_of_peers(options, [CLASSES[name] for name in names], PEERS, ClassTrials.of)
    if not options.only_peers:
        jobs = []
        for name in names:
            rows = read_set(CLASSES[name], options.data).num_rows
            for number, split in enumerate(splits(CLASSES[name], rows, options.splits)):
                own = {} if options.budget is None else {"budget": options.budget}
                jobs.append(Job(f"classes-{name}-{number:02d}", name, split, own))
        fits = fit_all(
            jobs,
            options.data,
            options.output / "fits",
            workers=options.jobs,
            fresh=options.fresh,
            measured=measure,
            line=line_of,
        )
        for name in names:
            of_set = [fits[job.name] for job in jobs if job.dataset == name]
            runs[name] = {MURHO: of_set, **runs[name]}
    return {name: of_set for name, of_set in runs.items() if of_set}


if __name__ == "__main__":
    sys.exit(main())
