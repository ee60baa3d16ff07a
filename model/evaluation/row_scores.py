"""Scores of a posterior for each labelled row; all metrics are computed from them.

Rows are scored in chunks. Only a few numbers per row are kept, so that a million rows fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.errors import OptionError
from murho.model.evaluation.metrics import COVERAGES, BandScores, band_levels, joined_weights, point_scores
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.distributions.predictive import Predictive
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "CollectedCategories",
    "CollectedScores",
    "RowScores",
    "score_rows",
]

ROWS_PER_CHUNK = 256
ROW_ARRAYS = ("targets", "errors", "nll", "crps", "scores", "epistemic", "aleatoric", "std", "outside")


@dataclass(frozen=True, slots=True)
class RowScores:
    """Scores of N rows; ``[N]``, float64 and in the target's unit unless noted otherwise.

    Attributes:
        targets: Observed targets.
        errors: Predicted mean minus target.
        nll: Negative log density of the predictive at the target, nats.
        crps: Continuous ranked probability score of the predictive.
        scores: Normal score of the target under the raw predictive: the normal quantile of its PIT.
        epistemic: Epistemic standard deviation of the raw predictive.
        aleatoric: Aleatoric standard deviation of the raw predictive.
        std: Standard deviation that answers give: calibrated, if there is a calibration.
        raw: Scores of the raw percentiles.
        calibrated: Scores of the calibrated percentiles; None without calibration.
        outside: Whether the row lies beyond the training rows, bool.
        weights: Weight of each row in the means; None: all are 1.
    """

    targets: NDArray[np.float64]
    errors: NDArray[np.float64]
    nll: NDArray[np.float64]
    crps: NDArray[np.float64]
    scores: NDArray[np.float64]
    epistemic: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    std: NDArray[np.float64]
    raw: BandScores
    calibrated: BandScores | None
    outside: NDArray[np.bool_]
    weights: NDArray[np.float64] | None = None

    @property
    def raw_std(self) -> NDArray[np.float64]:
        """Standard deviation of the raw predictive."""
        return np.hypot(self.epistemic, self.aleatoric)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The scores of several parts, in order; either all parts are calibrated or none."""
        calibrated = [part.calibrated for part in parts if part.calibrated is not None]
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in ROW_ARRAYS},
            raw=BandScores.joined([part.raw for part in parts]),
            calibrated=BandScores.joined(calibrated) if calibrated else None,
            weights=joined_weights([part.weights for part in parts]),
        )

    def mean(self, values: NDArray[np.float64]) -> float:
        """The weighted mean over rows of a value per row, ``[N]``."""
        return float(np.average(values, weights=self.weights))

    def ordered(self, order: NDArray[np.intp]) -> Self:
        """The scores of all rows in another order, ``[N]``."""
        return replace(
            self,
            **{name: getattr(self, name)[order] for name in ROW_ARRAYS},
            raw=self.raw.ordered(order),
            calibrated=None if self.calibrated is None else self.calibrated.ordered(order),
            weights=None if self.weights is None else self.weights[order],
        )

    def report(self) -> dict[str, Any]:
        """Weighted means over rows; ``n`` is the number of rows, whatever their weights.

        Returns:
            ``n, rmse, mae, r2, nll, crps``, and ``raw`` and ``calibrated`` (None without calibration), each a
            `model.evaluation.metrics.BandScores.report` with ``rms_std_ratio``, the RMSE over the root mean square of
            the standard deviation. The scores ``nll`` and ``crps`` are those of the raw predictive.
        """
        return {
            "n": len(self.targets),
            **point_scores(self.errors, self.targets, self.weights),
            "nll": self.mean(self.nll),
            "crps": self.mean(self.crps),
            "raw": self.raw.report() | self._std_ratio(self.raw_std),
            "calibrated": None if self.calibrated is None else self.calibrated.report() | self._std_ratio(self.std),
        }

    def _std_ratio(self, std: NDArray[np.float64]) -> dict[str, float]:
        """RMSE over the root mean square of standard deviations: about 1 where they are right on average."""
        return {"rms_std_ratio": float(np.sqrt(self.mean(np.square(self.errors)) / self.mean(np.square(std))))}


