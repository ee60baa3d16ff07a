"""`python -m benchmarks.tabular --data DIR`: Murho with its defaults beside other probabilistic tabular models.

All systems have the same splits and give the same quantiles, from which `benchmarks.distributions` estimates the CRPS.
Peers hold back the same 15 % of the training rows for early stopping and for the conformal correction. The comparison
takes Murho's calibrated answer, which is its default, and the better of a peer's raw and conformal answers. Peers'
scores are read from ``benchmarks/peers/results``. Missing scores are measured, each peer in an environment of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command_line import add_cache, add_options, mean_and_error, shown
from benchmarks.comparison import (
    MURHO,
    behind_cells,
    error_of,
    kinds_of,
    lowest_line,
    standing,
    with_error,
)
from benchmarks.datasets import TABULAR, chosen_sets, read_set, splits
from benchmarks.distributions import COVERAGES
from benchmarks.fits import Job, fit_all, sources
from benchmarks.peer_reports import add_peer_options, reports_of_peers, title_of
from benchmarks.peers import peers_of
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["compare", "main", "render_set", "render_summary"]

PEERS = peers_of("table")
WIDTH_OF = "90"
"""The band whose width is compared, per cent."""


def of_murho(report: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a report of `benchmarks.fits.measure` to the form of a peer's report."""
    return {
        "rmse": report["rmse"],
        "crps_closed": report["crps"],
        "seconds": report["seconds"],
        **report["quantiles"],
    }


def compare(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Compares the systems on a set.

    Args:
        runs: System → reports of its splits; `MURHO` may be missing.

    Returns:
        `standing` by the CRPS; with Murho and a peer also ``width_ratio``, the mean width of its calibrated 90 % bands
        over the best peer's.
    """
    verdict = standing(runs, "crps")
    best = verdict["best_peer"]
    if best is not None and MURHO in runs:
        widths = {system: _mean(runs[system], "calibrated", "width", WIDTH_OF) for system in (MURHO, best)}
        verdict["width_ratio"] = widths[MURHO] / widths[best]
    return verdict


def render_set(name: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table of a set: one line per system and answer, the lowest CRPS first."""
    verdict = compare(runs)
    rows = []
    for system in sorted(runs, key=verdict["crps"].__getitem__):
        reports = runs[system]
        for kind in kinds_of(reports):
            closed = [report["crps_closed"] for report in reports if report.get("crps_closed") is not None]
            rows.append(
                [
                    title_of(system, PEERS) if kind == kinds_of(reports)[0] else "",
                    kind + (" *" if kind == verdict["answer"][system] else ""),
                    str(len(reports)),
                    with_error(
                        float(np.mean([report[kind]["crps"] for report in reports])), error_of(reports, kind, "crps")
                    ),
                    f"{np.mean(closed):.4g}" if kind == "raw" and closed else "",
                    shown([report["rmse"] for report in reports])
                    if kind == "raw" or len(kinds_of(reports)) == 1
                    else "",
                    *(f"{100.0 * _mean(reports, kind, 'coverage', str(level)):.1f}" for level in COVERAGES),
                    f"{_mean(reports, kind, 'width', WIDTH_OF):.4g}",
                    f"{mean_and_error([report['seconds'] for report in reports])[0]:.0f}",
                ]
            )
    headers = [
        name,
        "answer",
        "splits",
        "CRPS",
        "closed form",
        "RMSE",
        *(f"{level} %" for level in COVERAGES),
    ]
    return table([*headers, f"width of {WIDTH_OF} %", "seconds"], rows)


def render_summary(runs: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The summary: one line per set with the CRPS of every system, the best peer, and Murho's distance to it.

    Args:
        runs: Set → system → reports of its splits.
    """
    systems = [system for system in (MURHO, *PEERS) if any(system in of_set for of_set in runs.values())]
    rows, verdicts = [], []
    for name, of_set in runs.items():
        verdict = compare(of_set)
        verdicts.append(verdict)
        cells = [
            with_error(verdict["crps"][system], verdict["error"][system]) if system in verdict["crps"] else "-"
            for system in systems
        ]
        width = f"{verdict['width_ratio']:.2f}" if "width_ratio" in verdict else "-"
        rows.append([name, *cells, *behind_cells(verdict), width])
    headers = ["CRPS", *systems, "best peer", "Murho behind it", "lowest", "width ratio"]
    lines = [table(headers, rows)]
    compared = [verdict for verdict in verdicts if "behind" in verdict]
    if compared:
        lines.append(
            f"\n{lowest_line(compared, 'CRPS')}; its calibrated {WIDTH_OF} % bands are no wider than the best peer's "
            f"on {sum(verdict['width_ratio'] <= 1.0 for verdict in compared)}."
        )
    return "\n".join(lines)


def _mean(reports: Sequence[Mapping[str, Any]], kind: str, score: str, level: str) -> float:
    return float(np.mean([report[kind][score][level] for report in reports]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=str(__doc__).splitlines()[0])
    add_options(parser, TABULAR)
    add_peer_options(parser, PEERS)
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
        "* the answer that is compared; ± standard error over splits (of one split: over its test rows, another fit or "
        "split left out); CRPS of all from 99 levels\n"
    )
    print(render_summary(runs))
    options.output.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / "tabular.json"
    verdicts = {name: compare(of_set) for name, of_set in runs.items()}
    write_json(path, {"benchmark": "tabular", **facts(), "sources": sources(), "verdicts": verdicts, "runs": runs})
    print(f"\nwrote {path}")
    return 0


def _runs(options: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Set → system → reports of its splits."""
    names = chosen_sets(options.sets, TABULAR)
    runs = reports_of_peers(options, [TABULAR[name] for name in names], PEERS)
    if not options.only_peers:
        jobs = []
        for name in names:
            rows = read_set(TABULAR[name], options.data).num_rows
            for number, split in enumerate(splits(TABULAR[name], rows, options.splits)):
                # The same name as in benchmarks.uci, so that either benchmark uses the other's finished fits.
                jobs.append(Job(f"{name}-{number:02d}-defaults", name, split, {}))
        fits = fit_all(jobs, options.data, options.output / "fits", workers=options.jobs, fresh=options.fresh)
        for name in names:
            of_set = [of_murho(fits[job.name]) for job in jobs if job.dataset == name]
            runs[name] = {MURHO: of_set, **runs[name]}
    return runs


if __name__ == "__main__":
    sys.exit(main())
