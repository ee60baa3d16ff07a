"""Calibration of a fit on held-out rows, and the estimate of what will be served, made crosswise.

Answers mix all M members, but only J of them, the judges, have not seen a held-out row, and more members predict
better. For classes the pooled probabilities of the judges stand for those of all (`model.evaluation.class_held_out`).
Here, for numbers, each row's score under one judge and under all its judges gives its score under M members
(`model.bbb.rows`): CRPS, squared error and variance exactly in expectation, absolute error and NLL nearly. For bands
there is no such law, so the answer of all members is emulated from that of the judges:

- The normal score of the target is the judges' times the *narrowing*, the ratio of the mean sizes of normal scores
  under M and under J members. The target is inside a band if that score is.
- The distance of a percentile from the median is the judges' times the ratio of the two standard deviations of the
  row, under M and J members.

Where all members are judges, or only one is, nothing is extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from murho.model.bbb.rows import ensemble_score
from murho.model.calibration.conformal import CROSS, POOLED, SPLIT, fit_conformal_map
from murho.model.distributions.mixtures import normal_cdf
from murho.model.evaluation.class_held_out import calibrate_classes
from murho.model.evaluation.metrics import (
    COVERAGES,
    RowArrays,
    RowWeights,
    band_levels,
    band_values,
    by_coverage,
    mean_scores,
)
from murho.model.evaluation.row_scores import judge_groups, numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.classes import ClassCalibration
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.distributions.predictive import Predictive
    from murho.model.tables.splits import HeldOut

__all__ = [
    "BAND",
    "Calibrated",
    "HeldOutRows",
    "JudgedRows",
    "calibrate_held_out",
    "extrapolated",
    "narrowing_of",
]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What held-out rows say of a fit.

    Attributes:
        conformal: The map to calibrated bands or, of a classifier, to calibrated probabilities; None: there is none.
        metrics: The estimate of what is served, as `calibrate_held_out` describes it.
        held_out: The predictions for these rows.
    """

    conformal: Any
    metrics: dict[str, Any]
    held_out: Any


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
    earlier: ConformalMap | ClassCalibration | None = None,
) -> Calibrated:
    """The calibration of held-out rows, and an estimate of what will be served.

    What each group (of classes: each of five parts) of the rows is scored with is made of the other ones, so nothing is
    fitted to the very rows that it is scored on. Even so the coverage of calibrated bands is about the nominal one by
    construction: the map makes it so, and the narrowing of scores and that of bands cancel. It can show whether bands
    made of some groups hold for the others (where groups differ, it is too low), and its standard error by how much
    the coverage of fresh rows may be off by chance. It can't show whether the narrowing is right.

    Args:
        posterior: The fit. Its own calibration is used only for the scores of classes that do not calibrate.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit, or numbers of their classes.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that make the calibration; empty for none.
        weights: Relative weights of all rows, ``[N]``; None: all count alike.
        units: Id of each row's exchangeable unit, ``[N]``: rows of one unit are not independent. None: each row is one.
        even: Whether every unit counts the same in the map of a number, whatever its number of rows: for a new row of a
            new unit. Rows of classes count as they are: thresholds take the units into account by themselves.
        narrow: Whether scores and bands of a number count on what the other members add. Not where the judges of a row
            have learned from the same rows: they then agree more than any two members. Probabilities are never
            extrapolated.
        earlier: A calibration of other rows, with which these are pooled (`model.calibration`); None: there is none.

    Returns:
        The calibration, or None, the predictions for the rows, and the metrics. Of numbers: ``n, rmse, mae, r2, nll,
        crps``, ``raw`` and, with a map, ``calibrated``, each with ``coverage``, ``width`` and ``interval_score``;
        ``standard_errors`` of ``rmse``, ``mae``, ``nll``, ``crps`` and both coverages. ``members`` is the number of
        members that all this describes, of ``all_members``. If these are more than a row's judges, ``judges`` has the
        judges' own scores: ``members``, ``n`` and the keys above, without ``calibrated``. Of classes: see
        `model.evaluation.class_held_out.calibrate_classes`.
    """
    numbers = np.concatenate([group.rows for group in groups])
    rows = RowWeights.of(
        len(numbers), None if weights is None else weights[numbers], None if units is None else units[numbers]
    )
    method = SPLIT if all(group.members is None for group in groups) else CROSS
    if posterior.schema.target.classes is not None:
        of_classes = cast("ClassCalibration | None", earlier)
        return Calibrated(
            *calibrate_classes(posterior, encoded, targets, groups, rows, method, calibrating, of_classes)
        )
    judged = judge_rows(posterior, encoded, targets, groups)
    all_members = judged.members
    if not narrow:  # describe the judges themselves
        judged = replace(judged, members=int(judged.judges.min()))
    mapped = _Maps(judged, rows, method, cast("ConformalMap | None", earlier), even)
    conformal = mapped.fit(np.isin(judged.groups, list(calibrating))) if len(calibrating) else None
    narrowing, error = narrowing_of(judged, rows)
    emulated = _Emulated.of(judged, narrowing)
    raw, raw_errors = emulated.report(rows, error)
    every = extrapolated(judged)
    report: dict[str, Any] = {"n": len(judged.rows), **mean_scores(every, judged.targets, rows), "raw": raw}
    errors: dict[str, Any] = {**_standard_errors(every, report["rmse"], rows), "raw": {"coverage": raw_errors}}
    served = None
    if conformal is not None:
        maps = {int(group): mapped.fit(judged.groups != group) or conformal for group in np.unique(judged.groups)}
        served = _Emulated.of(judged, narrowing, maps)
        report["calibrated"], served_errors = served.report(rows, error)
        errors["calibrated"] = {"coverage": served_errors}
    described = judged.members if judged.judges.min() > 1 else 1
    report |= {"standard_errors": errors, "members": described, "all_members": all_members}
    if narrowing is not None:
        own = mean_scores(judged.together, judged.targets, rows)
        bands, _ = _Emulated.of(judged, None).report(rows, 0.0)
        report["judges"] = {"members": int(judged.judges.min()), "n": len(judged.rows), **own, "raw": bands}
    return Calibrated(conformal, report, _held_out_rows(judged, rows, emulated, served))


