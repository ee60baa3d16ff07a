"""Tasks of classes for peers, and the scores of class probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peer_runs import INNER_SHARE, features_of, start
from benchmarks.peers import CALIBRATOR
from benchmarks.peers.class_task import Calibrated, ClassAnswer, ClassTask, ToCalibrate
from murho.model.evaluation.classes import class_scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path
    from typing import Self

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.datasets import DataSet, Split
    from benchmarks.peers import Peer
    from benchmarks.peers.table_task import Features
    from benchmarks.processes import SystemProcess

__all__ = ["ClassTrials", "LabelledSplit", "inner_rows_of_classes", "labelled", "scores_of"]

SCORES = ("log_loss", "brier", "ece", "classwise_ece", "auc", "accuracy")
WITH_ERRORS = ("log_loss", "brier")


@dataclass(frozen=True, slots=True)
class LabelledSplit:
    """A split, and the classes of its rows.

    Attributes:
        training: Row numbers, ``[N]``.
        labels: Class of each training row, from 0, ``[N]``.
        test: Row numbers, ``[B]``: without rows of a class that no training row has, which no system can name.
        truth: Class of each test row, ``[B]``.
        classes: Names of the C classes of the training rows, sorted.
    """

    training: NDArray[np.int64]
    labels: NDArray[np.int64]
    test: NDArray[np.int64]
    truth: NDArray[np.int64]
    classes: tuple[str, ...]


def labelled(table: pa.Table, dataset: DataSet, split: Split) -> LabelledSplit:
    """The rows of a split with their classes."""
    texts = np.array([str(cell) for cell in table[dataset.target].to_pylist()])
    classes, labels = np.unique(texts[split.training], return_inverse=True)
    test = split.test[np.isin(texts[split.test], classes)]
    truth = np.searchsorted(classes, texts[test])
    return LabelledSplit(split.training, labels.reshape(-1), test, truth, tuple(classes.tolist()))


def inner_rows_of_classes(labels: NDArray[np.int64], split: int) -> NDArray[np.bool_]:
    """Mask of the training rows that are held back, ``[N]``: 15 % of them, the same for every peer.

    One row of each class is never held back.
    """
    order = np.random.default_rng([split, len(labels)]).permutation(len(labels))
    first = np.unique(labels[order], return_index=True)[1]
    held_back = np.zeros(len(labels), dtype=bool)
    held_back[np.delete(order, first)[: round(INNER_SHARE * len(labels))]] = True
    return held_back


def scores_of(probabilities: NDArray[np.float64], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Scores of class probabilities ``[B, C]``, with ``log_loss_error`` and ``brier_error``."""
    scores = class_scores(probabilities, truth)
    errors = {f"{name}_error": scores["standard_errors"][name] for name in WITH_ERRORS}
    return {name: scores[name] for name in SCORES} | errors


@dataclass(slots=True)
class ClassTrials:
    """Classes, predicted by probabilities; see `benchmarks.peer_runs.Trials`.

    Attributes:
        features: Of all rows of the table.
        splits: All splits.
        calibrator: The process that calibrates, once it runs.
    """

    features: Features
    splits: Sequence[LabelledSplit]
    calibrator: SystemProcess | None = field(default=None, init=False)

    @classmethod
    def of(cls, table: pa.Table, dataset: DataSet, splits: Sequence[Split]) -> Self:
        """The tasks of a table."""
        return cls(features_of(table, dataset.target), [labelled(table, dataset, split) for split in splits])

    def open(self, peer: Peer, cache: Path, stack: ExitStack) -> None:
        """Starts the calibrator."""
        name = f"the calibration of {peer.name}"
        self.calibrator = stack.enter_context(start(CALIBRATOR, name, cache))

    def task(self, number: int) -> str:
        """The task of a split, packed."""
        split = self.splits[number]
        return ClassTask(
            training=self.features.take(split.training),
            labels=split.labels,
            inner=inner_rows_of_classes(split.labels, number),
            test=self.features.take(split.test),
            seed=number,
        ).packed()

    def scores(self, number: int, answer: str) -> dict[str, Any]:
        """``rows, raw, calibrated, rounds``, the middle two those of `scores_of`."""
        if self.calibrator is None:
            raise AssertionError("opened first")
        split, given = self.splits[number], ClassAnswer.unpacked(answer)
        labels = split.labels[inner_rows_of_classes(split.labels, number)]
        reply = self.calibrator.ask({"task": ToCalibrate(given.inner, labels, given.base).packed()})
        calibrated = Calibrated.unpacked(reply["answer"]).probabilities
        return {
            "rows": len(split.test),
            "raw": scores_of(given.raw, split.truth),
            "calibrated": scores_of(calibrated, split.truth),
            "rounds": given.rounds,
        }

    def line(self, run: Mapping[str, Any]) -> str:
        """Log losses."""
        return f"log loss raw {run['raw']['log_loss']:.4f} calibrated {run['calibrated']['log_loss']:.4f}"
