"""Metrics of predicted numbers on labelled rows: errors of the mean, bands, pinball loss, and the PIT.

Pure functions of arrays; `model.evaluation.row_scores` makes the arrays. Here are also the two things that all of
`model.evaluation` is made of: rows that are scored in parts (`RowArrays`), and what each row counts (`RowWeights`).

The probability integral transform (PIT) of a row is ``u = F(y)``, the distribution function of its predictive at the
target. If predictives are calibrated, u is uniform on [0, 1] (Dawid 1984; Gneiting, Balabdaoui & Raftery 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
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
    "RowArrays",
    "RowWeights",
    "band_levels",
    "band_values",
    "by_coverage",
    "calibration_error",
    "kolmogorov_smirnov",
    "mean_scores",
    "pinball_losses",
    "pit_of",
    "reliability",
]


@dataclass(frozen=True, slots=True)
class RowArrays:
    """A base of dataclasses whose arrays, also those in dicts and in other `RowArrays`, have one entry a row."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All rows of several parts, in order; what is no array is that of the first part."""
        return cls(**{field.name: _joined([getattr(part, field.name) for part in parts]) for field in fields(cls)})

    def of_rows(self, rows: NDArray[Any]) -> Self:
        """Selected rows, by a mask or by row numbers, which may also reorder them."""
        return replace(self, **{field.name: _of_rows(getattr(self, field.name), rows) for field in fields(self)})


def _joined(values: Sequence[Any]) -> Any:
    match values[0]:
        case np.ndarray():
            return np.concatenate(values)
        case dict():
            return {key: _joined([value[key] for value in values]) for key in values[0]}
        case RowArrays():
            return values[0].joined(values)
        case first:
            return first


