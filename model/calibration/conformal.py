"""Conformal calibration of numbers: a map of levels from held-out rows, and the calibrated std.

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
    doi:10.1007/s10472-013-9368-4). Scores are narrowed by what the other members add (`model.evaluation.held_out`).
    There is no finite-sample guarantee, and so the scores may say how far to go from the symmetric map to the signed
    one.
pooled-conformal
    Scores of held-out rows before an update and of new rows (`pooled_map`). No guarantee.

The std is calibrated by the same map g. With the raw quantile function ``Q`` of a score, the calibrated predictive is
the distribution of ``Q(g(z))`` for a standard normal z, and the raw one that of ``Q(z)``. Each row's standard deviation
is multiplied by the ratio of the two spreads, both taken within the central 99 % of z. Beyond it a map rests on a few
rows or none, and one odd row among them could multiply the standard deviation of every answer. So the tails there count
in the proportion of the raw predictive.

Between a few nodes ``Q`` is a natural cubic spline. The spline is linear in its values at the nodes, and so both
variances are quadratic forms in these values, the same for every row and prepared once. The error of the spline
cancels in the ratio to a large part. Compared with a fine integral, for 66 kinds of mixtures (8 and 64 draws; Gaussian,
heteroscedastic, three components, wide components, logarithms of the target) and the maps of seven tables, the ratio
with nine nodes is within 2.0 % in 99 % of the rows. The others are far lognormal tails across the seam of the
transform, wrong by up to 9 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from murho.model.json_validation import MisfitError, Stored, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = [
    "CROSS",
    "POOLED",
    "SPLIT",
    "CalibratedSpread",
    "ConformalMap",
    "Method",
    "asymmetry_share",
    "fit_conformal_map",
    "pooled_map",
    "signed_quantiles",
]


CAUTION = 2.0
"""The asymmetry that counts as chance, in units of its expectation for symmetric scores. With 1, bands of 50 rows were
4 to 9 parts in 1,000 worse (pinball loss) where noise was symmetric; with 2, none to 2 parts."""


def asymmetry_share(scores: NDArray[np.float64], shares: NDArray[np.float64], units: float) -> float:
    """Share of the signed quantiles in a blend with symmetric ones, from 0 to 1.

    For a threshold t, ``A(t)`` is the share of scores above t less the share below -t. For symmetric scores it is
    chance, and its square, averaged over the thresholds at all ``|z|``, has expectation ``1 / (2 n)`` (the signs are
    fair coins; a Cramer-von Mises statistic of symmetry, Butler 1969, doi:10.1214/aoms/1177697387). The blend shrinks
    what was observed by what chance explains: ``max(0, 1 - 2 / (2 n) / mean A^2)``, as the positive-part estimator of
    James and Stein does. So it changes without a jump, and goes to 1 with n wherever the noise is skewed.

    Args:
        scores: ``[n]``.
        shares: Weight of each score, ``[n]``, of sum 1.
        units: Number of exchangeable units behind the scores, at most n.
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    difference = np.cumsum((np.sign(scores) * shares)[order])
    observed = float(np.sum(shares[order] * difference**2))
    coins = min(units, 1.0 / float(np.sum(shares**2)))
    return max(0.0, 1.0 - CAUTION / (2.0 * coins) / observed) if observed > 0.0 else 0.0


