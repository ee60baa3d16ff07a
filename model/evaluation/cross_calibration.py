"""Conformal calibration and scores of a fit on held-out rows; each row is scored with a map made from other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.distributions.calibration import fit_conformal_map, sharpening
from murho.model.evaluation.row_scores import RowScores, normal_scores, score_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.data.splits import HeldOut
    from murho.model.distributions.calibration import ConformalMap
    from murho.model.posterior.posterior import Posterior

__all__ = ["SAMPLES", "calibrate_and_score"]

SAMPLES = 256
"""Draws per score, all from the members that have not seen the row."""


def calibrate_and_score(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
    weights: NDArray[np.float64] | None = None,
) -> tuple[ConformalMap | None, dict[str, Any]]:
    """The conformal map of held-out rows, and their scores.

    By construction, bands cover the rows that calibrated them. So each group of rows is scored with a map made from the
    other groups.

    Answers mix all members, but only few members have not seen a held-out row, and more members predict better. Bands
    that are right for these few are too wide for all. `model.distributions.calibration.sharpening` estimates the excess
    from the gain of two such members over one.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that make the map; empty for no map.
        weights: Weight of each row of the table in the map and in the metrics, ``[N]``; None: all are equal.

    Returns:
        The map, or None, and the metrics of `model.evaluation.evaluate.evaluate_rows`. They have ``calibrated`` only
        with a map.
    """
    scores = [_scores(posterior, encoded, targets, group.rows, group.members) for group in groups]
    conformal = None
    if calibrating:
        chosen = [groups[index] for index in calibrating]
        together = np.concatenate([scores[index] for index in calibrating])
        of_chosen = _weights_of(chosen, weights)
        factor = _sharpening(posterior, encoded, targets, chosen, together, of_chosen)
        conformal = fit_conformal_map(factor * together, weights=of_chosen)
    parts = []
    for index, group in enumerate(groups):
        others = None
        if conformal is not None:
            rest = [other for other in range(len(groups)) if other != index]
            if rest:
                others = fit_conformal_map(
                    np.concatenate([scores[other] for other in rest]),
                    weights=_weights_of([groups[other] for other in rest], weights),
                )
            others = others or conformal
        parts.append(
            score_rows(
                posterior,
                encoded[group.rows],
                targets[group.rows],
                samples=SAMPLES,
                members=group.members,
                calibration=others,
                weights=None if weights is None else weights[group.rows],
            )
        )
    report = RowScores.joined(parts).report()
    if conformal is None:
        del report["calibrated"]
    return conformal, report


def _weights_of(groups: Sequence[HeldOut], weights: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if weights is None else weights[np.concatenate([group.rows for group in groups])]


def _scores(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    rows: NDArray[np.int64],
    members: Sequence[int] | None,
) -> NDArray[np.float64]:
    return normal_scores(posterior, encoded[rows], targets[rows], samples=SAMPLES, members=members)


def _sharpening(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    together: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
) -> float:
    """`calibration.sharpening` of rows that two or more members have not seen; 1 if there are no such rows.

    Args:
        posterior: The fit.
        encoded: All rows.
        targets: Their targets.
        groups: The calibration rows.
        together: Normal scores of the calibration rows under all members that have not seen them.
        weights: Their weights; None: all are equal.
    """
    if any(group.members is None or len(group.members) < 2 for group in groups):
        return 1.0
    alone = [
        np.concatenate(
            [
                _scores(posterior, encoded, targets, group.rows, group.members[number : number + 1])
                for group in groups
                if group.members is not None
            ]
        )
        for number in range(2)
    ]
    judges = len(groups[0].members or ())
    members = posterior.architecture.members
    return sharpening(np.stack(alone), together, judges=judges, members=members, weights=weights)