def _of_rows(value: Any, rows: NDArray[Any]) -> Any:
    match value:
        case np.ndarray():
            return value[rows]
        case dict():
            return {key: _of_rows(part, rows) for key, part in value.items()}
        case RowArrays():
            return value.of_rows(rows)
        case other:
            return other


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

    def of_rows(self, chosen: NDArray[Any]) -> RowWeights:
        """The weights of selected rows, by a mask or row numbers."""
        shares, units = self.shares[chosen], self.units[chosen]
        return RowWeights.of(len(shares), shares if self.weighted else None, units if self.grouped else None)

    def mean(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Means over rows of values ``[n, ...]``."""
        means: NDArray[np.float64] = np.average(values, axis=0, weights=self.shares if self.weighted else None)
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


def mean_scores(
    values: Mapping[str, NDArray[np.float64]], targets: NDArray[np.float64], rows: RowWeights
) -> dict[str, float | None]:
    """Scores of the mean and of the whole distribution, over n rows.

    Args:
        values: Of each row: ``square`` and ``absolute`` error of the mean, ``nll`` (nats) and ``crps``, ``[n]``.
        targets: ``[n]``, the target's unit.
        rows: Weights of the rows.

    Returns:
        ``rmse`` and ``mae``; ``r2``, the explained share of the variance of these targets,
        ``1 - mean(error^2) / Var(target)``, None if they are all the same; ``nll`` and ``crps``.
    """
    # A single row may be extrapolated to less than nothing; not so many.
    square = max(float(rows.mean(values["square"])), 0.0)
    variance = float(rows.mean(np.square(targets - rows.mean(targets))))
    return {
        "rmse": square**0.5,
        "mae": float(rows.mean(values["absolute"])),
        "r2": 1.0 - square / variance if variance > 0.0 else None,
        "nll": float(rows.mean(values["nll"])),
        "crps": float(rows.mean(values["crps"])),
    }


def band_values(
    lower: NDArray[np.float64], upper: NDArray[np.float64], truth: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Width and interval score of each row's bands.

    The interval score (Winkler 1972; Gneiting & Raftery 2007, equation 43) of a band from l to u of nominal coverage c
    is ``u - l + 2 / (1 - c) * (distance of the target y from the band)``.

    Args:
        lower: Lower ends of the bands of `COVERAGES`, ``[B, 4]``, the target's unit.
        upper: Upper ends, ``[B, 4]``.
        truth: Targets, ``[B, 1]``.

    Returns:
        ``width`` and ``interval_score``, ``[B, 4]``.
    """
    missed = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    width = upper - lower
    return {"width": width, "interval_score": width + 2.0 / (1.0 - np.array(COVERAGES) / 100.0) * missed}


def pinball_losses(
    percentiles: NDArray[np.float64], targets: NDArray[np.float64], levels: Sequence[float]
) -> NDArray[np.float64]:
    """Pinball loss (Koenker & Bassett 1978) of percentiles, ``[B, K]``: of q at level p, ``max(p (y-q), (p-1) (y-q))``.

    The true percentiles minimise its expectation, and that of the interval score.
    """
    above, share = targets[:, None] - percentiles, np.array(levels) / 100.0
    losses: NDArray[np.float64] = np.maximum(share * above, (share - 1.0) * above)
    return losses


def by_coverage(values: NDArray[Any]) -> dict[str, float]:
    """Numbers of the four bands by their nominal coverage: ``{"50": …, "80": …}``."""
    return dict(zip(map(str, COVERAGES), values.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class BandScores(RowArrays):
    """Scores of percentiles and bands on B rows. Most are sums over rows, so that a million rows fit into memory.

    Attributes:
        levels: K percentile levels, which include `band_levels`.
        inside: Whether the target lay in each band of `COVERAGES`, ends included, ``[B, 4]``.
        sums: Weighted sums over rows: of 1 (``total``), of ``width`` and ``interval_score`` of each band, ``[4]``, and
            of the ``pinball`` loss at each level, ``[K]``; the target's unit.
    """

    levels: tuple[float, ...]
    inside: NDArray[np.bool_]
    sums: dict[str, Any]

    @classmethod
    def of(
        cls,
        percentiles: NDArray[np.float64],
        targets: NDArray[np.float64],
        levels: Sequence[float],
        weights: NDArray[np.float64] | None = None,
    ) -> Self:
        """Score percentiles.

        Args:
            percentiles: ``[B, K]``, the target's unit.
            targets: ``[B]``.
            levels: K percentile levels, which include `band_levels`.
            weights: Weight of each row, ``[B]``; None: all are 1.
        """
        column = {level: index for index, level in enumerate(levels)}
        ends = percentiles[:, [column[level] for level in band_levels()]]
        lower, upper, truth = ends[:, 0::2], ends[:, 1::2], targets[:, None]
        values = band_values(lower, upper, truth) | {"pinball": pinball_losses(percentiles, targets, levels)}
        shares = np.ones(len(targets)) if weights is None else weights
        sums = {"total": float(shares.sum()), **{name: shares @ of_rows for name, of_rows in values.items()}}
        return cls(tuple(levels), (truth >= lower) & (truth <= upper), sums)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The scores of all rows, from parts with the same levels."""
        sums = {name: sum(part.sums[name] for part in parts) for name in parts[0].sums}
        return cls(parts[0].levels, np.concatenate([part.inside for part in parts]), sums)

    def of_rows(self, rows: NDArray[Any]) -> Self:
        """The scores of all rows in another order; the sums are theirs in any order."""
        return replace(self, inside=self.inside[rows])

    def report(self, rows: RowWeights) -> dict[str, dict[str, float]]:
        """Means over rows, with these weights: ``coverage``, ``width`` and ``interval_score``, each by coverage."""
        means = {name: by_coverage(self.sums[name] / self.sums["total"]) for name in ("width", "interval_score")}
        return {"coverage": by_coverage(rows.mean(self.inside)), **means}

    def pinball_report(self) -> dict[str, float]:
        """Mean pinball loss of the rows, averaged over `PERCENTILES` (``mean``) and at ``5``, ``50`` and ``95``."""
        of_level = dict(zip(self.levels, (self.sums["pinball"] / self.sums["total"]).tolist(), strict=True))
        mean = float(np.mean([of_level[level] for level in PERCENTILES]))
        return {"mean": mean} | {str(level): of_level[float(level)] for level in (5, 50, 95)}


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
