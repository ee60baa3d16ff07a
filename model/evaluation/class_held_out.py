"""Calibration of a classifier on held-out rows, and the estimate of what will be served, made crosswise.

Only few members, the judges, have not seen a held-out row. Their pooled probabilities stand for those of all members.
More members make pooled probabilities a little better and a little less sure, so the estimate is a little too cautious.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.calibration.class_map import fit_class_map
from murho.model.calibration.classes import ClassCalibration, pooled_map, pooled_sets
from murho.model.calibration.conformal import CROSS, SPLIT
from murho.model.calibration.prediction_sets import fit_prediction_sets
from murho.model.evaluation.class_metrics import class_scores, set_scores
from murho.model.evaluation.cross_calibration import SAMPLES, Calibrated
from murho.model.evaluation.metrics import RowWeights
from murho.model.predictive.plans import served_probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.class_map import ClassMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.tables.splits import HeldOut

__all__ = [
    "HeldOutClasses",
    "calibrate_classes",
]

ROWS_PER_CHUNK = 256
COVERAGES = (0.8, 0.9, 0.95)
"""Coverages of the prediction sets that are scored."""
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
        epistemic_share: Share of the mutual information in the raw entropy, ``[n]``.
        outside: Whether the row lies beyond the training rows, ``[n]``, bool.
        sets: Coverage → whether a class is in the row's prediction set, ``[n, C]``; empty without calibration.
        weights: Weights and units of the rows.
    """

    rows: NDArray[np.int64]
    targets: NDArray[np.float64]
    raw: NDArray[np.float64]
    calibrated: NDArray[np.float64] | None
    epistemic_share: NDArray[np.float64]
    outside: NDArray[np.bool_]
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
    *,
    calibrating: Sequence[int],
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.generic] | None = None,
    earlier: ClassCalibration | None = None,
    kept: ClassCalibration | None = None,
    **_: Any,
) -> Calibrated:
    """The calibration of held-out rows, and an estimate of what will be served.

    The scores of each part of the rows are those of a calibration made of the other parts, so none is fitted to the
    rows that it is scored on.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Index of their classes, ``[N]``.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that calibrate; empty for no calibration.
        weights: Relative weights of all rows, ``[N]``; None: all count alike.
        units: Id of each row's exchangeable unit, ``[N]``; None: each row is one.
        earlier: A calibration of other rows, with which these are pooled (`model.calibration.classes`); None:
            there is none.
        kept: The calibration that answers use, for the scores, where these rows do not calibrate; None: there is none.
        _: Options that only numbers have.

    Returns:
        The calibration, or None, the predictions for the rows, and the metrics: those of
        `model.evaluation.class_metrics.class_scores` of what is served, the same of ``raw`` and, with a calibration, of
        ``calibrated``, which has ``sets`` too. ``members`` is the number of members that all this describes, of
        ``all_members``.
    """
    judged = _judge(posterior, encoded, groups)
    every = RowWeights.of(
        len(judged.rows),
        None if weights is None else weights[judged.rows],
        None if units is None else units[judged.rows],
    )
    ids = None if units is None else units[judged.rows]
    codes = targets[judged.rows]
    labels = torch.from_numpy(codes.astype(np.int64))
    shares = None if weights is None else torch.from_numpy(weights[judged.rows])
    method = SPLIT if all(group.members is None for group in groups) else CROSS
    use = np.isin(judged.groups, list(calibrating))

    def fitted_map(rows: NDArray[np.bool_]) -> ClassMap:
        if earlier is not None:
            part = None if shares is None else shares[rows]
            return pooled_map(earlier.map, judged.raw[rows].log(), labels[rows], weights=part)
        return fit_class_map(
            judged.raw[rows].log(),
            labels[rows],
            weights=None if shares is None else shares[rows],
            units=None if ids is None else ids[rows],
        )

    def fitted_calibration(rows: NDArray[np.bool_], probabilities: Tensor, mapped: ClassMap) -> ClassCalibration:
        of_rows: dict[str, Any] = {
            "weights": None if shares is None else shares[rows],
            "units": None if ids is None else ids[rows],
        }
        given = probabilities[rows], labels[rows]
        if earlier is not None:
            return ClassCalibration(mapped, pooled_sets(earlier.sets, *given, **of_rows))
        return ClassCalibration(mapped, fit_prediction_sets(*given, **of_rows, method=method))

    raw = judged.served(None)
    calibration, crosswise, sets = None, None, dict[float, "NDArray[np.bool_]"]()
    if len(calibrating):
        parts = judged.groups * PARTS // max(PARTS, int(judged.groups.max()) + 1)
        numbers = np.unique(parts)
        crosswise = raw.clone()
        for number in numbers:
            inside = parts == number
            others = ~inside if len(numbers) > 1 else inside
            crosswise[inside] = judged.served(fitted_map(others))[inside]
        mapped = fitted_map(use)
        calibration = fitted_calibration(use, crosswise if len(numbers) > 1 else judged.served(mapped), mapped)
        sets = _crosswise_sets(parts, crosswise, fitted_calibration, calibration)
    elif kept is not None:
        crosswise = judged.served(kept.map)
        sets = {coverage: kept.sets.sets(crosswise, coverage).numpy() for coverage in COVERAGES}
    held_out = HeldOutClasses(
        rows=judged.rows,
        targets=codes,
        raw=raw.numpy(),
        calibrated=None if crosswise is None else crosswise.numpy(),
        epistemic_share=judged.epistemic_share.numpy(),
        outside=judged.outside.numpy(),
        sets=sets,
        weights=every,
    )
    return Calibrated(calibration, _metrics(held_out, judged, posterior), held_out)