def score_rows(
    posterior: Posterior,
    rows: NDArray[np.float32],
    targets: NDArray[np.float64],
    *,
    samples: int,
    members: Sequence[int] | None = None,
    calibration: ConformalMap | None = None,
    levels: Sequence[float] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> RowScores:
    """Score a posterior on labelled rows.

    Args:
        posterior: The posterior.
        rows: Encoded rows, ``[N, D]``, at least one, or R imputed copies of each, ``[R, N, D]``.
        targets: ``[N]``, the target's unit.
        samples: S, at least 1.
        members: The S draws cycle through these members; by default through all.
        calibration: Map for calibrated bands; None for raw bands only.
        levels: Percentile levels to score. They must include `model.evaluation.metrics.band_levels`, the default.
        weights: Weight of each row in the means, ``[N]``; None: all are 1.

    Raises:
        OptionError: S is 0; the mean of the mu-only network has neither a density nor bands.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    levels = levels or band_levels()
    with torch.inference_mode():
        parts = [
            _score(
                drawn,
                truth,
                levels,
                calibration,
                None if weights is None else weights[chunk * ROWS_PER_CHUNK :][: len(truth)],
            )
            for chunk, (drawn, truth) in enumerate(_chunks(posterior, rows, targets, samples, members))
        ]
    return RowScores.joined(parts)


def _score(
    drawn: DrawnRows,
    truth: Tensor,
    levels: Sequence[float],
    calibration: ConformalMap | None,
    weights: NDArray[np.float64] | None,
) -> RowScores:
    """Score a chunk of rows with targets ``truth``, ``[B]``; `score_rows` describes the other arguments."""
    predictive, observed = drawn.predictive(), _array(truth)
    mean, epistemic, aleatoric = predictive.split()
    raw, served = drawn.answer(levels), None
    if calibration is not None:
        served = drawn.answer(levels, calibration)
    return RowScores(
        targets=observed,
        errors=_array(mean - truth),
        nll=_array(-predictive.log_density(truth)),
        crps=_array(predictive.crps(truth)),
        scores=_normal_scores(predictive, truth),
        epistemic=_array(epistemic),
        aleatoric=_array(aleatoric),
        std=(served or raw)["std"],
        raw=BandScores.of(raw["percentiles"], observed, levels, weights),
        calibrated=None if served is None else BandScores.of(served["percentiles"], observed, levels, weights),
        outside=_array(drawn.outside.mask),
        weights=weights,
    )


def _normal_scores(predictive: Predictive, truth: Tensor) -> NDArray[np.float64]:
    return _array(predictive.normal_score(truth.unsqueeze(0))[0])


def _array(values: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.cpu().numpy()
    return array


def _chunks(
    posterior: Posterior,
    rows: NDArray[np.float32],
    targets: NDArray[np.float64],
    samples: int,
    members: Sequence[int] | None,
) -> Iterator[tuple[DrawnRows, Tensor]]:
    """Chunks of rows under the draws, with their targets."""
    for start in range(0, len(targets), ROWS_PER_CHUNK):
        chunk = torch.from_numpy(rows[..., start : start + ROWS_PER_CHUNK, :]).to(posterior.device)
        truth = torch.from_numpy(targets[start : start + ROWS_PER_CHUNK]).to(posterior.device)
        yield posterior.drawn(chunk, samples, posterior.seed, members=members), truth


class CollectedScores:
    """The scores of N rows, some 75 bytes a row."""

    def __init__(self, count: int, weights: NDArray[np.float64] | None = None) -> None:
        """Make the arrays.

        Args:
            count: N.
            weights: Weight of each row, ``[N]``; None: all are 1.
        """
        self._weights = weights
        self._arrays = {name: np.empty(count, bool if name == "outside" else np.float64) for name in ROW_ARRAYS}
        self._raw, self._calibrated = _Bands(count, weights), _Bands(count, weights)

    def add(self, rows: slice, part: RowScores) -> None:
        """Put the scores of rows into their places."""
        for name, values in self._arrays.items():
            values[rows] = getattr(part, name)
        self._raw.add(rows, part.raw)
        if part.calibrated is not None:
            self._calibrated.add(rows, part.calibrated)

    def joined(self) -> RowScores:
        """The scores of all rows, in order."""
        raw, calibrated = self._raw.joined(), self._calibrated.joined()
        if raw is None:
            raise ValueError("there are no rows")
        return RowScores(**self._arrays, raw=raw, calibrated=calibrated, weights=self._weights)


class _Bands:
    """Scores of the bands of N rows."""

    def __init__(self, count: int, weights: NDArray[np.float64] | None) -> None:
        self._inside, self._weights = np.empty((count, len(COVERAGES)), bool), weights
        self._sums: BandScores | None = None

    def add(self, rows: slice, part: BandScores) -> None:
        self._inside[rows] = part.inside
        sums = self._sums
        self._sums = replace(
            part,
            inside=self._inside,
            weights=self._weights,
            width=part.width if sums is None else sums.width + part.width,
            interval_score=part.interval_score if sums is None else sums.interval_score + part.interval_score,
            pinball=part.pinball if sums is None else sums.pinball + part.pinball,
        )

    def joined(self) -> BandScores | None:
        return self._sums


class CollectedCategories:
    """Canonical columns of N rows, of the features that have groups. Each category is in memory once.

    Attributes:
        columns: ``[N]`` each.
    """

    def __init__(self, schema: Schema, count: int) -> None:
        """Make the columns of N rows."""
        self.columns: dict[str, NDArray[Any]] = {}
        self._known: dict[Any, Any] = {}
        for feature in schema.features:
            if feature.kind is FeatureKind.CATEGORICAL:
                self.columns[feature.name] = np.full(count, None, object)
            elif feature.kind is FeatureKind.BOOLEAN:
                self.columns[feature.name] = np.empty(count)

    def of(self, blocks: Iterable[tuple[slice, Columns]]) -> Iterator[tuple[slice, Columns]]:
        """The same blocks, each with its place among the N rows; their cells are put into their places."""
        for rows, columns in blocks:
            self._add(rows, columns)
            yield rows, columns

    def _add(self, rows: slice, columns: Columns) -> None:
        for name, column in self.columns.items():
            cells = columns[name]
            if cells.dtype == object:  # blocks have texts of their own
                column[rows] = [self._known.setdefault(cell, cell) for cell in cells.tolist()]
            else:
                column[rows] = cells
