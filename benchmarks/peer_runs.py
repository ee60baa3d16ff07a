"""Peers on splits of tables: their tasks, and the scores of their answers.

All peers hold back the same 15 % of the training rows, for early stopping and for the conformal correction of numbers
or the calibration of classes, Beta calibration for two and matrix scaling for more (`probmetrics`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from benchmarks.datasets import SETS, Split, read_set
from benchmarks.peers import CALIBRATOR, PEERS, Peer
from benchmarks.peers.tables import Answer, Features, Predictive, TableTask
from benchmarks.processes import SystemProcess, add_cache
from benchmarks.runner import Job
from benchmarks.scores import (
    LEVELS,
    class_report,
    conformal_quantiles,
    crps_of_normals,
    normal_quantiles,
    quantile_scores,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.results import Report

__all__ = [
    "add_cache",
    "features_of",
    "inner_rows",
    "known_rows",
    "measure_peer",
    "number_scores",
    "peer_job",
    "task_of",
]

INNER_SHARE = 0.15


def peer_job(
    name: str, split_name: str, data: Path, dataset: str, split: Split, cache: Path, seed: int = 0
) -> Job | None:
    """The measurement of a peer on a split; None for a peer without a script or with more rows than it takes."""
    peer = next(peer for peer in PEERS if peer.name == name)
    if not peer.script or (peer.most_rows is not None and len(split.training) > peer.most_rows):
        return None
    arguments = (peer, data, dataset, split, cache, seed)
    return Job(f"{name}-{split_name}", name, measure_peer, arguments, peer.requirements)


def measure_peer(peer: Peer, data: Path, dataset: str, split: Split, cache: Path, seed: int) -> Report:
    """Fits a peer to a split's training rows and scores its test rows; ``seed`` is the number of the split."""
    table, target = read_set(SETS[dataset], data), SETS[dataset].target
    classes = peer.benchmark == "classes"
    if classes:
        split = known_rows(table, target, split)
    task, truth = task_of(table, target, split, seed, classes=classes)
    with SystemProcess(peer, None, cache=cache) as process:
        reply = process.ask(task)
    answer: Answer = reply["answer"]
    report: Report = {"rows": len(truth), "seconds": round(reply["seconds"], 2), "rounds": answer.rounds}
    if not classes:
        return report | number_scores(answer, task.target[task.inner], truth)
    with SystemProcess(CALIBRATOR, None, cache=cache) as process:
        calibrated = process.ask((answer.inner, task.target[task.inner], answer.base))["answer"]
    return report | {"raw": class_report(answer.raw, truth), "calibrated": class_report(calibrated, truth)}


def known_rows(table: pa.Table, target: str, split: Split) -> Split:
    """The split without test rows of a class that no training row has, which no system can name."""
    known = pc.unique(table[target].take(split.training))
    return Split(split.training, split.test[np.asarray(pc.is_in(table[target].take(split.test), value_set=known))])


def task_of(
    table: pa.Table, target: str, split: Split, seed: int, *, classes: bool = False
) -> tuple[TableTask, NDArray[Any]]:
    """The task of a split, and the targets of its test rows: numbers, or numbers of classes."""
    cells = np.array([str(cell) for cell in table[target].to_pylist()])
    values: NDArray[Any] = np.unique(cells[split.training], return_inverse=True)[1] if classes else cells.astype(float)
    truth: NDArray[Any]
    if classes:
        training, truth = values.reshape(-1), np.searchsorted(np.unique(cells[split.training]), cells[split.test])
    else:
        training, truth = values[split.training], values[split.test]
    features, levels = features_of(table, target), np.array(LEVELS) / 100.0
    inner = inner_rows(training if classes else np.zeros(0, dtype=np.int64), len(training), seed)
    return TableTask(features.take(split.training), training, inner, features.take(split.test), levels, seed), truth


def features_of(table: pa.Table, target: str) -> Features:
    """Features for peers: a column of numbers and missing cells is numeric, any other is categorical.

    Args:
        table: Text columns, as `model.tables.files.read_table` reads a CSV file.
        target: Name of the target column.
    """
    numbers, codes = [], []
    for name in table.column_names:
        if name == target:
            continue
        cells = table[name].to_pylist()
        try:
            numbers.append([np.nan if cell in (None, "") else float(cell) for cell in cells])
        except ValueError:
            known = {cell: code for code, cell in enumerate(sorted({cell for cell in cells if cell}))}
            codes.append([known.get(cell, -1) for cell in cells])
    rows = table.num_rows
    return Features(
        np.array(numbers, dtype=np.float64).reshape(len(numbers), rows).T,
        np.array(codes, dtype=np.int64).reshape(len(codes), rows).T,
    )


def inner_rows(labels: NDArray[np.int64], rows: int, split: int) -> NDArray[np.bool_]:
    """Mask of the training rows that are held back, ``[N]``: 15 % of them, the same for every peer.

    One row of each class is never held back; without classes, labels are empty.
    """
    order = np.random.default_rng([split, rows]).permutation(rows)
    first: Any = np.unique(labels[order], return_index=True)[1] if len(labels) else []
    held_back = np.zeros(rows, dtype=bool)
    held_back[np.delete(order, first)[: round(INNER_SHARE * rows)]] = True
    return held_back


def number_scores(answer: Answer, inner_truth: NDArray[np.float64], truth: NDArray[np.float64]) -> Report:
    """Scores of an answer of numbers.

    Returns:
        ``rmse``; ``raw`` and ``calibrated``, each the scores of `quantile_scores`, ``raw`` None for a peer without a
        distribution of its own; ``crps_closed`` for Normals.
    """
    raw: Predictive | None = answer.raw
    base, held_back = answer.base, answer.inner
    if base.std is not None:
        errors = (inner_truth - held_back.mean) / held_back.std
        repeated = np.repeat(errors[:, None], len(LEVELS), axis=1)
        corrected = conformal_quantiles(repeated, base.mean[:, None], base.std[:, None])
    else:
        corrected = conformal_quantiles(inner_truth[:, None] - held_back.quantiles, base.quantiles)
    mean = base.mean if raw is None else raw.mean
    report: Report = {
        "rmse": float(np.sqrt(np.mean((truth - mean) ** 2))),
        "raw": None,
        "calibrated": quantile_scores(corrected, truth),
    }
    if raw is not None and raw.quantiles is not None:
        report["raw"] = quantile_scores(raw.quantiles, truth)
    elif raw is not None and raw.std is not None:
        report["raw"] = quantile_scores(normal_quantiles(raw.mean, raw.std), truth)
        report["crps_closed"] = crps_of_normals(raw.mean, raw.std, truth)
    return report