def _crosswise_sets(
    parts: NDArray[np.int64], probabilities: Tensor, fitted: Any, calibration: ClassCalibration
) -> dict[float, NDArray[np.bool_]]:
    """Prediction sets of the rows by what the other parts say, by coverage."""
    sets = {coverage: np.empty(probabilities.shape, dtype=np.bool_) for coverage in COVERAGES}
    numbers = np.unique(parts)
    for number in numbers:
        inside = parts == number
        others = fitted(~inside, probabilities, calibration.map) if len(numbers) > 1 else calibration
        for coverage, found in sets.items():
            found[inside] = others.sets.sets(probabilities[inside], coverage).numpy()
    return sets


def _metrics(held_out: HeldOutClasses, judged: _Judged, posterior: Posterior) -> dict[str, Any]:
    rows = held_out.weights
    labels, weights = held_out.targets.astype(np.int64), rows.shares if rows.weighted else None

    def scores_of(probabilities: NDArray[np.float64]) -> dict[str, Any]:
        return class_scores(probabilities, labels, weights=weights, units=rows.units if rows.grouped else None)

    report, raw = scores_of(held_out.served), scores_of(held_out.raw)
    errors = report.pop("standard_errors")
    del raw["standard_errors"], raw["n"]
    metrics: dict[str, Any] = {**report, "raw": raw}
    if held_out.calibrated is not None:
        sets = {round(100.0 * coverage): found for coverage, found in held_out.sets.items()}
        of_sets = set_scores(sets, labels, weights)
        calibrated = {name: report[name] for name in raw}
        metrics |= {"calibrated": {**calibrated, "sets": of_sets}, "sets": of_sets}
    members = posterior.architecture.members
    return metrics | {"standard_errors": errors, "members": judged.judges, "all_members": members}


@dataclass(frozen=True, slots=True)
class _Judged:
    """Raw probabilities of n held-out rows by their judges."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    judges: int
    raw: Tensor
    epistemic_share: Tensor
    outside: Tensor
    shares: Tensor

    def served(self, mapped: ClassMap | None) -> Tensor:
        """The probabilities that answers would give with a map, or raw, ``[n, C]``."""
        return served_probabilities(self.raw, mapped, self.shares, self.outside, lambda: self.epistemic_share)


def _judge(posterior: Posterior, encoded: NDArray[np.float32], groups: Sequence[HeldOut]) -> _Judged:
    rows, numbers, raw, shares, outside = [], [], [], [], []
    predictive: Any = None
    with torch.inference_mode():
        for number, group in enumerate(groups):
            for chunk in np.split(group.rows, range(ROWS_PER_CHUNK, len(group.rows), ROWS_PER_CHUNK)):
                features = torch.from_numpy(encoded[chunk]).to(posterior.device)
                drawn = posterior.drawn(features, SAMPLES, posterior.seed, members=group.members)
                predictive = drawn.predictive()
                rows.append(chunk)
                numbers.append(np.full(len(chunk), number))
                raw.append(predictive.pooled().cpu())
                shares.append(predictive.epistemic_share().cpu())
                outside.append(drawn.outside.mask.cpu())
    judges = min(posterior.architecture.members if group.members is None else len(group.members) for group in groups)
    return _Judged(
        np.concatenate(rows),
        np.concatenate(numbers),
        judges,
        torch.cat(raw).clone(),
        torch.cat(shares).clone(),
        torch.cat(outside).clone(),
        predictive.shares.cpu(),
    )
