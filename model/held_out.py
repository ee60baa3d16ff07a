"""What held-out rows tell of a fit: its scores, and how its bands must be moved to cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from model.calibration import fit_conformal_map
from model.judging import Judged, judge_rows, normal_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from model.calibration import ConformalMap
    from model.posterior import Posterior
    from model.splits import HeldOut

__all__ = ["calibrate_and_judge"]

SAMPLES = 256
"""Draws behind each judgement, all of one member where a row is judged by one."""


def calibrate_and_judge(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
) -> tuple[ConformalMap | None, dict[str, Any]]:
    """The conformal map of held-out rows, and their scores.

    Bands cover the rows that made them by construction. So calibrated bands are judged crosswise: those of each
    group of rows by a map made from the other groups.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the member that has not seen them.
        calibrating: Numbers of the groups that make the map; empty: none is made.

    Returns:
        The map, or None, and the metrics: what `model.evaluation.judge` has; ``calibrated`` only with a map.
    """
    scores = [
        normal_scores(
            posterior, encoded[group.rows], targets[group.rows], samples=SAMPLES, member=group.member
        )
        for group in groups
    ]
    conformal = (
        fit_conformal_map(np.concatenate([scores[index] for index in calibrating])) if calibrating else None
    )
    parts = []
    for index, group in enumerate(groups):
        others = None
        if conformal is not None:
            rest = [score for other, score in enumerate(scores) if other != index]
            others = (fit_conformal_map(np.concatenate(rest)) if rest else None) or conformal
        parts.append(
            judge_rows(
                posterior,
                encoded[group.rows],
                targets[group.rows],
                samples=SAMPLES,
                member=group.member,
                calibration=others,
            )
        )
    report = Judged.joined(parts).report()
    if conformal is None:
        del report["calibrated"]
    return conformal, report
