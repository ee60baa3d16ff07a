"""`python -m benchmarks.wide --data DIR`: Murho with its defaults on many small everyday tables, beside the best peer.

The folder ``wide`` has tables that a program drew from a public collection, ``targets.json`` and ``classes.json`` with
the target of each, and ``peers.jsonl`` with the scores of other systems on the same split: the first 80 % of a
permutation with seed 0 are for training. The CRPS is twice the pinball loss, averaged over the levels 5, 10, … 95 %,
for all systems. A ratio of 1.1 means that the CRPS is 10 % larger than that of the peer that is best on this table.

Classes, with those of `benchmarks.classification`, have the log loss. Each peer is fitted five times to all training
rows: each time another fifth of them chooses its rounds or penalty, and is predicted by a model that has not learned
from it. Its probabilities are the mean of the five, calibrated by the temperature most likely for the predicted
fifths. A difference of log losses is significant if it is more than twice its standard error over the test
rows, of the pairs of both systems' losses.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from scipy.optimize import minimize_scalar

from benchmarks.classification import class_task
from benchmarks.comparison import known_rows
from benchmarks.comparison import task_of as peer_task
from benchmarks.datasets import CLASSES, DataSet, add_data, read_set, splits
from benchmarks.peers import RESULTS, peers_of
from benchmarks.processes import SystemProcess, add_cache
from benchmarks.results import Kept, Report, command, mean_and_error, table
from benchmarks.runner import Job, Task, add_fits, measure, reports_of, sources
from benchmarks.scores import LEVELS, pinball_crps
from murho.model.calibration.class_calibration import SLOPE_STD
from murho.model.errors import MurhoError
from murho.model.evaluation.class_scores import LEAST_PROBABILITY, row_log_loss
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.peers.tables import Answer
    from murho.model.arrays import Doubles, Ints
    from murho.model.training.train import Trained

SIZES = {"below 300 rows": (0, 300), "300 to 999": (300, 1_000), "1,000 to 3,000": (1_000, 3_001)}
BEHIND = 1.1
"""Ratio from which a table counts as behind."""
LEAST_COVERAGE = 0.85
"""Coverage of 90 % bands below which a table is counted."""
PEER_LEVELS = tuple(float(level) for level in range(5, 100, 5))
"""Levels of the CRPS of ``peers.jsonl``, per cent."""
FIFTHS = 5
CLASSES_BEHIND, SIGNIFICANT = 1.05, 2.0
"""Ratio of log losses from which a table counts as behind, and standard errors from which that is significant."""
FOLDS = 5
CROSS_FIT_UP_TO = 5_000
"""Most training rows of which all fifths are predicted; with more, one fifth is plenty for a temperature."""
CLASS_PEERS = [peer for peer in peers_of("classes").values() if peer.script]
KINDS = ("numbers", "classes")


def sets_of(data: Path, kind: str) -> dict[str, DataSet]:
    """Return tables by name whose targets are ``numbers`` or ``classes``, with `benchmarks.datasets.CLASSES`."""
    read = orjson.loads((data / "wide" / f"{'targets' if kind == 'numbers' else kind}.json").read_bytes())
    source = "the collection vincentarelbundock/Rdatasets"
    sets = {name: DataSet(name, f"wide/{name}.csv", of["n"], of["target"], source) for name, of in read.items()}
    return sets | (CLASSES if kind == "classes" else {})


def task_of(data: Path, dataset: DataSet, kind: str, number: int, options: Mapping[str, Any]) -> Task:
    """Return a table's task: the split of all systems."""
    table, split = read_set(dataset, data), splits(dataset, number + 1)[number]
    if kind == "classes":
        return class_task(table, dataset.target, split, options)
    test = table.take(split.test)

    def also(trained: Trained) -> Report:
        posterior = trained.posterior
        truth, columns = target_from_table(test, dataset.target), columns_from_table(test, posterior.schema)
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

    return Task(table.take(split.training), test, dataset.target, options, also)


