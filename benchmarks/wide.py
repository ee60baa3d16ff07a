"""`python -m benchmarks.wide --data DIR`: Murho with its defaults on many small everyday tables, beside the best peer.

The folder ``wide`` has tables that a program drew from a public collection, ``targets.json`` and ``classes.json`` with
the target of each, and ``peers.jsonl`` with the scores of other systems on the same split: the first 80 % of a
permutation with seed 0 are for training. The CRPS is twice the pinball loss, averaged over the levels 5, 10, … 95 %,
for all systems. A ratio of 1.1 means that the CRPS is 10 % larger than that of the peer that is best on this table.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from benchmarks.datasets import add_data
from benchmarks.results import Kept, Report, command, table
from benchmarks.runner import Job, Task, add_fits, measure, reports_of, sources
from benchmarks.scores import LEVELS, pinball_crps
from murho.model.errors import MurhoError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.files import read_table
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from murho.model.training.train import Trained

SIZES = {"below 300 rows": (0, 300), "300 to 999": (300, 1_000), "1,000 to 3,000": (1_000, 3_001)}
BEHIND = 1.1
"""Ratio from which a table counts as behind."""
LEAST_COVERAGE = 0.85
"""Coverage of 90 % bands below which a table is counted."""
PEER_LEVELS = tuple(float(level) for level in range(5, 100, 5))
"""Levels of the CRPS of ``peers.jsonl``, per cent."""
FIFTHS = 5


def targets_of(data: Path) -> dict[str, str]:
    """Name of each table → its target, numbers first."""
    read = [orjson.loads((data / "wide" / f"{kind}.json").read_bytes()) for kind in ("targets", "classes")]
    return {name: about["target"] for tables in read for name, about in tables.items()}


def task_of(data: Path, name: str, target: str, options: Mapping[str, Any]) -> Task:
    """A table's task: the split of all systems."""
    read = read_table(data / "wide" / f"{name}.csv")
    order = np.random.default_rng(0).permutation(read.num_rows)
    training = int(0.8 * read.num_rows)
    test = read.take(order[training:])

    def also(trained: Trained) -> Report:
        posterior = trained.posterior
        if posterior.schema.target.classes:
            return {}
        truth, columns = target_from_table(test, target), columns_from_table(test, posterior.schema)
        answer = posterior.predict(columns, PredictOptions(percentiles=LEVELS))
        quantiles = np.asarray(answer.percentiles)
        inside = (quantiles[:, LEVELS.index(5.0)] <= truth) & (truth <= quantiles[:, LEVELS.index(95.0)])
        fifths = np.array_split(inside[np.argsort(answer.mean, kind="stable")], FIFTHS)
        levels = [LEVELS.index(level) for level in PEER_LEVELS]
        return {
            "crps": float(pinball_crps(quantiles[:, levels], PEER_LEVELS, truth).mean()),
            "fifths": [float(fifth.mean()) for fifth in fifths],
            "chosen": str(trained.evidence.chosen.candidate),
        }

    return Task(read.take(order[:training]), test, target, options, also)


def measure_table(data: Path, name: str, target: str, options: Mapping[str, Any]) -> Report:
    """Trains and scores a table; ``refused`` is the message of a table that `murho train` refuses."""
    began = time.monotonic()
    try:
        return measure(task_of, data, name, target, options)
    except MurhoError as error:
        return {"refused": str(error), "seconds": time.monotonic() - began}


def best_peers(data: Path) -> dict[str, tuple[str, float]]:
    """Table → the peer with the lowest CRPS, and that CRPS."""
    best: dict[str, tuple[str, float]] = {}
    for line in (data / "wide" / "peers.jsonl").read_bytes().splitlines():
        found = orjson.loads(line)
        if found["table"] not in best or found["crps"] < best[found["table"]][1]:
            best[found["table"]] = found["method"], found["crps"]
    return best


