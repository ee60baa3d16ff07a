"""Split-conformal calibration of the predictive distribution.

Every held-out row has a normal score ``z = Phi^-1(F(y))`` under its own predictive. If the predictive were
right, the scores would be standard normal. Calibration maps nominal to observed scores: the central band of
nominal coverage c reaches to the conformal quantile of ``|z|`` at c, the ``(n + 1) c``-th smallest of n
(Vovk et al. 2005; Lei et al. 2018). For a new row that is exchangeable with the held-out rows, the band covers
with probability c, whatever the network. Bands keep the shape of their row's mixture, and the median does not
move.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from murho.model.distributions.ensemble_extrapolation import ensemble_score
from murho.model.json_validation import expect_fields, expect_numbers, expect_whole, wrong

__all__ = ["ConformalMap", "fit_conformal_map", "sharpening"]

METHOD = "split-conformal"
FURTHEST_SCORE = 3.0
"""Limit of a normal score in `sharpening`: a larger one marks an odd row and tells little about the members."""
MAXIMUM_KNOTS = 400
MINIMUM_ROWS = 10


def _normal_quantile(levels: np.ndarray) -> np.ndarray:
    values: np.ndarray = torch.special.ndtri(torch.from_numpy(np.asarray(levels, dtype=np.float64))).numpy()
    return values


@dataclass(frozen=True)
class ConformalMap:
    """A monotone, odd map between nominal and calibrated normal scores: a polygon through (0, 0) and knots.

    Beyond the last knot n rows give no evidence. The map goes on there with the slope of the line from the origin
    to the last knot, but at least with slope 1.

    Attributes:
        nominal: Nominal scores ``Phi^-1((1 + c) / 2)``, ``[knots]``, increasing, positive.
        observed: Conformal quantiles of ``|z|`` at these scores, ``[knots]``, increasing, positive.
        rows: n, the number of held-out rows behind the map.
    """

    nominal: tuple[float, ...]
    observed: tuple[float, ...]
    rows: int

    @cached_property
    def _knots(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Nominal and observed scores from 0 on, and the slope beyond them."""
        slope = max(1.0, self.observed[-1] / self.nominal[-1])
        return np.array([0.0, *self.nominal]), np.array([0.0, *self.observed]), slope

    def calibrated(self, scores: Tensor, widening: Tensor | bool = False) -> Tensor:
        """Scores in the raw predictive that calibrated bands reach to, in the shape of the nominal scores.

        Args:
            scores: Nominal scores, any shape.
            widening: Where a band may only become wider, broadcastable to ``scores``: for rows unlike the held-out
                rows, which are no evidence that the raw band is too wide there.
        """
        mapped = _interpolate(scores, *self._knots)
        narrower = torch.as_tensor(widening, device=scores.device) & (mapped.abs() < scores.abs())
        return torch.where(narrower, scores, mapped)

    def nominal_of(self, scores: Tensor, widening: Tensor | bool = False) -> Tensor:
        """The inverse of `calibrated`."""
        nominal, observed, slope = self._knots
        mapped = _interpolate(scores, observed, nominal, 1.0 / slope)
        narrower = torch.as_tensor(widening, device=scores.device) & (mapped.abs() > scores.abs())
        return torch.where(narrower, scores, mapped)

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {
            "method": METHOD,
            "rows": self.rows,
            "nominal": list(self.nominal),
            "observed": list(self.observed),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: The knots are not two increasing lists of positive numbers of the same length, or a field
                is missing or unknown.
        """
        fields = expect_fields(data, "calibration", ("method", "rows", "nominal", "observed"))
        if fields["method"] != METHOD:
            raise wrong("calibration.method", f'"{METHOD}"', fields["method"])
        rows = expect_whole(fields["rows"], "calibration.rows", least=1)
        nominal, observed = (expect_numbers(fields[name], f"calibration.{name}") for name in ("nominal", "observed"))
        for name, knots in (("nominal", nominal), ("observed", observed)):
            if not knots or any(a >= b for a, b in zip((0.0, *knots), knots, strict=False)):
                raise wrong(f"calibration.{name}", "increasing positive numbers, at least one", knots)
        if len(nominal) != len(observed):
            raise wrong("calibration.observed", f"as many numbers as nominal, {len(nominal)}", observed)
        return cls(nominal, observed, rows)


def _interpolate(scores: Tensor, source: np.ndarray, goal: np.ndarray, slope: float) -> Tensor:
    """Map scores by the odd polygon through source and goal knots, and by a line beyond the last knot."""
    magnitude = scores.detach().abs().cpu().numpy()
    beyond = goal[-1] + (magnitude - source[-1]) * slope
    mapped = np.where(magnitude <= source[-1], np.interp(magnitude, source, goal), beyond)
    return torch.sign(scores) * torch.as_tensor(mapped, dtype=scores.dtype, device=scores.device)


def fit_conformal_map(
    scores: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    units: np.ndarray | None = None,  # noqa: ARG001 - rows count one by one here
) -> ConformalMap | None:
    """Fit the map to the normal scores of held-out rows.

    Args:
        scores: ``z`` of each held-out row, ``[n]``, from `model.distributions.predictive.Predictive.normal_score`.
        weights: Weight of each row, ``[n]``, positive. The bands then cover the share c of the *weight* of new rows
            (Tibshirani et al. 2019, "Conformal prediction under covariate shift"). A row's level is the weight up to
            and including it over the weight of all rows and one new row. The new row's weight counts as its mean under
            the weighted rows, ``sum(w^2) / sum(w)``. None: all are equal.
        units: Not used.

    Returns:
        The map; None for fewer than 10 rows, which are too few for one.
    """
    count = len(scores)
    if count < MINIMUM_ROWS:
        return None
    magnitudes, levels = _conformal_levels(np.abs(scores), weights)
    ranks = np.arange(1, count + 1)
    if count > MAXIMUM_KNOTS:
        # Evenly spaced ranks, then every one of the outermost ranks: most requests are for wide bands.
        ranks = np.unique(
            np.concatenate(
                [
                    np.linspace(1, count, MAXIMUM_KNOTS // 2).round(),
                    np.arange(count - MAXIMUM_KNOTS // 2, count) + 1,
                ]
            )
        ).astype(int)
    nominal = _normal_quantile(0.5 + 0.5 * levels[ranks - 1])
    # Ties and zeros (a target with few distinct values) would make the map constant: separate them by 1e-9.
    observed = np.maximum.accumulate(np.maximum(magnitudes[ranks - 1], 1e-9))
    observed = observed + 1e-9 * np.arange(len(observed))
    return ConformalMap(tuple(nominal.tolist()), tuple(observed.tolist()), count)


def _conformal_levels(magnitudes: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Sorted magnitudes, and the conformal level of each: its rank, or its share of the weight, ``[n]`` each."""
    if weights is None:
        return np.sort(magnitudes), np.arange(1, len(magnitudes) + 1) / (len(magnitudes) + 1)
    order = np.argsort(magnitudes, kind="stable")
    new_row = float((weights**2).sum() / weights.sum())
    return magnitudes[order], weights[order].cumsum() / (weights.sum() + new_row)


def sharpening(
    alone: np.ndarray, together: np.ndarray, *, judges: int, members: int, weights: np.ndarray | None = None
) -> float:
    """Factor by which normal scores shrink when all members answer, not only those that have not seen the row.

    The spread of scores falls with the number m of members about as ``a + b / m``: the errors of single members
    average out, and their disagreement widens the mixture. One member and ``judges`` members give the line;
    `model.distributions.ensemble_extrapolation` extends it to all M.

    Args:
        alone: Scores of the rows under single members that have not seen them, ``[judges, n]`` or a part of these.
        together: Scores under the mixture of all members that have not seen the row, ``[n]``.
        judges: Number of members that have not seen a row, at least 2.
        members: M.
        weights: Weight of each row in the means, ``[n]``; None: all are equal.

    Returns:
        The factor, from 0.5 to 1.
    """
    one, several = (
        float(np.average(np.minimum(np.abs(scores), FURTHEST_SCORE), axis=-1, weights=weights).mean())
        for scores in (alone, together)
    )
    if several <= 0.0:
        return 1.0
    return float(np.clip(ensemble_score(one, several, judges, members) / several, 0.5, 1.0))