def _standard_errors(values: Mapping[str, NDArray[np.float64]], rmse: float, rows: RowWeights) -> dict[str, float]:
    """Standard errors of `mean_scores` but for ``r2``; that of a root by the delta method."""
    errors = {name: float(rows.standard_error(values[name])) for name in ("square", "absolute", "nll", "crps")}
    root = errors.pop("square") / (2.0 * rmse) if rmse > 0.0 else 0.0
    return {"rmse": root, "mae": errors.pop("absolute"), **errors}


FURTHEST_SCORE = 3.0
"""Limit of the size of a normal score in means: a larger one marks an odd row and tells little about the members."""
GRID = np.linspace(-5.0, 5.0, 41)
"""Normal scores at which a row's percentiles are computed; between and beyond them they are taken from a line."""


@dataclass(frozen=True, slots=True)
class JudgedRows(RowArrays):
    """Scores of n held-out rows; ``[n]`` and in the target's unit unless noted otherwise.

    Attributes:
        rows: Row numbers in the table.
        groups: Number of the group of held-out rows.
        judges: J, the number of members that judge the row together.
        members: M, the number of members that will answer.
        targets: Observed targets.
        means: Predicted means under the mixture of the judges.
        alone: Scores under single judges, the mean over them, by name: ``square`` and ``absolute`` error of the mean,
            ``nll`` (nats), ``crps``, ``variance`` of the predictive, and ``reach``, the size of the normal score, at
            most `FURTHEST_SCORE`.
        together: The same under the mixture of the judges.
        scores: Normal score of the target under the mixture of the judges.
        percentiles: Raw percentiles of that mixture at `GRID`, ``[n, K]``.
        outside: Whether the row lies beyond the training rows, bool.
    """

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    judges: NDArray[np.int64]
    members: int
    targets: NDArray[np.float64]
    means: NDArray[np.float64]
    alone: dict[str, NDArray[np.float64]]
    together: dict[str, NDArray[np.float64]]
    scores: NDArray[np.float64]
    percentiles: NDArray[np.float64]
    outside: NDArray[np.bool_]


def judge_rows(
    posterior: Posterior, encoded: NDArray[np.float32], targets: NDArray[np.float64], groups: Sequence[HeldOut]
) -> JudgedRows:
    """Score held-out rows, each under its judges; see `calibrate_held_out`."""
    members = posterior.architecture.members
    levels = (100.0 * torch.special.ndtr(torch.from_numpy(GRID))).tolist()

    def score(drawn: DrawnRows, group: HeldOut, rows: NDArray[np.int64], number: int) -> JudgedRows:
        truth, predictive = torch.from_numpy(targets[rows]).to(posterior.device), drawn.predictive()
        together = alone = _values(predictive, truth)
        judges = members if group.members is None else len(group.members)
        if 1 < judges < members:
            # The draws of one judge are some of the draws of all, so no row goes through the network twice.
            singles = []
            for member in group.members or ():
                own = drawn.members == member
                singles.append(_values(drawn.target.predictive(drawn.outputs[own], drawn.members[own]), truth))
            alone = {name: np.mean([single[name] for single in singles], axis=0) for name in together}
        return JudgedRows(
            rows=rows,
            groups=np.full(len(rows), number),
            judges=np.full(len(rows), judges),
            members=members,
            targets=targets[rows],
            means=numbers_of(predictive.split()[0]),
            alone=alone,
            together=together,
            scores=_normal_scores(predictive, truth),
            percentiles=drawn.percentiles(levels),
            outside=numbers_of(drawn.outside.mask),
        )

    return judge_groups(posterior, encoded, groups, score)


