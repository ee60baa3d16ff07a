"""Predictions for held-out rows, each by the members that have not learned from it, and as all members would answer.

The prediction for every held-out row, as all members would answer it, for the report of a training.

It is emulated from the answer of the row's judges, as in `model.evaluation.held_out`: normal scores shrink by
the narrowing, and distances from the median change by the ratio of the row's two standard deviations.

What all members together would score on held-out rows, estimated from the judges of each row.

Answers mix all M members, but only J of them, the judges, have not seen a held-out row, and more members predict
better. Each row's score under one judge and under all its judges gives its score under M members
(`model.bbb.rows`): CRPS, squared error and variance exactly in expectation, absolute error
and NLL nearly. For bands there is no such law, so the answer of all members is emulated from that of the judges:

- The normal score of the target is the judges' times the *narrowing*, the ratio of the mean sizes of normal scores
  under M and under J members. The target is inside a band if that score is.
- The width of a band is the judges' times the ratio of the two standard deviations of the row, under M and J members.

Where all members are judges, or only one is, nothing is extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.bbb.rows import ensemble_score
from murho.model.distributions.mixtures import normal_cdf
from murho.model.evaluation.metrics import COVERAGES, band_levels
from murho.model.runtime import give_back

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.distributions.predictive import Predictive
    from murho.model.evaluation.metrics import RowWeights
    from murho.model.tables.splits import HeldOut

__all__ = [
    "BAND",
    "GRID",
    "SAMPLES",
    "HeldOutRows",
    "JudgedRows",
    "described_members",
    "extrapolated",
    "held_out_rows",
    "judge_rows",
    "narrowing_of",
    "percentiles_at",
    "report_bands",
    "report_scores",
]


SAMPLES = 256
"""Draws per row, shared by its judges."""
ROWS_PER_CHUNK = 256
FURTHEST_SCORE = 3.0
"""Limit of the size of a normal score in means: a larger one marks an odd row and tells little about the members."""
GRID = np.linspace(-5.0, 5.0, 41)
"""Normal scores at which a row's percentiles are computed; between and beyond them they are taken from a line."""
_ARRAYS = ("rows", "groups", "judges", "targets", "means", "scores", "percentiles", "outside")
_TABLES = ("alone", "together")