def signed_quantiles(
    scores: NDArray[np.float64], shares: NDArray[np.float64], units: float, nominal: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Conformal quantiles of the scores at the median, and above and below it.

    With equal shares and a unit a row, the quantile of level p is the ``(n + 1) p``-th smallest score. Between two,
    they are interpolated. Beyond the last one they go on from it with the mean slope on that side, at least with 1.

    Args:
        scores: ``[n]``.
        shares: Weight of each score, ``[n]``, of sum 1.
        units: Number of exchangeable units behind the scores.
        nominal: Normal scores of the levels, ``[knots]``, positive.

    Returns:
        The quantile at the median, those at ``nominal`` and those at ``-nominal``, ``[knots]`` each.
    """
    sides = [
        _upper_quantiles(sign * scores, shares, units, np.concatenate([[0.0], nominal])) * sign for sign in (1.0, -1.0)
    ]
    centre = 0.5 * float(sides[0][0] + sides[1][0])
    return centre, sides[0][1:], sides[1][1:]


def _upper_quantiles(
    scores: NDArray[np.float64], shares: NDArray[np.float64], units: float, nominal: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles at normal scores ``nominal``, ``[knots]``, which rise from 0."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    levels = np.minimum(np.cumsum(shares[order]), 1.0) * (units / (units + 1.0))
    known: NDArray[np.float64] = torch.special.ndtri(torch.from_numpy(levels)).numpy()
    inside = np.interp(nominal, known, ordered)
    slope = max(1.0, float(ordered[-1] - inside[0]) / float(known[-1]))
    return np.where(nominal <= known[-1], inside, ordered[-1] + (nominal - known[-1]) * slope)


SPLIT, CROSS, POOLED = "split-conformal", "cross-conformal", "pooled-conformal"
Method: TypeAlias = Annotated[str, one_of(SPLIT, CROSS, POOLED)]
MAXIMUM_KNOTS = 400
MINIMUM_ROWS = 10
SIGNED_FROM = 500
"""From this many held-out rows on the map of the method split-conformal is the signed one."""


def _normal_quantile(levels: np.ndarray) -> np.ndarray:
    values: np.ndarray = torch.special.ndtri(torch.from_numpy(np.asarray(levels, dtype=np.float64))).numpy()
    return values


@dataclass(frozen=True)
class ConformalMap(Stored):
    """A monotone map between nominal and calibrated normal scores: a polygon through knots on either side of zero.

    Beyond the last knot n rows give no evidence. The map goes on there with the slope of the line from the middle to
    the last knot, but at least with slope 1.

    Attributes:
        nominal: Nominal scores ``Phi^-1((1 + c) / 2)``, ``[knots]``, increasing, positive.
        observed: Calibrated scores of these, ``[knots]``, increasing.
        rows: n, the number of held-out rows behind the map.
        method: ``split-conformal``, ``cross-conformal`` or ``pooled-conformal``, see the module.
        narrowing: Factor of the held-out scores for what other members add; None where nothing is known of it.
        lower: Calibrated scores of ``-nominal``, ``[knots]``, decreasing; None: the map is odd, ``-observed``.
        centre: Calibrated score of the median.
    """

    nominal: tuple[float, ...]
    observed: tuple[float, ...]
    rows: Annotated[int, Field(ge=1)]
    method: Method = SPLIT
    narrowing: float | None = None
    lower: tuple[float, ...] | None = None
    centre: float = 0.0

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the knots rise from the middle, and fall below it, and are equally many."""
        sides = [("nominal", self.nominal, 0.0, 1.0), ("observed", self.observed, self.centre, 1.0)]
        sides += [] if self.lower is None else [("lower", self.lower, self.centre, -1.0)]
        for name, knots, start, sign in sides:
            if not knots or any(sign * a >= sign * b for a, b in pairwise((start, *knots))):
                raise MisfitError(name, f"{'rising' if sign > 0.0 else 'falling'} numbers beyond {start}", knots)
            if len(knots) != len(self.nominal):
                raise MisfitError(name, f"as many numbers as nominal, {len(self.nominal)}", knots)

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


CENTRAL = 2.5758293035489004
"""Normal score of 99.5 %, the end of the central 99 %."""
NODES = (-1.0, -0.8, -0.55, -0.3, 0.0, 0.3, 0.55, 0.8, 1.0)
"""Raw normal scores of the nodes, as shares of the furthest score that the central 99 % reach to."""
POINTS = 2001
"""Points of the midpoint rule for the quadratic forms."""
KEPT = 64
"""Prepared maps in the cache."""


@dataclass(frozen=True, slots=True)
class CalibratedSpread:
    """The ratio of the calibrated standard deviation to the raw one, prepared for one calibration map.

    Attributes:
        nodes: Normal scores in the raw predictive, rising, ``[n]``, float64.
        factors: ``A`` of three variances ``|u A|^2``, side by side, where u are the quantiles at the nodes minus the
            middle one: raw, calibrated, and calibrated where bands may only widen; ``[n, 3 n]``.
    """

    nodes: Tensor
    factors: Tensor

    @classmethod
    @lru_cache(maxsize=KEPT)
    def of(cls, calibration: ConformalMap, device: torch.device) -> Self:
        """Prepare the quadratic forms.

        Args:
            calibration: The map of the checkpoint.
            device: The device that computes the answers.
        """
        nominal = (np.arange(POINTS) + 0.5) / POINTS * 2.0 * CENTRAL - CENTRAL
        weights = np.exp(-0.5 * nominal**2)
        weights /= weights.sum()
        scores = torch.from_numpy(nominal)
        reached = [nominal, *(calibration.calibrated(scores, widening).numpy() for widening in (False, True))]
        nodes = max(float(np.abs(each).max()) for each in reached) * np.array(NODES)
        factors = [_factor(_spline(each, nodes), weights) for each in reached]
        parts = (torch.from_numpy(part).to(device) for part in (nodes, np.concatenate(factors, axis=1)))
        return cls(*parts)

    def ratio(self, quantiles: Tensor, widening: Tensor) -> Tensor:
        """Calibrated over raw standard deviation of each row, ``[B]``.

        Args:
            quantiles: Raw quantiles at the nodes, ``[B, n]``, in the target's unit.
            widening: The rows where bands may only widen, ``[B]``.

        Returns:
            Finite and positive. 1 for a row whose quantiles are all the same, or so large that their differences
            overflow.
        """
        if not quantiles.is_cuda:  # for a few rows calls dominate, and NumPy's are shorter
            return torch.from_numpy(self._ratio(quantiles.numpy(), widening.numpy()))
        apart = quantiles - quantiles[:, len(NODES) // 2, None]
        apart = apart / apart.abs().amax(dim=1, keepdim=True)
        raw, inside, beyond = (
            (apart @ self.factors).square_().view(len(apart), 3, self.factors.shape[1] // 3).sum(dim=2).unbind(dim=1)
        )
        ratio = (torch.where(widening, beyond, inside) / raw).sqrt_()
        return torch.where(ratio.isfinite() & (ratio > 0.0), ratio, 1.0)

    def _ratio(self, quantiles: Doubles, widening: NDArray[np.bool_]) -> Doubles:
        """`ratio` on the CPU."""
        with np.errstate(all="ignore"):
            apart = quantiles - quantiles[:, len(NODES) // 2, None]
            apart /= np.abs(apart).max(axis=1, keepdims=True)
            apart = apart @ self.factors.numpy()
            apart *= apart
            raw, inside, beyond = apart.reshape(len(apart), 3, -1 if len(apart) else 1).sum(axis=2).T
            if widening.any():
                inside = np.where(widening, beyond, inside)
            ratio: Doubles = np.sqrt(inside / raw)
        ratio[~((ratio > 0.0) & (ratio < np.inf))] = 1.0
        return ratio


def _factor(basis: Doubles, weights: Doubles) -> Doubles:
    """``A`` with ``|u A|^2`` the variance of the function ``basis @ u`` under weights of sum 1; ``[n, n]``."""
    centred = basis - weights @ basis
    values, vectors = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    factor: Doubles = vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


def _spline(points: Doubles, nodes: Doubles) -> Doubles:
    """The natural cubic spline through each node's unit vector, at points between the nodes.

    Its second derivatives solve a tridiagonal system (de Boor 1978, "A practical guide to splines", chapter 4).

    Args:
        points: Within the nodes, ``[P]``.
        nodes: Rising, ``[n]``.

    Returns:
        ``[P, n]``: times the values at the nodes, it gives the spline's values at the points.
    """
    count, widths = len(nodes), np.diff(nodes)
    system, goals = np.eye(count), np.zeros((count, count))
    for node in range(1, count - 1):
        left, right = widths[node - 1], widths[node]
        around = slice(node - 1, node + 2)
        system[node, around] = left, 2.0 * (left + right), right
        goals[node, around] = 6.0 / left, -6.0 / left - 6.0 / right, 6.0 / right
    second = np.linalg.solve(system, goals)
    place = np.clip(np.searchsorted(nodes, points) - 1, 0, count - 2)
    width = widths[place, None]
    after = (points - nodes[place])[:, None] / width
    before = 1.0 - after
    unit = np.eye(count)
    bends = (before**3 - before) * second[place] + (after**3 - after) * second[place + 1]
    spline: Doubles = before * unit[place] + after * unit[place + 1] + width**2 / 6.0 * bends
    return spline


def pooled_map(
    earlier: ConformalMap,
    scores: NDArray[np.float64],
    *,
    narrowing: float | None = None,
    weights: NDArray[np.float64] | None = None,
    units: float | None = None,
) -> ConformalMap:
    """Fit a map to the scores that stand for an earlier map, and to new scores.

    Every row counts alike, earlier or new. So the map moves from the earlier one to that of the new rows as these
    become many, and a further row never changes it much. New scores count as far as they are skewed beyond chance
    (`model.calibration.conformal`), the rest of them as their size with either sign; for the earlier ones that has
    been decided. The earlier rows were scored before the model changed: there is no guarantee.

    Args:
        earlier: The earlier map.
        scores: Normal scores of the new rows, ``[n]``; n may be 0.
        narrowing: Factor of the new scores for what other members add; None: there is none to apply.
        weights: Relative weights of the new rows, ``[n]``; None: all count alike.
        units: Number of exchangeable units behind the new scores; None: every row is one.

    Returns:
        The map. Its narrowing is the mean of both factors, by numbers of rows, of their logarithms.
    """
    count = len(scores)
    old = earlier.representative_scores()
    own = np.asarray(scores, dtype=np.float64) * (narrowing or 1.0)  # the earlier scores are narrowed already
    shares = np.ones(count) if weights is None else weights * (count / weights.sum())
    skewed = asymmetry_share(own, shares / count, count if units is None else units) if count else 0.0
    values = np.concatenate([old, own, -own])
    weight = np.concatenate([np.ones(len(old)), 0.5 * (1.0 + skewed) * shares, 0.5 * (1.0 - skewed) * shares])
    order = np.argsort(values, kind="stable")
    values, weight = values[order], weight[order]
    rows = earlier.rows + count
    # The earlier map leaves room for the new row already, so levels are those in the middle of each score's share.
    known = torch.special.ndtri(torch.from_numpy((np.cumsum(weight) - 0.5 * weight) / rows)).numpy()
    nominal = _knots(rows)
    centre = float(np.interp(0.0, known, values))
    upper, lower = (np.interp(nominal * sign, known, values) for sign in (1.0, -1.0))
    factor = _mean_factor((earlier.narrowing, earlier.rows), (narrowing, count))
    return ConformalMap.of_quantiles(nominal, upper, lower, centre, rows=rows, method=POOLED, narrowing=factor)


def _knots(rows: int) -> NDArray[np.float64]:
    """Normal scores of levels above the median, in the middle of a row's share: evenly spaced, and the outermost."""
    ranks = np.arange(rows // 2, rows)
    if len(ranks) > MAXIMUM_KNOTS:
        spaced = np.linspace(0, len(ranks) - 1, MAXIMUM_KNOTS // 2).round().astype(int)
        ranks = ranks[np.unique(np.concatenate([spaced, np.arange(len(ranks) - MAXIMUM_KNOTS // 2, len(ranks))]))]
    levels = (ranks + 0.5) / rows
    scores: NDArray[np.float64] = torch.special.ndtri(torch.from_numpy(levels[levels > 0.5])).numpy()
    return scores


def _mean_factor(*parts: tuple[float | None, int]) -> float | None:
    known = [(math.log(factor), rows) for factor, rows in parts if factor is not None and rows > 0]
    if not known:
        return None
    return math.exp(sum(log * rows for log, rows in known) / sum(rows for _, rows in known))
