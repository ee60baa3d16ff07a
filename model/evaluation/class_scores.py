"""Judged rows of classes: accuracy, log loss, Brier score, AUC, calibration errors and prediction sets.

The metrics are functions of probabilities ``[N, C]``, labels ``[N]`` (whole numbers from 0 to C - 1) and the weights of
the rows. The prediction is the likeliest class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from murho.model.arrays import Bools, Doubles, Ints
from murho.model.calibration.class_calibration import ClassCalibration
from murho.model.distributions.class_predictive import ClassPredictive, entropy, share_of_entropy
from murho.model.evaluation.judged_rows import (
    BAND,
    JudgedRows,
    RowWeights,
    equal_parts,
    means,
    scores_by_category,
    scores_of_part,
    standard_errors,
)
from murho.model.evaluation.number_scores import numbers_of
from murho.model.predictive.plans import ClassPlan, DrawnRows
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import Columns, Schema

SET_COVERAGES = (80, 90, 95)
"""Nominal coverage of the reported prediction sets, per cent."""
MOST_CLASSES_OF_A_MATRIX = 100
"""With more classes there is no confusion matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClasses(JudgedRows):
    """Rows of classes, in each kind of answers: ``raw`` and, if there is a calibration, ``calibrated``.

    Attributes:
        probabilities: By kind, ``[n, C]``.
        sets: By kind and nominal coverage, per cent: whether each class is in the row's prediction set, ``[n, C]``.
    """

    probabilities: dict[str, Doubles]
    sets: dict[str, dict[int, Bools]]

    @classmethod
    def of(
        cls,
        drawn: DrawnRows,
        rows: Ints,
        targets: Doubles,
        calibration: ClassCalibration | None,
    ) -> Self:
        """Judge B rows under their draws; takes the arguments of `model.evaluation.number_scores.JudgedNumbers.of`."""
        predictive = cast("ClassPredictive", drawn.predictive())
        kinds = {"raw": None} | ({} if calibration is None else {"calibrated": calibration})
        found = {
            kind: _plan(of_kind, BAND / 100.0, drawn.outputs.device).probabilities(predictive, drawn.only_widen)
            for kind, of_kind in kinds.items()
        }
        served = found.get("calibrated", found["raw"])
        return cls(
            rows=rows,
            targets=targets,
            doubt=numbers_of(share_of_entropy(served, predictive.match_mean(served).expected_entropy)),
            probabilities={kind: numbers_of(probabilities) for kind, probabilities in found.items()},
            sets={kind: prediction_sets(found[kind], of_kind, drawn.only_widen) for kind, of_kind in kinds.items()},
        )

    @property
    def labels(self) -> Ints:
        """Number of the class of each row, ``[n]``."""
        return self.targets.astype(np.int64)

    @property
    def served(self) -> Doubles:
        """The probabilities that answers give, ``[n, C]``."""
        return self.probabilities.get("calibrated", self.probabilities["raw"])

    @property
    def entropy(self) -> Doubles:
        """Entropy of the served probabilities, nats, ``[n]``."""
        return numbers_of(entropy(torch.from_numpy(self.served), dim=1))

    def report(self) -> dict[str, Any]:
        """Return the scores of all rows.

        Returns:
            `class_scores` of what is served, with ``sets`` (`set_scores`); ``raw`` and ``calibrated`` have the same
            without ``n`` and ``standard_errors``; ``constant`` has ``accuracy`` and ``log_loss`` of one answer for
            all rows, the class shares of the other ones.
        """
        labels, rows = self.labels, self.counts
        found = {
            kind: class_scores(probabilities, labels, rows) | {"sets": set_scores(self.sets[kind], labels, rows)}
            for kind, probabilities in self.probabilities.items()
        }
        served = found.get("calibrated", found["raw"])
        kinds = {
            kind: {name: value for name, value in scores.items() if name not in ("n", "standard_errors")}
            for kind, scores in found.items()
        }
        constant = constant_scores(labels, self.served.shape[1], rows)
        return served | {"calibrated": None} | kinds | {"constant": constant}

    def in_full(self, schema: Schema, columns: Columns) -> dict[str, Any]:
        """Return the report with more keys.

        Returns:
            `report` with ``entropy``, its mean in nats, and ``epistemic_share`` of it; ``independent``, as how many
            independent rows of equal weight these count; `accuracy_of_kept`; ``confusion``, weights of the rows by
            class and by predicted class, None with more than 100 classes; ``by_confidence`` (by the probability of the
            likeliest class), ``by_category`` and ``by_class``: in each part the means ``accuracy``, ``confidence``,
            ``log_loss``, and ``coverage`` and ``size`` of the 90 % sets.
            The accuracy of a class is its recall, None without rows; beside it is its ``precision``, the share of its
            own rows in those predicted as it, None if no row is.
        """
        names, labels, served, rows = schema.target.classes or (), self.labels, self.served, self.counts
        sets = self.sets.get("calibrated", self.sets["raw"])
        predictions, entropies = served.argmax(axis=1), self.entropy
        total = float(rows.mean(entropies))
        values = {
            "accuracy": predictions == labels,
            "confidence": served.max(axis=1),
            "log_loss": row_log_loss(served, labels),
            "coverage": sets[BAND][np.arange(len(labels)), labels],
            "size": sets[BAND].sum(axis=1),
        }
        by_class = {}
        for number, name in enumerate(names):
            own, predicted = np.flatnonzero(labels == number), np.flatnonzero(predictions == number)
            precision = scores_of_part({"precision": values["accuracy"]}, predicted, rows) if len(predicted) else {}
            scores = scores_of_part(values, own, rows) if len(own) else {}
            by_class[name] = {"precision": None} | precision | {"rows": len(own), "accuracy": None} | scores
        confusion = np.zeros((len(names), len(names)))
        np.add.at(confusion, (labels, predictions), rows.amounts)
        return self.report() | {
            "independent": rows.independent,
            "entropy": total,
            "epistemic_share": float(rows.mean(self.doubt * entropies)) / total if total > 0.0 else 0.0,
            "accuracy_of_kept": accuracy_of_kept(values["accuracy"], entropies, rows),
            "by_class": by_class,
            "confusion": confusion.tolist() if len(names) <= MOST_CLASSES_OF_A_MATRIX else None,
            "by_confidence": [scores_of_part(values, part, rows) for part in equal_parts(values["confidence"])],
            "by_category": scores_by_category(values, rows, schema, columns),
        }