@dataclass(frozen=True, slots=True)
class JudgedRows:
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

    def __len__(self) -> int:
        return len(self.targets)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The scores of several parts, in order."""
        fields: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS} | {
            name: {key: np.concatenate([getattr(part, name)[key] for part in parts]) for key in getattr(parts[0], name)}
            for name in _TABLES
        }
        return cls(members=parts[0].members, **fields)

    def of_rows(self, mask: NDArray[np.bool_]) -> JudgedRows:
        """The scores of selected rows, by a mask ``[n]``."""
        fields: dict[str, Any] = {name: getattr(self, name)[mask] for name in _ARRAYS} | {
            name: {key: values[mask] for key, values in getattr(self, name).items()} for name in _TABLES
        }
        return JudgedRows(members=self.members, **fields)


def judge_rows(
    posterior: Posterior, encoded: NDArray[np.float32], targets: NDArray[np.float64], groups: Sequence[HeldOut]
) -> JudgedRows:
    """Score held-out rows, each under its judges.

    Args:
        posterior: The fit.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
    """
    parts = []
    with torch.inference_mode():
        for number, group in enumerate(groups):
            for rows in np.split(group.rows, range(ROWS_PER_CHUNK, len(group.rows), ROWS_PER_CHUNK)):
                features = torch.from_numpy(encoded[rows]).to(posterior.device)
                truth = torch.from_numpy(targets[rows]).to(posterior.device)
                drawn = posterior.drawn(features, SAMPLES, posterior.seed, members=group.members)
                parts.append(_judged(posterior, drawn, truth, group, rows, number))
    give_back()
    return JudgedRows.joined(parts)


def _judged(
    posterior: Posterior, drawn: DrawnRows, truth: Tensor, group: HeldOut, rows: NDArray[np.int64], number: int
) -> JudgedRows:
    """Score a chunk of rows of one group."""
    members = posterior.architecture.members
    predictive = drawn.predictive()
    scores = _normal_scores(predictive, truth)
    split = predictive.split()
    together = alone = _values(predictive, truth, scores, split)
    judges = members if group.members is None else len(group.members)
    if 1 < judges < members:
        # The draws of one judge are some of the draws of all, so no row goes through the network twice.
        singles = []
        for member in group.members or ():
            own = drawn.members == member
            single = drawn.target.predictive(drawn.outputs[own], drawn.members[own])
            singles.append(_values(single, truth, _normal_scores(single, truth), single.split()))
        alone = {name: np.mean([single[name] for single in singles], axis=0) for name in together}
    levels = (100.0 * torch.special.ndtr(torch.from_numpy(GRID))).tolist()
    return JudgedRows(
        rows=rows,
        groups=np.full(len(rows), number),
        judges=np.full(len(rows), judges),
        members=members,
        targets=_array(truth),
        means=_array(split[0]),
        alone=alone,
        together=together,
        scores=scores,
        percentiles=drawn.percentiles(levels),
        outside=drawn.outside.mask.cpu().numpy(),
    )


def _values(
    predictive: Predictive, truth: Tensor, scores: NDArray[np.float64], split: tuple[Tensor, Tensor, Tensor]
) -> dict[str, NDArray[np.float64]]:
    mean, epistemic, aleatoric = split
    return {
        "square": _array((mean - truth).square()),
        "absolute": _array((mean - truth).abs()),
        "nll": _array(-predictive.log_density(truth)),
        "crps": _array(predictive.crps(truth)),
        "variance": _array(epistemic.square() + aleatoric.square()),
        "reach": np.minimum(np.abs(scores), FURTHEST_SCORE),
    }


def _normal_scores(predictive: Predictive, truth: Tensor) -> NDArray[np.float64]:
    return _array(predictive.normal_score(truth.unsqueeze(0))[0])


def _array(values: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = values.cpu().numpy()
    return array


NARROWEST = 0.5
"""Least narrowing."""


def described_members(judged: JudgedRows) -> int:
    """The number of members that estimates describe: all M, or 1 where single judges leave nothing to go by."""
    return judged.members if judged.judges.min() > 1 else int(judged.judges.min())


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


def report_scores(
    values: Mapping[str, NDArray[np.float64]], targets: NDArray[np.float64], weights: RowWeights
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Scores of the mean and of the whole distribution.

    Args:
        values: Scores of every row, by the names of `JudgedRows.alone`.
        targets: Targets, ``[n]``.
        weights: Weights and units of the rows.

    Returns:
        ``rmse, mae, r2, nll, crps``, and the standard errors of all but ``r2``.
    """
    means = {name: float(weights.mean(values[name])) for name in ("square", "absolute", "nll", "crps")}
    errors = {name: float(weights.standard_error(values[name])) for name in means}
    # A single row may be extrapolated to less than nothing; not so many.
    rmse = max(means["square"], 0.0) ** 0.5
    variance = float(weights.mean((targets - weights.mean(targets)) ** 2))
    scores = {
        "rmse": rmse,
        "mae": means["absolute"],
        "r2": 1.0 - rmse**2 / variance if variance > 0.0 else None,
        "nll": means["nll"],
        "crps": means["crps"],
    }
    return scores, {
        "rmse": errors["square"] / (2.0 * rmse) if rmse > 0.0 else 0.0,
        "mae": errors["absolute"],
        "nll": errors["nll"],
        "crps": errors["crps"],
    }


