"""Conformal calibration and scores of a fit by its held-out rows, each scored by a map of other rows."""

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
"""Draws behind each score, all from the members that have not seen the row."""


def calibrate_and_score(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
) -> tuple[ConformalMap | None, dict[str, Any]]:
    """The conformal map of held-out rows, and their scores.

    Bands cover the rows that calibrated them by construction. So each group of rows is scored with a map made from the
    other groups.

    Answers mix all members, but few members have not seen a held-out row, and more members predict better. Bands that
    cover for those few are wider than needed. The gain from one such member to two tells by how much, see
    `model.distributions.calibration.sharpening`.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that make the map; empty: none is made.

    Returns:
        The map, or None, and the metrics: what `model.evaluation.evaluate.evaluate_rows` has; ``calibrated`` only with
        a map.
    """
    scores = [_scores(posterior, encoded, targets, group.rows, group.members) for group in groups]
    conformal = None
    if calibrating:
        chosen = [groups[index] for index in calibrating]
        together = np.concatenate([scores[index] for index in calibrating])
        factor = _sharpening(posterior, encoded, targets, chosen, together)
        conformal = fit_conformal_map(factor * together)
    parts = []
    for index, group in enumerate(groups):
        others = None
        if conformal is not None:
            rest = [score for other, score in enumerate(scores) if other != index]
            others = (fit_conformal_map(np.concatenate(rest)) if rest else None) or conformal
        parts.append(
            score_rows(
                posterior,
                encoded[group.rows],
                targets[group.rows],
                samples=SAMPLES,
                members=group.members,
                calibration=others,
            )
        )
    report = RowScores.joined(parts).report()
    if conformal is None:
        del report["calibrated"]
    return conformal, report


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
) -> float:
    """`calibration.sharpening` of rows that two or more members have not seen; 1 where there are none such.

    Args:
        posterior: The fit.
        encoded: All rows.
        targets: Their targets.
        groups: The rows that calibrate.
        together: Their normal scores under all members that have not seen them.
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
    return sharpening(np.stack(alone), together, judges=judges, members=posterior.architecture.members)
