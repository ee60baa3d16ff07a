"""Conformal calibration of the predictive distribution.

Every held-out row has a normal score ``z = Phi^-1(F(y))`` under its own predictive. If the predictive were right, the
scores would be standard normal. The conformal map goes from nominal to observed scores; bands keep the shape of their
row's mixture. `fit_conformal_map` makes it of two maps:

- the *symmetric* one: the central band of nominal coverage c reaches to the conformal quantile of ``|z|`` at c, the
  ``(n + 1) c``-th smallest of n (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). It leaves the median where it is.
- the *signed* one: the percentile of level p goes to the ``(n + 1) p``-th smallest z, so that the lower and the upper
  side are right each for itself. It moves the median, too. It has twice the variance of the symmetric one.

What holds for a new row depends on who judged the held-out ones:

split-conformal
    No member has seen the held-out rows. A band covers a new, exchangeable row with probability c at least, whatever
    the network. The number of rows alone decides between the two maps, never the scores: either has the guarantee.
cross-conformal
    Only some members have not seen a held-out row, and all answer (Vovk 2015, "Cross-conformal predictors",
    doi:10.1007/s10472-013-9368-4). Scores are narrowed by what the other members add
    (`model.evaluation.ensemble_estimate`). There is no finite-sample guarantee, and so the scores may say how far to
    go from the symmetric map to the signed one.
pooled-conformal
    Scores of held-out rows before an update and of new rows (`model.distributions.pooling`). No guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from murho.model.distributions.asymmetry import asymmetry_share, signed_quantiles
from murho.model.json_validation import expect_fields, expect_number, expect_numbers, expect_whole, wrong

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CROSS", "POOLED", "SPLIT", "ConformalMap", "fit_conformal_map"]

SPLIT, CROSS, POOLED = "split-conformal", "cross-conformal", "pooled-conformal"
METHODS = (SPLIT, CROSS, POOLED)
MAXIMUM_KNOTS = 400
MINIMUM_ROWS = 10
SIGNED_FROM = 500
"""From this many held-out rows on the map of the method split-conformal is the signed one."""


def _normal_quantile(levels: np.ndarray) -> np.ndarray:
    values: np.ndarray = torch.special.ndtri(torch.from_numpy(np.asarray(levels, dtype=np.float64))).numpy()
    return values


@dataclass(frozen=True)
class ConformalMap:
    """A monotone map between nominal and calibrated normal scores: a polygon through knots on either side of zero.

    Beyond the last knot n rows give no evidence. The map goes on there with the slope of the line from the middle to
    the last knot, but at least with slope 1.

    Attributes:
        nominal: Nominal scores ``Phi^-1((1 + c) / 2)``, ``[knots]``, increasing, positive.
        observed: Calibrated scores of these, ``[knots]``, increasing.
        rows: n, the number of held-out rows behind the map.
        method: ``split-conformal``, ``cross-conformal`` or ``pooled-conformal``, see the module. In files of Murho
            0.1 it is ``split-conformal`` whatever the members.
        narrowing: Factor of the held-out scores for what other members add; None where nothing is known of it.
        lower: Calibrated scores of ``-nominal``, ``[knots]``, decreasing; None: the map is odd, ``-observed``.
        centre: Calibrated score of the median.
    """

    nominal: tuple[float, ...]
    observed: tuple[float, ...]
    rows: int
    method: str = SPLIT
    narrowing: float | None = None
    lower: tuple[float, ...] | None = None
    centre: float = 0.0

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        """The upper and the lower side: distances from the median, both positive."""
        lower = self.observed if self.lower is None else tuple(-score for score in self.lower)
        return _Side.of(self.nominal, self.observed, self.centre), _Side.of(self.nominal, lower, -self.centre)

    def calibrated(self, scores: Tensor, widening: Tensor | bool = False) -> Tensor:
        """Scores in the raw predictive that calibrated bands reach to, in the shape of the nominal scores.

        Args:
            scores: Nominal scores, any shape.
            widening: Where a band may only become wider, broadcastable to ``scores``: for rows unlike the held-out
                rows, which are no evidence that the raw band is too wide there. Such a row keeps its median, and each
                side of a band reaches as far from it as the raw or the calibrated one, whichever is further.
        """
        values, only_wider = _arrays(scores, widening)
        distance, above = np.abs(values), values >= 0.0
        reach = self._of_side(above, distance, inverse=False)
        plain = self.centre + np.where(above, reach, -reach)
        wider = np.copysign(np.maximum(reach, distance), values)
        return _like(scores, np.where(only_wider, wider, plain))

    def nominal_of(self, scores: Tensor, widening: Tensor | bool = False) -> Tensor:
        """The inverse of `calibrated`."""
        values, only_wider = _arrays(scores, widening)
        from_median = np.where(only_wider, values, values - self.centre)
        distance, above = np.abs(from_median), from_median >= 0.0
        nominal = self._of_side(above, distance, inverse=True)
        nominal = np.where(only_wider, np.minimum(nominal, distance), nominal)
        return _like(scores, np.copysign(nominal, from_median))

    def _of_side(self, above: NDArray[np.bool_], distance: NDArray[np.float64], *, inverse: bool) -> np.ndarray:
        upper, lower = self._sides
        if self.lower is None:
            return upper.mapped(distance, inverse=inverse)
        return np.where(above, upper.mapped(distance, inverse=inverse), lower.mapped(distance, inverse=inverse))

    def representative_scores(self) -> NDArray[np.float64]:
        """``rows`` scores, in rising order, that stand for the held-out ones: their quantiles are this map."""
        levels = (np.arange(self.rows) + 0.5) / self.rows
        return self.calibrated(torch.from_numpy(_normal_quantile(levels))).numpy()

    @classmethod
    def of_quantiles(
        cls,
        nominal: NDArray[np.float64],
        upper: NDArray[np.float64],
        lower: NDArray[np.float64],
        centre: float,
        **fields: Any,
    ) -> Self:
        """A map of quantiles at ``nominal``, ``-nominal`` (``[knots]`` each) and the median; ties are separated."""
        return cls(
            nominal=tuple(nominal.tolist()),
            observed=_rising(upper, centre),
            lower=tuple(-score for score in _rising(-lower, -centre)),
            centre=centre,
            **fields,
        )

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        fields: dict[str, Any] = {
            "method": self.method,
            "rows": self.rows,
            "nominal": list(self.nominal),
            "observed": list(self.observed),
        }
        if self.lower is not None:
            fields |= {"lower": list(self.lower), "centre": self.centre}
        return fields if self.narrowing is None else fields | {"narrowing": self.narrowing}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: The knots do not rise, their lists differ in length, the method is unknown, or a field is
                missing or unknown.
        """
        optional = ("lower", "centre", "narrowing")
        fields = expect_fields(data, "calibration", ("method", "rows", "nominal", "observed"), optional=optional)
        if fields["method"] not in METHODS:
            raise wrong("calibration.method", " or ".join(f'"{method}"' for method in METHODS), fields["method"])
        rows = expect_whole(fields["rows"], "calibration.rows", least=1)
        centre, narrowing = (
            expect_number(fields[name], f"calibration.{name}") if name in fields else None
            for name in ("centre", "narrowing")
        )
        middle = centre or 0.0
        nominal, observed = (expect_numbers(fields[name], f"calibration.{name}") for name in ("nominal", "observed"))
        lower = expect_numbers(fields["lower"], "calibration.lower") if "lower" in fields else None
        parts = (("nominal", nominal, 0.0, 1.0), ("observed", observed, middle, 1.0), ("lower", lower, middle, -1.0))
        for name, knots, start, sign in parts:
            if knots is None:
                continue
            if not knots or any(sign * a >= sign * b for a, b in zip((start, *knots), knots, strict=False)):
                kind = "increasing positive" if start == 0.0 and sign > 0.0 else "rising" if sign > 0.0 else "falling"
                raise wrong(f"calibration.{name}", f"{kind} numbers, at least one", knots)
            if len(knots) != len(nominal):
                raise wrong(f"calibration.{name}", f"as many numbers as nominal, {len(nominal)}", knots)
        return cls(nominal, observed, rows, fields["method"], narrowing, lower, middle)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a map, as distances from the median: a polygon from (0, 0), and a line beyond its last knot."""

    nominal: NDArray[np.float64]
    observed: NDArray[np.float64]
    slope: float

    @classmethod
    def of(cls, nominal: tuple[float, ...], observed: tuple[float, ...], centre: float) -> Self:
        reach = np.array([0.0, *observed])
        reach[1:] -= centre
        return cls(np.array([0.0, *nominal]), reach, max(1.0, float(reach[-1]) / nominal[-1]))

    def mapped(self, distance: NDArray[np.float64], *, inverse: bool) -> np.ndarray:
        source, goal, slope = self.nominal, self.observed, self.slope
        if inverse:
            source, goal, slope = goal, source, 1.0 / slope
        beyond = goal[-1] + (distance - source[-1]) * slope
        return np.where(distance <= source[-1], np.interp(distance, source, goal), beyond)


def _arrays(scores: Tensor, widening: Tensor | bool) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    mask = widening.cpu().numpy() if isinstance(widening, Tensor) else np.asarray(widening)
    return scores.detach().cpu().numpy(), mask


def _like(scores: Tensor, values: NDArray[np.float64]) -> Tensor:
    return torch.as_tensor(values, dtype=scores.dtype, device=scores.device)


def fit_conformal_map(
    scores: NDArray[np.float64],
    *,
    weights: NDArray[np.float64] | None = None,
    units: float | None = None,
    method: str = SPLIT,
    narrowing: float | None = None,
) -> ConformalMap | None:
    """Fit the map to the normal scores of held-out rows.

    Args:
        scores: ``z`` of each held-out row, ``[n]``, from `model.distributions.predictive.Predictive.normal_score`.
        weights: Relative weights of the scores, ``[n]``, not negative. Bands then cover the share c of the *weight* of
            new rows (Tibshirani et al. 2019, "Conformal prediction under covariate shift"). None: all count alike.
        units: Number u of exchangeable units behind the scores, such as groups of rows. The level of a score is
            ``u / (u + 1)`` times the share of the weight up to it. None: n, or with weights ``sum(w)^2 / sum(w^2)``,
            which leaves the new row the weight ``sum(w^2) / sum(w)``.
        method: The method, see the module. Only other methods than ``split-conformal`` let the scores decide how
            far the map is from symmetric.
        narrowing: Factor of the scores, for what members that have seen the rows add; None: there is none to apply.

    Returns:
        The map; None for fewer than 10 scores of positive weight, which are too few for one.
    """
    shares = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    values = np.asarray(scores, dtype=np.float64)[shares > 0.0] * (1.0 if narrowing is None else narrowing)
    shares = shares[shares > 0.0]
    count = len(values)
    if count < MINIMUM_ROWS:
        return None
    shares = shares / shares.sum()
    units = 1.0 / float(np.sum(shares**2)) if units is None else float(units)
    guaranteed = method == SPLIT
    signed = (1.0 if count >= SIGNED_FROM else 0.0) if guaranteed else asymmetry_share(values, shares, units)
    order = np.argsort(np.abs(values), kind="stable")
    ranks = _ranks(count, whole=guaranteed and signed > 0.0)
    levels = np.cumsum(shares[order])[ranks - 1] * (units / (units + 1.0))
    nominal = _normal_quantile(0.5 + 0.5 * levels)
    symmetric = np.abs(values)[order][ranks - 1]
    if not signed:
        return ConformalMap(tuple(nominal.tolist()), _rising(symmetric, 0.0), count, method, narrowing)
    centre, upper, lower = signed_quantiles(values, shares, units, nominal)
    upper, lower = (
        signed * side + (1.0 - signed) * straight for side, straight in ((upper, symmetric), (lower, -symmetric))
    )
    return ConformalMap.of_quantiles(
        nominal, upper, lower, signed * centre, rows=count, method=method, narrowing=narrowing
    )


def _ranks(count: int, *, whole: bool) -> NDArray[np.int64]:
    """Ranks of the scores that become knots, from 1: at most 400.

    Args:
        count: n, the number of scores.
        whole: Take those at whose levels the signed map has whole ranks, too: ``(n + 1 + rank) / 2``.
    """
    ranks = np.arange(1 + count % 2, count + 1, 2) if whole else np.arange(1, count + 1)
    if len(ranks) <= MAXIMUM_KNOTS:
        return ranks
    # Evenly spaced ranks, then every one of the outermost ranks: most requests are for wide bands.
    half = MAXIMUM_KNOTS // 2
    spaced = np.linspace(0, len(ranks) - 1, half).round().astype(int)
    chosen: NDArray[np.int64] = ranks[np.unique(np.concatenate([spaced, np.arange(len(ranks) - half, len(ranks))]))]
    return chosen


def _rising(scores: NDArray[np.float64], start: float) -> tuple[float, ...]:
    """The scores, made to rise from ``start``. Ties (a target with few distinct values) are separated by 1e-9."""
    risen = np.maximum.accumulate(np.maximum(scores, start))
    return tuple((risen + 1e-9 * np.arange(1, len(risen) + 1)).tolist())