def report_bands(
    judged: JudgedRows,
    weights: RowWeights,
    *,
    narrowing: float | None = None,
    narrowing_error: float = 0.0,
    maps: Mapping[int, ConformalMap] | None = None,
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Coverage, width and interval score of the bands, emulated for all members.

    Args:
        judged: Scores of the rows.
        weights: Their weights and units.
        narrowing: Factor of the normal scores; None: the judges' own bands.
        narrowing_error: Standard error of its logarithm. It counts as the coverage of a Gaussian would change by it:
            ``2 u phi(u)`` for a band that reaches to the normal score u.
        maps: Calibration of each group of rows; None: raw bands.

    Returns:
        ``coverage``, ``width`` and ``interval_score``, each by nominal coverage: ``{"50": …, "80": …}``, and the
        standard error of ``coverage``, likewise.
    """
    ends = torch.special.ndtri(torch.tensor(band_levels(), dtype=torch.float64) / 100.0)
    reach = ends.expand(len(judged), -1).numpy().copy()
    for group, conformal in (maps or {}).items():
        rows = judged.groups == group
        widening = torch.from_numpy(judged.outside[rows]).unsqueeze(1)
        reach[rows] = conformal.calibrated(ends.expand(len(widening), -1), widening).numpy()
    scale = np.ones(len(judged))
    scores = judged.scores
    if narrowing is not None:
        scores = narrowing * scores
        scale = np.sqrt(np.maximum(extrapolated(judged)["variance"], 0.0) / judged.together["variance"])
    at = percentiles_at(judged.percentiles, np.concatenate([reach, scores[:, None]], axis=1)) * scale[:, None]
    lower, upper, truth = at[:, 0:-1:2], at[:, 1:-1:2], at[:, -1:]
    inside = (scores[:, None] >= reach[:, 0::2]) & (scores[:, None] <= reach[:, 1::2])
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    outside_share = 1.0 - np.array(COVERAGES) / 100.0
    values = {
        "coverage": inside.astype(np.float64),
        "width": upper - lower,
        "interval_score": upper - lower + 2.0 / outside_share * missed,
    }
    edges = ends.numpy()[1::2]
    moved = 2.0 * edges * np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi) * narrowing_error
    errors = np.hypot(weights.standard_error(values["coverage"]), moved)
    report = {name: _by_coverage(weights.mean(of_rows)) for name, of_rows in values.items()}
    return report, _by_coverage(errors)


def percentiles_at(at_grid: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles ``[n, K]`` at normal scores of each row's own, from those at `GRID`, on lines between these."""
    step = GRID[1] - GRID[0]
    position = (scores - GRID[0]) / step
    below = np.clip(np.floor(position), 0, len(GRID) - 2).astype(int)
    first, second = (np.take_along_axis(at_grid, index, axis=1) for index in (below, below + 1))
    found: NDArray[np.float64] = first + (position - below) * (second - first)
    return found


def _by_coverage(values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(map(str, COVERAGES), values.tolist(), strict=True))


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


def held_out_rows(
    judged: JudgedRows,
    weights: RowWeights,
    *,
    narrowing: float | None = None,
    maps: Mapping[int, ConformalMap] | None = None,
) -> HeldOutRows:
    """Emulate the predictions of all members.

    Args:
        judged: Scores of the rows by their judges.
        weights: Weights and units of the rows.
        narrowing: Factor of the normal scores; None: the judges' own.
        maps: Calibration of each group of rows, made without the group; None: there is none.
    """
    scores = judged.scores if narrowing is None else narrowing * judged.scores
    variance, scale = judged.together["variance"], np.ones(len(judged))
    if narrowing is not None:
        scale = np.sqrt(np.maximum(extrapolated(judged)["variance"], 0.0) / variance)
    ends = torch.special.ndtri(torch.tensor([50.0 - BAND / 2, 50.0 + BAND / 2], dtype=torch.float64) / 100.0)
    ends = ends.expand(len(judged), -1)
    reach, mapped = ends.clone(), torch.from_numpy(scores.copy())
    for group, conformal in (maps or {}).items():
        rows = judged.groups == group
        widening = torch.from_numpy(judged.outside[rows])
        reach[rows] = conformal.calibrated(ends[rows], widening.unsqueeze(1))
        mapped[rows] = conformal.nominal_of(mapped[rows], widening)
    return HeldOutRows(
        rows=judged.rows,
        targets=judged.targets,
        mean=judged.means,
        std=np.sqrt(variance) * scale,
        pit_raw=normal_cdf(torch.from_numpy(scores)).numpy(),
        band_raw=_band(judged, ends.numpy(), scale),
        pit_calibrated=normal_cdf(mapped).numpy() if maps else None,
        band_calibrated=_band(judged, reach.numpy(), scale) if maps else None,
        weights=weights,
    )


def _band(judged: JudgedRows, reach: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles at normal scores ``[n, 2]``, at ``scale`` times their distance from the median."""
    median = percentiles_at(judged.percentiles, np.zeros((len(judged), 1)))
    ends: NDArray[np.float64] = median + scale[:, None] * (percentiles_at(judged.percentiles, reach) - median)
    return ends
