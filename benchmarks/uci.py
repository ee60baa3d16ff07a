"""`python -m benchmarks.uci --data DIR`: accuracy on the standard UCI splits, beside published results.

Every split is trained from its training rows alone and scored on its test rows. Log-likelihood, RMSE and CRPS are of
the raw predictive, a mixture over draws; coverage is given raw and calibrated. ± is the standard error over splits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command_line import add_options, mean_and_error, positive, shown
from benchmarks.datasets import SETS, UCI, chosen_sets, read_set, splits
from benchmarks.fits import Job, fit_all, sources
from benchmarks.published import LOG_LIKELIHOOD, NOT_COMPARABLE, RMSE, SOURCES
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.datasets import DataSet

__all__ = ["jobs_of", "main", "network_options", "render"]

NETWORKS = ("defaults", "protocol")


def network_options(network: str, dataset: DataSet, members: int | None = None) -> dict[str, Any]:
    """Options of a fit: none for ``defaults``; for ``protocol`` those of the standard protocol's network."""
    options: dict[str, Any] = {} if members is None else {"members": members}
    if network == "defaults":
        return options
    return {"hidden": [dataset.hidden], "activation": "relu", "skip": False} | options


def jobs_of(
    names: Sequence[str], network: str, count: int | None, rows: Mapping[str, int], members: int | None = None
) -> list[Job]:
    """One job per split.

    Args:
        names: Names of the sets.
        network: One of `NETWORKS`.
        count: Splits per set, or None for all of the protocol.
        rows: Set → rows of its table.
        members: M, or None for Murho's default.
    """
    jobs = []
    title = network if members is None else f"{network}-{members}"
    for name in names:
        dataset = SETS[name]
        for number, split in enumerate(splits(dataset, rows[name], count or dataset.most_splits)):
            options = network_options(network, dataset, members)
            jobs.append(Job(f"{name}-{number:02d}-{title}", name, split, options))
    return jobs


def render(names: Sequence[str], runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The tables: accuracy beside published results, then coverage.

    Args:
        names: Sets, in order.
        runs: Set → reports of its splits.
    """
    accuracy, coverage, used = [], [], set()
    for name in names:
        reports = runs[name]
        rows = {
            "log-likelihood": ([-report["nll"] for report in reports], LOG_LIKELIHOOD),
            "RMSE": ([report["rmse"] for report in reports], RMSE),
        }
        for score, (values, published) in rows.items():
            known = [published[kind].get(name) for kind in ("mean-field", "network")]
            used |= {row.source for row in known if row is not None}
            cells = ["-" if row is None else row.shown() for row in known]
            mark = " (!)" if published is LOG_LIKELIHOOD and name in NOT_COMPARABLE else ""
            accuracy.append([name, score + mark, str(len(reports)), shown(values), *cells])
        for score in ("crps", "seconds"):
            values = [report[score] for report in reports]
            title = "CRPS" if score == "crps" else score
            accuracy.append([name, title, str(len(reports)), shown(values), "-", "-"])
        for kind in ("raw", "calibrated"):
            judged = [report[kind] for report in reports if report[kind] is not None]
            if judged:
                cells = [
                    f"{100.0 * mean_and_error([one['coverage'][level] for one in judged])[0]:.1f}"
                    for level in judged[0]["coverage"]
                ]
                widths = [one["width"]["90"] for one in judged]
                coverage.append([name, kind, *cells, shown(widths)])
    head = ["set", "score", "splits", "Murho", "best mean-field published", "best network published"]
    head_of_coverage = ["set", "bands", "50 %", "80 %", "90 %", "95 %", "width of 90 %"]
    sources_used = [f"{key}: {SOURCES[key]}" for key in SOURCES if key in used]
    warned = [f"(!) {NOT_COMPARABLE[name]}" for name in names if name in NOT_COMPARABLE]
    return "\n".join([table(head, accuracy), "", table(head_of_coverage, coverage), "", *warned, *sources_used])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uci", description=str(__doc__).splitlines()[0])
    add_options(parser, UCI)
    parser.add_argument("--splits", type=positive, metavar="N", help="the first N splits (default 20; protein 5)")
    parser.add_argument(
        "--network",
        choices=NETWORKS,
        default="defaults",
        help="defaults, or one hidden layer of 50 ReLU units",
    )
    parser.add_argument(
        "--members",
        type=positive,
        metavar="M",
        help="networks in a fit (default: as murho train)",
    )
    options = parser.parse_args(arguments)
    try:
        names = chosen_sets(options.sets, UCI)
        rows = {name: read_set(SETS[name], options.data).num_rows for name in names}
        jobs = jobs_of(names, options.network, options.splits, rows, options.members)
        reports = fit_all(jobs, options.data, options.output / "fits", workers=options.jobs, fresh=options.fresh)
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    runs = {name: [reports[job.name] for job in jobs if job.dataset == name] for name in names}
    network = options.network if options.members is None else f"{options.network}-{options.members}"
    print(f"network: {network}; Murho is the raw predictive, ± standard error over splits\n")
    print(render(names, runs))
    path = Path(options.output) / f"uci-{network}.json"
    write_json(
        path,
        {"benchmark": "uci", "network": network, **facts(), "sources": sources(), "runs": runs},
    )
    print(f"\nwrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
