"""Metrics of predictions on labelled rows: errors of the mean, coverage and width of bands, pinball loss.

Pure functions of arrays. `model.evaluation.row_scores` makes the arrays. Calibration errors are in
`model.evaluation.metrics`, coverage of subgroups in `model.evaluation.subgroups`.

Average calibration of predictives: the probability integral transform (PIT) and calibration errors.

The PIT of a row is ``u = F(y)``, the distribution function of its predictive at the target. If predictives are
calibrated, u is uniform on [0, 1] (Dawid 1984; Gneiting, Balabdaoui & Raftery 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.distributions.mixtures import normal_cdf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.calibration.conformal import ConformalMap

__all__ = [
    "COVERAGES",
    "HISTOGRAM_BINS",
    "PERCENTILES",
    "BandScores",
    "RowWeights",
    "band_levels",
    "basis_lines",
    "calibration_error",
    "joined_weights",
    "kolmogorov_smirnov",
    "pit_of",
    "plus_minus",
    "point_scores",
    "reliability",
    "summary",
]


@dataclass(frozen=True, slots=True)
class RowWeights:
    """Weights and units of n rows.

    Attributes:
        shares: Weight of each row, ``[n]``, of sum 1.
        units: Number of the exchangeable unit (a group of rows, say) that each row belongs to, ``[n]``, from 0.
        count: Number of units, U.
        weighted: Whether rows differ in weight.
        grouped: Whether rows share units.
    """

    shares: NDArray[np.float64]
    units: NDArray[np.int64]
    count: int
    weighted: bool
    grouped: bool

    @classmethod
    def of(
        cls, rows: int, weights: NDArray[np.float64] | None = None, units: NDArray[np.generic] | None = None
    ) -> Self:
        """Weights of n rows.

        Args:
            rows: n.
            weights: Relative weights, ``[n]``; None: all rows count alike.
            units: Id of each row's unit, ``[n]``, any kind; None: every row is one.
        """
        shares = np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64)
        ids = np.arange(rows)
        if units is not None:
            ids = np.unique(units, return_inverse=True)[1].reshape(-1)
        return cls(shares / shares.sum(), ids, int(ids.max()) + 1, weights is not None, units is not None)

    def of_rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> RowWeights:
        """The weights of selected rows, by a mask or row numbers."""
        shares, units = self.shares[chosen], self.units[chosen]
        return RowWeights.of(len(shares), shares if self.weighted else None, units if self.grouped else None)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means over rows of values ``[n, ...]``."""
        means: NDArray[np.float64] = np.tensordot(self.shares, values, axes=1)
        return means

    def standard_error(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard errors of `mean`, by the spread of the units' parts in it (Huber 1967; Liang and Zeger 1986).

        With a unit a row and equal weights this is the standard deviation over ``sqrt(n)``. With one unit nothing is
        known of the spread, and the error is not finite.

        Args:
            values: ``[n, ...]``.
        """
        if self.count < 2:
            return np.full(values.shape[1:], np.inf)
        deviations = (values - self.mean(values)) * self.shares.reshape(-1, *[1] * (values.ndim - 1))
        parts = np.zeros((self.count, *values.shape[1:]))
        np.add.at(parts, self.units, deviations)
        errors: NDArray[np.float64] = np.sqrt(np.square(parts).sum(axis=0) * self.count / (self.count - 1))
        return errors


COVERAGES = (50, 80, 90, 95)
"""Nominal coverage of the reported bands, per cent."""
PERCENTILES = tuple(float(level) for level in range(1, 100))
"""Percentile levels for the means of pinball loss and calibration error, per cent."""


def band_levels() -> list[float]:
    """Lower and upper percentile of each band of `COVERAGES`, in that order: 25, 75, 10, 90 and so on."""
    return [level for coverage in COVERAGES for level in (50.0 - coverage / 2.0, 50.0 + coverage / 2.0)]


def point_scores(
    errors: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> dict[str, float | None]:
    """Scores of the mean.

    Args:
        errors: Predicted mean minus target, ``[B]``, the target's unit.
        targets: ``[B]``.
        weights: Weight of each row, ``[B]``, in all means and in the variance; None: all are equal.

    Returns:
        ``rmse`` and ``mae``, the target's unit, and ``r2``, the explained share of the variance of these targets,
        ``1 - mean(error^2) / Var(target)``. ``r2`` is None if the targets are all the same.
    """
    square = float(np.average(np.square(errors), weights=weights))
    variance = float(np.average(np.square(targets - np.average(targets, weights=weights)), weights=weights))
    return {
        "rmse": square**0.5,
        "mae": float(np.average(np.abs(errors), weights=weights)),
        "r2": 1.0 - square / variance if variance > 0.0 else None,
    }


@dataclass(frozen=True, slots=True)
class BandScores:
    """Scores of percentiles and bands on B rows, as sums over rows, so that parts can be joined.

    Attributes:
        levels: K percentile levels, which include `band_levels`.
        inside: Whether the target lay in each band of `COVERAGES`, ends included, ``[B, len(COVERAGES)]``.
        width: Weighted sum over rows of each band's width, ``[len(COVERAGES)]``, the target's unit.
        interval_score: Weighted sum over rows of each band's interval score, ``[len(COVERAGES)]``, the target's unit.
        pinball: Weighted sum over rows of the pinball loss at each level, ``[K]``, the target's unit.
        weights: Weight of each row, ``[B]``; None: all are 1.
    """

    levels: tuple[float, ...]
    inside: NDArray[np.bool_]
    width: NDArray[np.float64]
    interval_score: NDArray[np.float64]
    pinball: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls,
        percentiles: NDArray[np.float64],
        targets: NDArray[np.float64],
        levels: Sequence[float],
        weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Score percentiles.

        The interval score (Winkler 1972; Gneiting & Raftery 2007, equation 43) of a band from l to u of nominal
        coverage c is ``u - l + 2 / (1 - c) * (distance of the target y from the band)``. The pinball loss (Koenker &
        Bassett 1978) of a percentile q of level p is ``max(p (y - q), (p - 1) (y - q))``. The true percentiles
        minimise the expectation of both.

        Args:
            percentiles: ``[B, K]``, the target's unit.
            targets: ``[B]``.
            levels: K percentile levels, which include `band_levels`.
            weights: Weight of each row, ``[B]``; None: all are 1.
        """
        column = {level: index for index, level in enumerate(levels)}
        ends = [column[level] for level in band_levels()]
        truth = targets[:, None]
        lower, upper = percentiles[:, ends[0::2]], percentiles[:, ends[1::2]]
        missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
        width = upper - lower
        outside_share = 1.0 - np.array(COVERAGES) / 100.0
        above = truth - percentiles
        share = np.array(levels) / 100.0
        return cls(
            levels=tuple(levels),
            inside=(truth >= lower) & (truth <= upper),
            width=_sum(width, weights),
            interval_score=_sum(width + 2.0 / outside_share * missed, weights),
            pinball=_sum(np.maximum(share * above, (share - 1.0) * above), weights),
            weights=weights,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The scores of all rows, from parts with the same levels."""
        return cls(
            levels=parts[0].levels,
            inside=np.concatenate([part.inside for part in parts]),
            width=np.sum([part.width for part in parts], axis=0),
            interval_score=np.sum([part.interval_score for part in parts], axis=0),
            pinball=np.sum([part.pinball for part in parts], axis=0),
            weights=joined_weights([part.weights for part in parts]),
        )

    def ordered(self, order: NDArray[np.intp]) -> Self:
        """The scores of all rows in another order, ``[B]``."""
        return replace(self, inside=self.inside[order], weights=None if self.weights is None else self.weights[order])

    @property
    def _total(self) -> float:
        return len(self.inside) if self.weights is None else float(self.weights.sum())

    def coverage(self, nominal: int, rows: NDArray[np.int64]) -> float:
        """Share of the given rows whose target lay in the band of this nominal coverage."""
        weights = None if self.weights is None else self.weights[rows]
        return float(np.average(self.inside[rows, COVERAGES.index(nominal)], weights=weights))

    def report(self) -> dict[str, dict[str, float]]:
        """Means over rows.

        Returns:
            ``coverage`` (shares), ``width`` and ``interval_score``, each by nominal coverage: ``{"50": …, "80": …}``.
        """
        values = {
            "coverage": np.average(self.inside, axis=0, weights=self.weights),
            "width": self.width / self._total,
            "interval_score": self.interval_score / self._total,
        }
        names = [str(coverage) for coverage in COVERAGES]
        return {key: dict(zip(names, of_bands.tolist(), strict=True)) for key, of_bands in values.items()}

    def pinball_report(self) -> dict[str, float]:
        """Mean pinball loss of the rows, averaged over `PERCENTILES` (``mean``) and at ``5``, ``50`` and ``95``."""
        of_level = dict(zip(self.levels, (self.pinball / self._total).tolist(), strict=True))
        mean = float(np.mean([of_level[level] for level in PERCENTILES]))
        return {"mean": mean} | {str(level): of_level[float(level)] for level in (5, 50, 95)}


def joined_weights(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    """The weights of all rows, from those of parts: all parts have weights, or none has."""
    return None if parts[0] is None else np.concatenate([part for part in parts if part is not None])


def _sum(values: NDArray[np.float64], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    total: NDArray[np.float64] = values.sum(axis=0) if weights is None else weights @ values
    return total


def summary(scores: Mapping[str, Any], unit: str | None) -> list[str]:
    """Held-out metrics as a few lines for people, each of at most 80 characters if the unit is short.

    What describes the answers that are served comes alone: the scores of raw bands, of other levels and of the judges
    are in the report and in ``model.json``.

    Args:
        scores: The ``metrics`` of a checkpoint.
        unit: The target's unit, if known.
    """
    suffix = f" {unit}" if unit else ""
    errors = scores.get("standard_errors", {})
    kind = "calibrated" if scores.get("calibrated") else "raw"
    shown = [
        f"{title} {plus_minus(scores[key], errors.get(key))}{suffix if key != 'nll' else ' nats'}"
        for key, title in (("rmse", "RMSE"), ("crps", "CRPS"), ("nll", "NLL"))
    ]
    coverage, width = (scores[kind].get(name, {}).get("90") for name in ("coverage", "width"))
    error = errors.get(kind, {}).get("coverage", {}).get("90")
    covered = f"{100.0 * coverage:.1f}{f' ± {100.0 * error:.1f}' if error is not None else ''} %"
    wide = "" if width is None else f" of them, {width:.4g}{suffix} wide on average"
    note = "(near 90 % by construction: murho evaluate on rows kept aside tells more)"
    near = [note] if scores.get("calibrated") and scores.get("all_members") is not None else []
    named = "90 % bands" if kind == "calibrated" else "90 % bands (raw: too few rows to calibrate)"
    return ["   ".join(shown), f"{named} cover {covered}{wide}", *basis_lines(scores), *near]


def basis_lines(scores: Mapping[str, Any]) -> list[str]:
    """Which members the scores are of, as lines for people; none for scores that do not say."""
    described, members = scores.get("members"), scores.get("all_members")
    if described is None or members is None:
        return []
    if "judges" in scores:
        lines = [f"(estimated for all {members} members by the {scores['judges']['members']} that have not seen a row)"]
    elif described == 1 < members:
        lines = [f"(scores of a single member, that has not seen the row: all {members} do better)"]
    elif described < members:
        lines = [f"(scores of the {described} of {members} members that have not seen a row)"]
    else:
        lines = []
    return lines


def plus_minus(value: float, error: float | None) -> str:
    """``2.69 ± 0.11``: a value and its standard error, of which two digits are shown; four of the value without it."""
    if error is None or not (np.isfinite(error) and error > 0.0):
        return f"{value:.4g}"
    decimals = max(0, 1 - int(np.floor(np.log10(error))))
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


HISTOGRAM_BINS = 10


def pit_of(
    scores: NDArray[np.float64],
    calibration: ConformalMap | None = None,
    outside: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """The probability integral transform.

    Args:
        scores: Normal scores of the targets under the raw predictive, ``[N]``.
        calibration: The map from the raw to the calibrated predictive; None for the raw one.
        outside: Mask of the rows whose bands the map may only widen, ``[N]``; None for no row.

    Returns:
        ``u``, ``[N]``, between 0 and 1.
    """
    values = torch.from_numpy(scores)
    if calibration is not None:
        widening = False if outside is None else torch.from_numpy(outside)
        values = calibration.nominal_of(values, widening)
    pit: NDArray[np.float64] = normal_cdf(values).numpy()
    return pit


def reliability(pit: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> dict[str, Any]:
    """Calibration errors of quantiles and of central bands, and the shape of the PIT.

    Args:
        pit: ``[N]``.
        weights: Weight of each row in the shares, ``[N]``; None: all are equal.

    Returns:
        ``calibration_error``, with ``quantiles`` (is a share p of the targets below the percentile of level p?) and
        ``bands`` (is a share p inside the central band of coverage p?), each from `calibration_error`. ``bands`` does
        not show a bias of all predictions. ``pit``, with ``histogram``, the shares of rows in ten equal bins, and
        ``ks``, the distance of `kolmogorov_smirnov`. Calibrated predictives have 0.1 in each bin. More at the ends
        means that the bands are too narrow, more in the middle that they are too wide.
    """
    counts, _ = np.histogram(pit, bins=HISTOGRAM_BINS, range=(0.0, 1.0), weights=weights)
    return {
        "calibration_error": {
            "quantiles": calibration_error(pit, weights),
            "bands": calibration_error(np.abs(2.0 * pit - 1.0), weights),
        },
        "pit": {"histogram": (counts / counts.sum()).tolist(), "ks": kolmogorov_smirnov(pit, weights)},
    }


def calibration_error(uniform: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> dict[str, float]:
    """Differences between the observed share of values up to p, and p (Kuleshov, Fenner & Ermon 2018).

    Args:
        uniform: ``[N]``, uniform on [0, 1] for calibrated predictives.
        weights: Weight of each value, ``[N]``; None: all are equal.

    Returns:
        ``mean_absolute``, ``rms`` and ``max`` of the observed share minus p, over the 99 levels p of
        `model.evaluation.metrics.PERCENTILES`; and ``area``, the miscalibration area, which lies between the diagonal
        and the polygon through (0, 0), the 99 points and (1, 1).
    """
    levels = np.array(PERCENTILES) / 100.0
    ordered, shares = _distribution(uniform, weights)
    errors = shares[np.searchsorted(ordered, levels, side="right")] - levels
    absolute = np.abs(errors)
    before, after = np.append(0.0, errors), np.append(errors, 0.0)
    heights = np.abs(before) + np.abs(after)
    # A side that crosses the diagonal makes two triangles, with bases in the proportion of their heights.
    crossing = before * after < 0.0
    sides = np.where(crossing, (before**2 + after**2) / np.where(heights > 0.0, heights, 1.0), heights)
    return {
        "mean_absolute": float(absolute.mean()),
        "rms": float(np.sqrt(np.mean(errors**2))),
        "max": float(absolute.max()),
        "area": float(sides.sum() / 2.0 / (len(levels) + 1)),
    }


def kolmogorov_smirnov(uniform: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> float:
    """Kolmogorov-Smirnov distance to the uniform distribution: the largest gap of the distribution functions.

    For N uniform values, the distance exceeds ``1.36 / sqrt(N)`` by chance one time in twenty.

    Args:
        uniform: ``[N]``, within [0, 1].
        weights: Weight of each value, ``[N]``; None: all are equal.
    """
    ordered, shares = _distribution(uniform, weights)
    return float(max(np.max(shares[1:] - ordered), np.max(ordered - shares[:-1])))


def _distribution(
    values: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted values ``[N]``, and the share of the first 0, 1, …, N of them, by number or weight, ``[N + 1]``."""
    if weights is None:
        return np.sort(values), np.arange(len(values) + 1) / len(values)
    order = np.argsort(values, kind="stable")
    sums = np.append(0.0, weights[order].cumsum())
    return values[order], sums / sums[-1]