def _plan(calibration: ClassCalibration | None, coverage: float, device: torch.device) -> ClassPlan:
    return ClassPlan.of(PredictOptions(coverage=coverage), calibration, device, ())


def prediction_sets(probabilities: Tensor, calibration: ClassCalibration | None, outside: Tensor) -> dict[int, Bools]:
    """Prediction sets by nominal coverage, per cent: whether each class is in each row's set, ``[B, C]``.

    Args:
        probabilities: Those of the answer, ``[B, C]``.
        calibration: Makes the sets; None: they are raw.
        outside: Mask of the rows beyond the training rows, ``[B]``.
    """
    return {
        coverage: numbers_of(_plan(calibration, coverage / 100.0, probabilities.device).sets(probabilities, outside))
        for coverage in SET_COVERAGES
    }


def set_scores(sets: Mapping[int, Bools], labels: Ints, rows: RowWeights) -> dict[str, dict[str, float]]:
    """Coverage and mean size of prediction sets.

    Args:
        sets: By nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.
        labels: ``[N]``.
        rows: Weights of the rows.

    Returns:
        ``coverage`` (shares) and ``size`` (numbers of classes), each by nominal coverage: ``{"80": …, "90": …}``.
    """
    every = np.arange(len(labels))
    return {
        "coverage": means({str(coverage): held[every, labels] for coverage, held in sets.items()}, rows),
        "size": means({str(coverage): held.sum(axis=1) for coverage, held in sets.items()}, rows),
    }


def class_scores(probabilities: Doubles, labels: Ints, rows: RowWeights | None = None) -> dict[str, Any]:
    """All metrics of the probabilities.

    Args:
        probabilities: ``[N, C]``.
        labels: ``[N]``.
        rows: Weights and units of the rows; None: all count alike.

    Returns:
        ``n, accuracy, balanced_accuracy`` (the mean recall of the classes that have rows), ``log_loss`` (nats),
        ``brier, auc`` (None where no class has rows both of it and of others), ``ece``, the expected calibration error
        of the likeliest class's probability (Guo et al. 2017), ``classwise_ece``, the mean over classes of that of each
        class's probability (Kull et al. 2019), and ``standard_errors`` of ``accuracy, log_loss, brier`` (None for a
        single unit).
    """
    rows = rows or RowWeights.of(len(labels))
    numbers, right = range(probabilities.shape[1]), probabilities.argmax(axis=1) == labels
    values = {
        "accuracy": right.astype(np.float64),
        "log_loss": row_log_loss(probabilities, labels),
        "brier": row_brier(probabilities, labels),
    }
    weight, found = (np.bincount(labels, rows.shares * of) for of in (1.0, right))
    classwise = [calibration_error(probabilities[:, number], labels == number, rows) for number in numbers]
    return {
        "n": len(labels),
        **means(values, rows),
        "balanced_accuracy": float(np.mean(found[weight > 0.0] / weight[weight > 0.0])),
        "auc": roc_auc(probabilities, labels, rows),
        "ece": calibration_error(probabilities.max(axis=1), right, rows),
        "classwise_ece": float(np.mean(classwise)),
        "standard_errors": standard_errors(values, rows),
    }


