"""Calibration of a classifier on held-out rows, and the estimate of what will be served, made crosswise.

Only few members, the judges, have not seen a held-out row. Their pooled probabilities stand for those of all members.
More members make pooled probabilities a little better and a little less sure, so the estimate is a little too cautious.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.calibration.classes import ClassCalibration, fit_class_map, fit_prediction_sets
from murho.model.calibration.conformal import POOLED
from murho.model.evaluation.class_metrics import SET_COVERAGES, scores_by_kind, set_scores
from murho.model.evaluation.metrics import RowArrays
from murho.model.evaluation.row_scores import judge_groups, numbers_of
from murho.model.predictive.plans import served_probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.classes import ClassMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.evaluation.metrics import RowWeights
    from murho.model.tables.splits import HeldOut

__all__ = [
    "HeldOutClasses",
    "calibrate_classes",
]

PARTS = 5
"""Parts of the held-out rows of which each is judged by what the others say."""


@dataclass(frozen=True, slots=True)
class HeldOutClasses:
    """Predictions of n rows that the networks behind them have not seen.

    Attributes:
        rows: Number of each row in the table of the training, from 0, ``[n]``.
        targets: Index of the class, ``[n]``, float64.
        raw: Raw probabilities, ``[n, C]``.
        calibrated: Probabilities calibrated without the row, ``[n, C]``; None without calibration.
        sets: Coverage → whether a class is in the row's prediction set, ``[n, C]``; empty without calibration.
        weights: Weights and units of the rows.
    """

    rows: NDArray[np.int64]
    targets: NDArray[np.float64]
    raw: NDArray[np.float64]
    calibrated: NDArray[np.float64] | None
    sets: dict[float, NDArray[np.bool_]]
    weights: RowWeights

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def served(self) -> NDArray[np.float64]:
        """The probabilities that answers give, ``[n, C]``."""
        return self.raw if self.calibrated is None else self.calibrated


def calibrate_classes(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    weights: RowWeights,
    method: str,
    calibrating: Sequence[int],
    earlier: ClassCalibration | None,
) -> tuple[ClassCalibration | None, dict[str, Any], HeldOutClasses]:
    """The calibration of held-out rows, and an estimate of what will be served.

    The scores of each part of the rows are those of a calibration made of the other parts. Without a calibration of
    these rows they are scored with that of the posterior, if it has one.

    Args:
        posterior: The fit.
        encoded: All rows of the table, ``[N, D]``.
        targets: Numbers of their classes, ``[N]``.
        groups: Held-out rows, each with the members that have not seen them.
        weights: Weights and units of the held-out rows, in the order of the groups.
        method: Name of the guarantee that prediction sets have (`model.calibration.conformal`).
        calibrating: Numbers of the groups that calibrate; empty for no calibration.
        earlier: A calibration of other rows, with which these are pooled (`model.calibration.classes`).

    Returns:
        The calibration, or None; the metrics: `model.evaluation.class_metrics.scores_by_kind`, with a calibration also
        ``sets``, likewise in ``calibrated``, ``members``, the number of members that all this describes, and
        ``all_members``; and the predictions for the rows.
    """
    members = posterior.architecture.members
    judged = _judge(posterior, encoded, groups)
    codes = targets[judged.rows]
    labels = torch.from_numpy(codes.astype(np.int64))

    def weights_of(chosen: RowWeights) -> Tensor | None:
        return torch.from_numpy(chosen.shares) if chosen.weighted else None

    def fitted_map(rows: NDArray[np.bool_]) -> ClassMap:
        return fit_class_map(
            torch.from_numpy(judged.raw[rows]).log(),
            labels[rows],
            weights=weights_of(weights.of_rows(rows)),
            earlier=None if earlier is None else earlier.map,
            earlier_rows=0 if earlier is None else earlier.rows,
        )

    def fitted(rows: NDArray[np.bool_], probabilities: Tensor, mapped: ClassMap) -> ClassCalibration:
        chosen = weights.of_rows(rows)
        sets = fit_prediction_sets(
            probabilities[rows],
            labels[rows],
            weights=weights_of(chosen),
            units=chosen.units if chosen.grouped else None,
            method=method if earlier is None else POOLED,
            earlier=None if earlier is None else earlier.sets,
        )
        return ClassCalibration(mapped, sets)

    calibration, served = None, None
    sets = dict[int, "NDArray[np.bool_]"]()
    if len(calibrating):
        parts = judged.groups * PARTS // max(PARTS, int(judged.groups.max()) + 1)
        insides = [parts == number for number in np.unique(parts)]
        crosswise = len(insides) > 1
        served = torch.empty(judged.raw.shape, dtype=torch.float64)
        for inside in insides:
            served[inside] = judged.served(fitted_map(~inside if crosswise else inside))[inside]
        use = np.isin(judged.groups, list(calibrating))
        mapped = fitted_map(use)
        calibration = fitted(use, served if crosswise else judged.served(mapped), mapped)
        sets = {coverage: np.empty(judged.raw.shape, dtype=np.bool_) for coverage in SET_COVERAGES}
        for inside in insides:
            others = fitted(~inside, served, mapped) if crosswise else calibration
            for coverage, found in sets.items():
                found[inside] = others.sets.sets(served[inside], coverage / 100.0).numpy()
    elif posterior.calibration is not None:
        served = judged.served(posterior.calibration.map)
        sets = {
            coverage: posterior.calibration.sets.sets(served, coverage / 100.0).numpy() for coverage in SET_COVERAGES
        }
    raw, calibrated = judged.served(None).numpy(), None if served is None else served.numpy()
    metrics = scores_by_kind(raw, calibrated, labels.numpy(), weights)
    errors = metrics.pop("standard_errors")
    if calibrated is None:
        del metrics["calibrated"]
    else:
        metrics["sets"] = set_scores(sets, labels.numpy(), weights.shares if weights.weighted else None)
        metrics["calibrated"]["sets"] = metrics["sets"]
    judges = min(members if group.members is None else len(group.members) for group in groups)
    metrics |= {"standard_errors": errors, "members": judges, "all_members": members}
    by_share = {coverage / 100.0: found for coverage, found in sets.items()}
    return calibration, metrics, HeldOutClasses(judged.rows, codes, raw, calibrated, by_share, weights)


@dataclass(frozen=True, slots=True)
class _Judged(RowArrays):
    """Raw probabilities of n held-out rows by their judges; ``shares`` are those of the C classes."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    raw: NDArray[np.float64]
    epistemic_share: NDArray[np.float64]
    outside: NDArray[np.bool_]
    shares: Tensor

    def served(self, mapped: ClassMap | None) -> Tensor:
        """The probabilities that answers would give with a map, or raw, ``[n, C]``."""
        raw, outside, share = map(torch.from_numpy, (self.raw, self.outside, self.epistemic_share))
        return served_probabilities(raw, mapped, self.shares, outside, lambda: share)


def _judge(posterior: Posterior, encoded: NDArray[np.float32], groups: Sequence[HeldOut]) -> _Judged:
    def score(drawn: DrawnRows, _: HeldOut, rows: NDArray[np.int64], number: int) -> _Judged:
        predictive = drawn.predictive()
        return _Judged(
            rows=rows,
            groups=np.full(len(rows), number),
            raw=numbers_of(predictive.pooled()),
            epistemic_share=numbers_of(predictive.epistemic_share()),
            outside=numbers_of(drawn.outside.mask),
            shares=predictive.shares.cpu(),
        )

    return judge_groups(posterior, encoded, groups, score, classes=len(posterior.schema.target.classes or ()))