def measure_table(data: Path, dataset: DataSet, kind: str, number: int, options: Mapping[str, Any]) -> Report:
    """Train and score a table; ``refused`` is the message of a table that `murho train` refuses."""
    began = time.monotonic()
    try:
        return measure(task_of, data, dataset, kind, number, options)
    except MurhoError as error:
        return {"refused": str(error), "seconds": time.monotonic() - began}


def measure_peers(data: Path, dataset: DataSet, number: int, cache: Path) -> Report:
    """Fit the peers of a table of classes.

    Returns:
        ``rows`` and ``seconds``; ``peers``, the log losses ``raw`` and ``calibrated`` and the ``temperature`` of each;
        ``best``, the peer with the lowest calibrated one; ``losses``, its losses of the test rows.
    """
    table = read_set(dataset, data)
    split = known_rows(table, dataset.target, splits(dataset, number + 1)[number])
    task, truth = peer_task(table, dataset.target, split, number, classes=True)
    folds, peers, losses, seconds = fold_numbers(task.target, number), {}, {}, 0.0
    for peer in CLASS_PEERS:
        with SystemProcess(peer, None, cache=cache) as process:
            replies = [process.ask(replace(task, inner=folds == fold)) for fold in range(folds.max() + 1)]
        seconds += sum(reply["seconds"] for reply in replies)
        answers: list[Answer] = [reply["answer"] for reply in replies]
        unseen = np.vstack([answer.inner for answer in answers])
        labels = np.concatenate([task.target[folds == fold] for fold in range(folds.max() + 1)])
        temperature = best_temperature(unseen, labels)
        raw = np.mean([answer.raw for answer in answers], axis=0)
        losses[peer.name] = row_log_loss(tempered(raw, temperature), truth)
        peers[peer.name] = {
            "raw": float(row_log_loss(raw, truth).mean()),
            "calibrated": float(losses[peer.name].mean()),
            "temperature": temperature,
        }
    best = min(peers, key=lambda name: peers[name]["calibrated"])
    rounded = [float(f"{loss:.4g}") for loss in losses[best]]
    return {"rows": len(truth), "seconds": round(seconds, 1), "peers": peers, "best": best, "losses": rounded}


def fold_numbers(labels: Ints, seed: int) -> Ints:
    """Fold of each training row, ``[N]``, by class: one fifth each; only the first one of many rows, the others -1.

    Rows of a class that has no other row are in no fold, because a peer learns from rows of every class.
    """
    order = np.random.default_rng([seed, len(labels)]).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % FOLDS
    folds[np.bincount(labels)[labels] == 1] = -1
    return folds if len(labels) <= CROSS_FIT_UP_TO else np.where(folds == 0, 0, -1)


def tempered(probabilities: Doubles, temperature: float) -> Doubles:
    """Probabilities ``[N, C]`` with their logarithms divided by a temperature."""
    scores = np.log(np.maximum(probabilities, LEAST_PROBABILITY)) / temperature
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def best_temperature(probabilities: Doubles, labels: Ints) -> float:
    """Return the likeliest temperature, 1/10 to 10, for rows ``[N, C]`` of classes ``[N]``, with Murho's prior.

    Without a prior, rows that are all predicted rightly would make a peer as sure as can be.
    """

    def loss(logarithm: float) -> float:
        losses = row_log_loss(tempered(probabilities, np.exp(logarithm)), labels)
        return float(losses.sum() + 0.5 * (logarithm / SLOPE_STD) ** 2)

    return float(np.exp(minimize_scalar(loss, bounds=(-np.log(10.0), np.log(10.0)), method="bounded").x))


def best_peers(data: Path) -> dict[str, tuple[str, float]]:
    """Table → the peer with the lowest CRPS, and that CRPS."""
    best: dict[str, tuple[str, float]] = {}
    for line in (data / "wide" / "peers.jsonl").read_bytes().splitlines():
        found = orjson.loads(line)
        if found["table"] not in best or found["crps"] < best[found["table"]][1]:
            best[found["table"]] = found["method"], found["crps"]
    return best


def render_numbers(numbers: Mapping[str, Report], best: Mapping[str, tuple[str, float]]) -> str:
    """Return a line for each table of numbers, the worst first, and their summary."""
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
    return "\n".join([table(header, rows), "", *_summary(numbers, ratios)])


