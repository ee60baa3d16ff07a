"""Conformal calibration of a fit on held-out rows, and the estimate of what will be served, made crosswise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.calibration.conformal import CROSS, SPLIT, fit_conformal_map, pooled_map
from murho.model.evaluation.held_out import (
    SAMPLES,
    described_members,
    extrapolated,
    held_out_rows,
    judge_rows,
    narrowing_of,
    report_bands,
    report_scores,
)
from murho.model.evaluation.metrics import RowWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.held_out import JudgedRows
    from murho.model.tables.splits import HeldOut

__all__ = ["SAMPLES", "Calibrated", "calibrate_and_score", "calibrate_held_out"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What held-out rows say of a fit.

    Attributes:
        conformal: The map to calibrated bands or, of a classifier, to calibrated probabilities; None: there is none.
        metrics: The estimate of what is served, as `calibrate_and_score` returns it.
        held_out: The predictions for these rows.
    """

    conformal: Any
    metrics: dict[str, Any]
    held_out: Any


def calibrate_and_score(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    **options: Any,
) -> tuple[ConformalMap | None, dict[str, Any]]:
    """The map and the metrics of `calibrate_held_out`, which describes arguments and options."""
    calibrated = calibrate_held_out(posterior, encoded, targets, groups, **options)
    return calibrated.conformal, calibrated.metrics


def calibrate_held_out(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
    weights: NDArray[np.float64] | None = None,
    units: NDArray[np.generic] | None = None,
    even: bool = False,
    narrow: bool = True,
    earlier: ConformalMap | None = None,
) -> Calibrated:
    """The conformal map of held-out rows, and an estimate of what will be served.

    Answers mix all members, but only few members, the judges, have not seen a held-out row. Scores and bands of all
    members are estimated from theirs (`model.evaluation.held_out`), and the map is made of scores that are
    narrowed likewise.

    The calibrated bands of each group of rows are made by the map and the narrowing of the other groups. So they are
    not fitted to the very rows that they are scored on. Even so their coverage is about the nominal one by
    construction: the map makes it so, and the narrowing of scores and that of bands cancel. It can show whether bands
    made of some groups hold for the others (where groups differ, it is too low), and its standard error by how much
    the coverage of fresh rows may be off by chance. It can't show whether the narrowing is right.

    Args:
        posterior: The fit, not calibrated.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that make the map; empty for no map.
        weights: Relative weights of all rows, ``[N]``; None: all count alike.
        units: Id of each row's exchangeable unit, ``[N]``: rows of one unit are not independent. None: each row is one.
        even: Whether every unit counts the same in the map, whatever its number of rows: for a new row of a new unit.
        narrow: Whether scores and bands count on what the other members add. Not where the judges of a row have learned
            from the same rows: they then agree more than any two members.
        earlier: A map of other rows, with which these are pooled (`model.calibration.conformal`); None: there is none.

    Returns:
        The map, or None, the predictions for the rows, and the metrics: ``n, rmse, mae, r2, nll, crps``, ``raw`` and,
        with a map, ``calibrated``, each with ``coverage``, ``width`` and ``interval_score``. ``standard_errors`` has
        those of ``rmse``, ``mae``, ``nll``, ``crps`` and both coverages. ``members`` is the number of members that all
        this describes, of ``all_members``. If these are more than a row's judges, ``judges`` has the judges' own
        scores: ``members``, ``n`` and the keys above, without ``calibrated``.
    """
    judged = judge_rows(posterior, encoded, targets, groups)
    all_members = judged.members
    if not narrow:  # describe the judges themselves
        judged = replace(judged, members=int(judged.judges.min()))
    every = RowWeights.of(
        len(judged),
        None if weights is None else weights[judged.rows],
        None if units is None else units[judged.rows],
    )
    use = np.isin(judged.groups, list(calibrating))
    narrowing, error = narrowing_of(judged, every)
    method = SPLIT if all(group.members is None for group in groups) else CROSS
    mapped = _Maps(judged, every, method, earlier, even)
    conformal = mapped.fit(use) if len(calibrating) else None
    scores, errors = report_scores(extrapolated(judged), judged.targets, every)
    raw, raw_errors = report_bands(judged, every, narrowing=narrowing, narrowing_error=error)
    report: dict[str, Any] = {"n": len(judged), **scores, "raw": raw}
    standard_errors: dict[str, Any] = {**errors, "raw": {"coverage": raw_errors}}
    maps: dict[int, ConformalMap] = {}
    if conformal is not None:
        maps = {int(group): mapped.fit(judged.groups != group) or conformal for group in np.unique(judged.groups)}
        bands, bands_errors = report_bands(judged, every, narrowing=narrowing, narrowing_error=error, maps=maps)
        report["calibrated"] = bands
        standard_errors["calibrated"] = {"coverage": bands_errors}
    report |= {
        "standard_errors": standard_errors,
        "members": described_members(judged),
        "all_members": all_members,
    }
    if narrowing is not None:
        own, _ = report_scores(judged.together, judged.targets, every)
        bands, _ = report_bands(judged, every)
        report["judges"] = {"members": int(judged.judges.min()), "n": len(judged), **own, "raw": bands}
    return Calibrated(conformal, report, held_out_rows(judged, every, narrowing=narrowing, maps=maps))


@dataclass(frozen=True, slots=True)
class _Maps:
    """Maps of held-out rows, or of a part of them."""

    judged: JudgedRows
    weights: RowWeights
    method: str
    earlier: ConformalMap | None
    even: bool

    def fit(self, rows: NDArray[np.bool_]) -> ConformalMap | None:
        """The map of the rows of a mask ``[n]``, with their own narrowing; None where they are too few."""
        narrowing, weights, units = None, None, None
        if rows.any():
            chosen = self.weights.of_rows(rows)
            narrowing, _ = narrowing_of(self.judged.of_rows(rows), chosen)
            weights = chosen.shares if chosen.weighted or self.even else None
            if weights is not None and self.even:
                weights = weights / np.bincount(chosen.units)[chosen.units]
            units = chosen.count if chosen.grouped else None
        if narrowing is None and self.method == CROSS:
            narrowing = 1.0  # one judge a row: nothing tells what the other members add
        scores = self.judged.scores[rows]
        if self.earlier is not None:
            return pooled_map(self.earlier, scores, narrowing=narrowing, weights=weights, units=units)
        return fit_conformal_map(scores, method=self.method, narrowing=narrowing, weights=weights, units=units)