def _values(predictive: Predictive, truth: Tensor) -> dict[str, NDArray[np.float64]]:
    mean, epistemic, aleatoric = predictive.split()
    return {
        "square": numbers_of((mean - truth).square()),
        "absolute": numbers_of((mean - truth).abs()),
        "nll": numbers_of(-predictive.log_density(truth)),
        "crps": numbers_of(predictive.crps(truth)),
        "variance": numbers_of(epistemic.square() + aleatoric.square()),
        "reach": np.minimum(np.abs(_normal_scores(predictive, truth)), FURTHEST_SCORE),
    }


def _normal_scores(predictive: Predictive, truth: Tensor) -> NDArray[np.float64]:
    return numbers_of(predictive.normal_score(truth.unsqueeze(0))[0])


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
        return fit_conformal_map(
            self.judged.scores[rows],
            method=self.method if self.earlier is None else POOLED,
            narrowing=narrowing,
            weights=weights,
            units=units,
            earlier=self.earlier,
        )


NARROWEST = 0.5
"""Least narrowing."""


def extrapolated(judged: JudgedRows) -> dict[str, NDArray[np.float64]]:
    """Scores of every row under all M members, by the names of `JudgedRows.alone`, ``[n]`` each."""
    together = {name: values.copy() for name, values in judged.together.items()}
    for count in np.unique(judged.judges):
        rows = judged.judges == count
        for name, values in together.items():
            values[rows] = ensemble_score(judged.alone[name][rows], values[rows], int(count), judged.members)
    return together


def narrowing_of(judged: JudgedRows, weights: RowWeights) -> tuple[float | None, float]:
    """The narrowing: the factor by which normal scores shrink where all members answer and not only the judges.

    The mean size of normal scores falls with the number m of members about as ``a + b / m``: the errors of single
    members average out, and their disagreement widens the mixture.

    Returns:
        The factor, from 0.5 to 1, and the standard error of its logarithm; ``None, 0`` where nothing is extrapolated.
    """
    if judged.judges.min() < 2 or judged.judges.min() == judged.members:
        return None, 0.0
    every, some = extrapolated(judged)["reach"], judged.together["reach"]
    ratio = float(weights.mean(every) / weights.mean(some))
    influence = every / weights.mean(every) - some / weights.mean(some)
    return float(np.clip(ratio, NARROWEST, 1.0)), float(weights.standard_error(influence))