def render_classes(reports: Mapping[str, Report], peers: Mapping[str, Report]) -> str:
    """Return a line for each table of classes, the worst first, and their summary.

    Args:
        reports: Table → report of Murho.
        peers: Table → report of `measure_peers`.
    """
    rows, ratios, behind = {}, {}, {}
    for name, found in reports.items():
        ours, theirs = np.array(found["losses"]), np.array(peers[name]["losses"])
        ratios[name], error = ours.mean() / theirs.mean(), mean_and_error(ours - theirs)[1]
        behind[name] = (ours - theirs).mean() > SIGNIFICANT * error
        rows[name] = [
            name,
            str(found["rows"] + found["training_rows"]),
            f"{ours.mean():.4g}",
            f"{found['raw']['log_loss']:.4g}",
            f"{theirs.mean():.4g}",
            peers[name]["best"],
            f"{ratios[name]:.3f} ± {error / theirs.mean():.3f}",
            f"{found['calibrated']['accuracy']:.3f}",
            f"{found['seconds']:.0f}",
        ]
    header = ["table", "rows", "log loss", "raw", "best", "peer", "ratio", "accuracy", "seconds"]
    far = [name for name in ratios if ratios[name] > CLASSES_BEHIND]
    values = np.array(list(ratios.values()))
    return "\n".join(
        [
            table(header, [rows[name] for name in sorted(ratios, key=ratios.__getitem__, reverse=True)]),
            "",
            f"{len(ratios)} tables of classes: log loss {np.exp(np.log(values).mean()):.3f} times the best peer's "
            f"(geometric mean; median {np.median(values):.3f}), best on {(values <= 1.0).sum()}, behind by more than "
            f"5 % on {len(far)}, significantly on {sum(behind[name] for name in far)}",
        ]
    )


def _summary(numbers: Mapping[str, Report], ratios: Mapping[str, float]) -> Sequence[str]:
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
    """Add the options."""
    add_data(parser)
    add_fits(parser)
    parser.add_argument("--only", default="", metavar="TEXT", help="tables whose name has it")
    parser.add_argument("--kind", choices=KINDS, help="of target (default both)")
    parser.add_argument("--split", type=int, default=0, metavar="N", help="of classes: seed of the split (default 0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the fits (default 0)")
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    return {"runs": {kind: _run(options, kind) for kind in ([options.kind] if options.kind else KINDS)}}


def _run(options: argparse.Namespace, kind: str) -> dict[str, Report]:
    number, own = options.split if kind == "classes" else 0, {"budget": options.budget, "seed": options.seed}
    sets = {name: dataset for name, dataset in sets_of(options.data, kind).items() if options.only in name}
    jobs = {
        name: Job(
            f"{name}-{number:02d}", name, measure_table, (options.data, dataset, kind, number, own), [sources(), own]
        )
        for name, dataset in sets.items()
    }
    kept = Kept(options.output / "wide.jsonl")
    found = reports_of(list(jobs.values()), kept, workers=options.jobs, fresh=options.fresh)
    reports = {name: found[job.name] for name, job in jobs.items()}
    fitted = {name: report for name, report in reports.items() if "refused" not in report}
    if fitted and kind == "numbers":
        print(render_numbers(fitted, best_peers(options.data)))
    elif fitted:
        print(render_classes(fitted, _class_peers(options, sets)))
    for name, report in reports.items():
        if "refused" in report:
            print(f"refused: {name}: {report['refused']}")
    return reports


def _class_peers(options: argparse.Namespace, sets: Mapping[str, DataSet]) -> dict[str, Report]:
    """Table → report of `measure_peers`, kept in `RESULTS`."""
    of = [peer.packages for peer in CLASS_PEERS]
    jobs = [
        Job(
            f"wide-{name}-{options.split:02d}",
            name,
            measure_peers,
            (options.data, dataset, options.split, options.cache),
            of,
        )
        for name, dataset in sets.items()
    ]
    found = reports_of(jobs, Kept(RESULTS), workers=1)
    return {job.line: found[job.name] for job in jobs}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