def render(reports: Mapping[str, Report], best: Mapping[str, tuple[str, float]]) -> str:
    """A line for each table of numbers, the worst first, then the log losses of classes, then what was refused."""
    numbers = {name: found for name, found in reports.items() if "fifths" in found}
    ratios = {name: found["crps"] / best[name][1] for name, found in numbers.items()}
    rows = [
        [
            name,
            str(numbers[name]["rows"] + numbers[name]["training_rows"]),
            f"{numbers[name]['crps']:.4g}",
            f"{best[name][1]:.4g}",
            best[name][0],
            f"{ratios[name]:.2f}",
            *(f"{100.0 * numbers[name]['calibrated']['coverage'][level]:.0f}" for level in ("50", "90")),
            f"{100.0 * min(numbers[name]['fifths']):.0f}",
            f"{numbers[name]['seconds']:.0f}",
        ]
        for name in sorted(ratios, key=ratios.__getitem__, reverse=True)
    ]
    header = ["table", "rows", "CRPS", "best", "peer", "ratio", "50 %", "90 %", "lowest fifth", "seconds"]
    said = [table(header, rows), "", *_summary(numbers, ratios)]
    classes = {name: found for name, found in reports.items() if "fifths" not in found and "refused" not in found}
    if classes:
        cells = [[name, *_class_cells(found)] for name, found in classes.items()]
        said += ["", table(["table", "rows", "log loss", "raw", "accuracy", "seconds"], cells)]
    return "\n".join(
        said + [f"refused: {name}: {found['refused']}" for name, found in reports.items() if "refused" in found]
    )


def _class_cells(found: Report) -> list[str]:
    calibrated = found["calibrated"]
    rows = found["rows"] + found["training_rows"]
    scores = (calibrated["log_loss"], found["raw"]["log_loss"], calibrated["accuracy"])
    return [str(rows), *(f"{score:.4f}" for score in scores), f"{found['seconds']:.0f}"]


def _summary(numbers: Mapping[str, Report], ratios: Mapping[str, float]) -> Sequence[str]:
    if not ratios:
        return []
    lines = []
    for title, (fewest, most) in SIZES.items():
        size = {name: found["rows"] + found["training_rows"] for name, found in numbers.items()}
        of_size = np.array([ratios[name] for name in ratios if fewest <= size[name] < most])
        if len(of_size):
            lines.append(
                f"{title}: {len(of_size)} tables, CRPS {np.exp(np.log(of_size).mean()):.3f} times the best peer's "
                f"(geometric mean), best on {(of_size <= 1.0).sum()}, behind by more than 10 % on "
                f"{(of_size > BEHIND).sum()}"
            )
    covered = {level: [found["calibrated"]["coverage"][level] for found in numbers.values()] for level in ("50", "90")}
    below = (np.array(covered["90"]) < LEAST_COVERAGE).sum()
    seconds = np.exp(np.mean([np.log(found["seconds"]) for found in numbers.values()]))
    return [
        *lines,
        f"all {len(ratios)} tables: {np.exp(np.log(list(ratios.values())).mean()):.3f}; 50 and 90 % bands cover "
        f"{100.0 * np.mean(covered['50']):.1f} and {100.0 * np.mean(covered['90']):.1f} %, 90 % bands below 85 % on "
        f"{below}; {seconds:.1f} s a fit (geometric mean)",
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_data(parser)
    add_fits(parser)
    parser.add_argument("--only", default="", metavar="TEXT", help="tables whose name has it")
    parser.add_argument("--kind", choices=("numbers", "classes"), help="of target (default both)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the fits (default 0)")


def run(options: argparse.Namespace) -> Report:
    """Fits and prints."""
    best, own = best_peers(options.data), {"budget": options.budget, "seed": options.seed}
    jobs = [
        Job(name, name, measure_table, (options.data, name, target, own), [sources(), own])
        for name, target in targets_of(options.data).items()
        if options.only in name and (options.kind is None or (name in best) == (options.kind == "numbers"))
    ]
    kept = Kept(options.output / "wide.jsonl")
    reports = reports_of(jobs, kept, workers=options.jobs, fresh=options.fresh)
    print(render(reports, best))
    return {"runs": reports}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