@dataclass(frozen=True, slots=True)
class _Emulated:
    """The answer of all members for n rows, emulated from that of the judges.

    Attributes:
        scale: Factor of the distances from the median, ``[n]``.
        scores: Normal score of the target under the raw predictive, ``[n]``.
        mapped: The same under the calibrated one, ``[n]``; without calibration it is the raw one.
        inside: Whether the target lies in each band, ``[n, 4]``.
        ends: Ends of the bands, in the order of `model.evaluation.metrics.band_levels`, ``[n, 8]``.
        truth: The target, where its normal score puts it, ``[n, 1]``.
    """

    scale: NDArray[np.float64]
    scores: NDArray[np.float64]
    mapped: NDArray[np.float64]
    inside: NDArray[np.bool_]
    ends: NDArray[np.float64]
    truth: NDArray[np.float64]

    @classmethod
    def of(
        cls, judged: JudgedRows, narrowing: float | None, maps: Mapping[int, ConformalMap] | None = None
    ) -> _Emulated:
        """Emulate the answer.

        Args:
            judged: Scores of the rows.
            narrowing: Factor of the normal scores; None: the judges' own answer.
            maps: Calibration of each group of rows, made without the group; None: raw bands.
        """
        scores, scale = judged.scores, np.ones(len(judged.rows))
        if narrowing is not None:
            scores = narrowing * scores
            scale = np.sqrt(np.maximum(extrapolated(judged)["variance"], 0.0) / judged.together["variance"])
        ends = _band_scores().expand(len(scores), -1)
        reach, mapped = ends.clone(), torch.from_numpy(scores.copy())
        for group, conformal in (maps or {}).items():
            rows = judged.groups == group
            widening = torch.from_numpy(judged.outside[rows])
            reach[rows] = conformal.calibrated(ends[rows], widening.unsqueeze(1))
            mapped[rows] = conformal.nominal_of(mapped[rows], widening)
        asked, own = reach.numpy(), scores[:, None]
        at = _percentiles_at(judged.percentiles, np.concatenate([asked, own, np.zeros_like(own)], axis=1))
        median = at[:, -1:]
        at = median + scale[:, None] * (at - median)
        inside = (own >= asked[:, 0::2]) & (own <= asked[:, 1::2])
        return cls(scale, scores, mapped.numpy(), inside, at[:, :-2], at[:, -2:-1])

    def report(self, rows: RowWeights, narrowing_error: float) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        """Coverage, width and interval score of the bands.

        Args:
            rows: Weights and units of the rows.
            narrowing_error: Standard error of the logarithm of the narrowing. It counts as the coverage of a Gaussian
                would change by it: ``2 u phi(u)`` for a band that reaches to the normal score u.

        Returns:
            ``coverage``, ``width`` and ``interval_score``, each by nominal coverage: ``{"50": …, "80": …}``, and the
            standard error of ``coverage``, likewise.
        """
        covered = self.inside.astype(np.float64)
        values = {"coverage": covered, **band_values(self.ends[:, 0::2], self.ends[:, 1::2], self.truth)}
        edges = _band_scores().numpy()[1::2]
        moved = 2.0 * edges * np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi) * narrowing_error
        report = {name: by_coverage(rows.mean(of_rows)) for name, of_rows in values.items()}
        return report, by_coverage(np.hypot(rows.standard_error(covered), moved))

    @property
    def band(self) -> NDArray[np.float64]:
        """Ends of the 90 % band, ``[n, 2]``."""
        place = 2 * COVERAGES.index(BAND)
        return self.ends[:, place : place + 2]


def _band_scores() -> Tensor:
    """Normal scores of the ends of the bands, ``[8]``."""
    scores: Tensor = torch.special.ndtri(torch.tensor(band_levels(), dtype=torch.float64) / 100.0)
    return scores


def _percentiles_at(at_grid: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles ``[n, K]`` at normal scores of each row's own, from those at `GRID`, on lines between these."""
    step = GRID[1] - GRID[0]
    position = (scores - GRID[0]) / step
    below = np.clip(np.floor(position), 0, len(GRID) - 2).astype(int)
    first, second = (np.take_along_axis(at_grid, index, axis=1) for index in (below, below + 1))
    found: NDArray[np.float64] = first + (position - below) * (second - first)
    return found


BAND = 90
"""Nominal coverage of the bands, per cent."""


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Predictions of n rows that the networks behind them have not seen; the target's unit unless noted otherwise.

    Attributes:
        rows: Number of each row in the table of the training, from 0, ``[n]``.
        targets: ``[n]``.
        mean: ``[n]``.
        std: Raw standard deviation, ``[n]``.
        pit_raw: Distribution function of the raw predictive at the target, ``[n]``, between 0 and 1.
        band_raw: Ends of the raw 90 % band, ``[n, 2]``.
        pit_calibrated: The same of the calibrated predictive; None without calibration.
        band_calibrated: Ends of the calibrated 90 % band, ``[n, 2]``; None without calibration.
        weights: Weights and units of the rows.
    """

    rows: NDArray[np.int64]
    targets: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    pit_raw: NDArray[np.float64]
    band_raw: NDArray[np.float64]
    pit_calibrated: NDArray[np.float64] | None
    band_calibrated: NDArray[np.float64] | None
    weights: RowWeights

    def __len__(self) -> int:
        return len(self.targets)


def _held_out_rows(
    judged: JudgedRows, weights: RowWeights, raw: _Emulated, calibrated: _Emulated | None
) -> HeldOutRows:
    return HeldOutRows(
        rows=judged.rows,
        targets=judged.targets,
        mean=judged.means,
        std=np.sqrt(judged.together["variance"]) * raw.scale,
        pit_raw=_cdf(raw.scores),
        band_raw=raw.band,
        pit_calibrated=None if calibrated is None else _cdf(calibrated.mapped),
        band_calibrated=None if calibrated is None else calibrated.band,
        weights=weights,
    )


def _cdf(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return numbers_of(normal_cdf(torch.from_numpy(scores)))