def constant_scores(labels: Ints, classes: int, rows: RowWeights) -> dict[str, float]:
    """``accuracy`` and ``log_loss`` (nats) of one answer for all rows.

    For each row it is the class shares of the others, as if there were one more row of each class.

    Args:
        labels: ``[N]``.
        classes: C.
        rows: Weights and units of the rows.
    """
    shares, count = np.bincount(labels, rows.shares, classes), rows.independent
    present = shares[shares > 0.0]
    losses = -np.log(np.minimum(count * present / (count - 1.0 + classes), 1.0))
    return {"accuracy": float(shares.max()), "log_loss": float((present * losses).sum())}


LEAST_PROBABILITY = float(np.finfo(np.float64).eps)
"""Probabilities of the true class below it count as it, as in scikit-learn: no log loss is infinite."""


def row_log_loss(probabilities: Doubles, labels: Ints) -> Doubles:
    """Log loss of each row, ``-log p`` of its own class, ``[N]``, nats."""
    own = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(own, LEAST_PROBABILITY))


def row_brier(probabilities: Doubles, labels: Ints) -> Doubles:
    """Brier score of each row, ``[N]``.

    It is ``sum over c of (p_c - [c is the row's class])^2`` (Brier 1950), from 0 to 2. With two classes it is half of
    that, the squared error of one probability, from 0 to 1: as scikit-learn has it.
    """
    classes = probabilities.shape[1]
    squares: Doubles = np.square(probabilities - np.eye(classes)[labels]).sum(axis=1)
    return squares / 2.0 if classes == 2 else squares


BINS = 15
"""Bins of equal width from 0 to 1; a bin holds its upper end."""


def calibration_error(stated: Doubles, happened: Bools, rows: RowWeights) -> float:
    """Mean over rows of the distance of stated probability and observed share in their bin.

    Args:
        stated: Probabilities, ``[N]``.
        happened: Whether it came true, ``[N]``.
        rows: Weights of the rows.
    """
    bins = np.searchsorted(np.linspace(0.0, 1.0, BINS + 1)[1:-1], stated, side="left")
    return float(np.abs(np.bincount(bins, rows.shares * (stated - happened))).sum())


def roc_auc(probabilities: Doubles, labels: Ints, rows: RowWeights) -> float | None:
    """Area under the ROC curve: of two rows of different classes, how often the right one has the higher probability.

    With two classes it is that of the second one's probability. With more it is the mean over classes of each against
    all others, without regard to their size (``multi_class="ovr", average="macro"`` of scikit-learn), over the classes
    that have rows; None if there is none with rows both of it and of others. Ties count half.
    """
    areas = []
    for number in range(probabilities.shape[1]) if probabilities.shape[1] > 2 else [1]:
        place = np.unique(probabilities[:, number], return_inverse=True)[1]
        own, others = (np.bincount(place, rows.shares * chosen) for chosen in (labels == number, labels != number))
        pairs = own.sum() * others.sum()
        if pairs > 0.0:
            areas.append(own @ (others.cumsum() - 0.5 * others) / pairs)
    return float(np.mean(areas)) if areas else None


SHARES_KEPT = (50, 80, 90, 95, 100)
"""Shares of the rows that are kept, per cent."""


def accuracy_of_kept(correct: Bools, uncertainty: Doubles, rows: RowWeights) -> dict[str, float]:
    """Accuracy of the rows of least uncertainty (Geifman & El-Yaniv 2017, "Selective classification").

    Among rows of equal uncertainty those that are kept are drawn by lot: the result is the expectation.

    Args:
        correct: Whether each row's prediction is right, ``[N]``.
        uncertainty: ``[N]``, such as the entropy of its probabilities.
        rows: Weights of the rows.

    Returns:
        By share of the weight in `SHARES_KEPT`: ``{"50": …, "80": …}``.
    """
    place = np.unique(uncertainty, return_inverse=True)[1]
    known, right = (np.append(0.0, np.bincount(place, rows.shares * of).cumsum()) for of in (1.0, correct))
    return {str(share): float(np.interp(share / 100.0, known, right)) * 100.0 / share for share in SHARES_KEPT}
