"""Conformal calibration of numbers: a map of levels from held-out rows, and the calibrated std.

Every held-out row has a normal score ``z = Phi^-1(F(y))`` under its own predictive. If the predictive were right, the
scores would be standard normal. The conformal map goes from nominal to observed scores; bands keep the shape of their
row's mixture. The number of rows alone decides between two maps, never the scores:

- the *symmetric* one, of few rows: the central band of nominal coverage c reaches to the conformal quantile of ``|z|``
  at c, the ``(n + 1) c``-th smallest of n (Vovk, Gammerman and Shafer 2005; Lei et al. 2018). It leaves the median
  where it is.
- the *signed* one, of many: the percentile of level p goes to the ``(n + 1) p``-th smallest z, so that the lower and
  the upper side are right each for itself. It moves the median, too. It has twice the variance of the symmetric one.

What holds for a new row depends on who judged the held-out ones:

split-conformal
    No member has seen the held-out rows. Whatever the network, a band covers a new, exchangeable row with probability
    c at least if rows weigh alike and c is a stored level: up to ``n / (n + 1)`` in the symmetric map, and about
    ``(n - 1) / (n + 1)`` in the signed one. Nothing is promised between levels, which are interpolated and of many
    rows thinned out, nor beyond the last one.
cross-conformal
    Only some members have not seen a held-out row, and all answer (Vovk 2015, "Cross-conformal predictors",
    doi:10.1007/s10472-013-9368-4). Scores are narrowed by what the other members add (`model.evaluation.held_out`).
    There is no finite-sample guarantee.
forward-conformal
    The members that judge a row have learned from earlier rows only. Afterwards they go on to the newest rows
    (`model.training.train`), so the networks that answer are not those that the map was fitted to. Rows in time are not
    exchangeable either: no guarantee.
pooled-conformal
    Scores that stand for held-out rows before an update, and those of new rows. Every row counts alike. So the map
    moves from the earlier one to that of the new rows as these become many, and a further row changes it little. The
    earlier rows were scored before the model changed: no guarantee.

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

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr, ndtri
from torch import Tensor

from murho.model.json_validation import MisfitError, Stored, one_of

Doubles = NDArray[np.float64]

SPLIT, CROSS, FORWARD, POOLED = "split-conformal", "cross-conformal", "forward-conformal", "pooled-conformal"
Method: TypeAlias = Annotated[str, one_of(SPLIT, CROSS, FORWARD, POOLED)]
MINIMUM_ROWS = 10
SIGNED_FROM = 100
"""From this many held-out rows on (or groups of them) the map is the signed one. Of 100 rows it costs 0.8 % of pinball
loss where noise is symmetric, and gains 5 % where it is exponential."""
FAR = 1e3
"""Distance beyond the last knots up to which maps go on."""


@dataclass(frozen=True)
class ConformalMap(Stored):
    """A monotone map between nominal and calibrated normal scores: a polygon.

    Beyond the last knots n rows give no evidence. The map goes on there with the slope of the line from the middle to
    the last knot, but at least with slope 1.

    Attributes:
        nominal: Nominal scores, ``[knots]``, increasing from below 0 to above.
        observed: Calibrated scores of these, ``[knots]``, increasing.
        rows: n, the number of held-out rows behind the map.
        method: What is known of the coverage, see the module.
    """

    nominal: tuple[float, ...]
    observed: tuple[float, ...]
    rows: Annotated[int, Field(ge=1)]
    method: Method = SPLIT

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the knots rise, lie on either side of 0, and are equally many."""
        for name, knots in (("nominal", self.nominal), ("observed", self.observed)):
            if any(a >= b for a, b in pairwise(knots)):
                raise MisfitError(name, "rising numbers", knots)
        if not (self.nominal and self.nominal[0] < 0.0 < self.nominal[-1]):
            raise MisfitError("nominal", "numbers on either side of 0", self.nominal)
        if len(self.observed) != len(self.nominal):
            raise MisfitError("observed", f"as many numbers as nominal, {len(self.nominal)}", self.observed)

    @cached_property
    def centre(self) -> float:
        """Calibrated score of the median."""
        return float(np.interp(0.0, self.nominal, self.observed))

    @property
    def is_symmetric(self) -> bool:
        """Whether it is the symmetric map, of few rows or units."""
        return self.observed == tuple(-score for score in reversed(self.observed))

    @property
    def units(self) -> float:
        """u, the number of exchangeable units behind the map: the outermost knot is at ``u / (u + 1)``."""
        beyond = float(ndtr(-self.nominal[-1]))
        return 1.0 / (2.0 * beyond if self.is_symmetric else beyond) - 1.0

    @cached_property
    def _polygon(self) -> tuple[Doubles, Doubles]:
        """The knots, with one far beyond them on either side."""
        nominal, observed = np.array(self.nominal), np.array(self.observed)
        slopes = [max(1.0, float(observed[end] - self.centre) / float(nominal[end])) for end in (0, -1)]
        return (
            np.concatenate([[nominal[0] - FAR], nominal, [nominal[-1] + FAR]]),
            np.concatenate([[observed[0] - FAR * slopes[0]], observed, [observed[-1] + FAR * slopes[1]]]),
        )

    def calibrate(self, scores: Tensor, only_widen: Tensor | bool = False) -> Tensor:
        """Scores in the raw predictive that calibrated bands reach to, in the shape of the nominal scores.

        Args:
            scores: Nominal scores, any shape.
            only_widen: Where a band may only become wider, broadcastable to ``scores``: for rows unlike the held-out
                rows, which are no evidence that the raw band is too wide there. Such a row keeps its median, and each
                side of a band reaches as far from it as the raw or the calibrated one, whichever is further.
        """
        values, only_wider = _arrays(scores, only_widen)
        nominal, observed = self._polygon
        reached = np.interp(values, nominal, observed)
        wider = np.copysign(np.maximum(np.abs(reached - self.centre), np.abs(values)), values)
        return _like(scores, np.where(only_wider, wider, reached))

    def nominal_of(self, scores: Tensor, only_widen: Tensor | bool = False) -> Tensor:
        """Return the inverse of `calibrated`."""
        values, only_wider = _arrays(scores, only_widen)
        nominal, observed = self._polygon
        from_median = np.interp(values + self.centre, observed, nominal)
        closer = np.copysign(np.minimum(np.abs(from_median), np.abs(values)), values)
        return _like(scores, np.where(only_wider, closer, np.interp(values, observed, nominal)))

    def representative_scores(self) -> Doubles:
        """``rows`` scores that stand for the held-out ones: the map of these is this map."""
        levels = np.arange(1, self.rows + 1) / (self.rows + 1)
        if not self.is_symmetric:
            return self.calibrate(torch.from_numpy(ndtri(levels))).numpy()
        sizes = self.calibrate(torch.from_numpy(ndtri(0.5 + 0.5 * levels))).numpy()
        sizes[::2] *= -1.0
        return sizes


@dataclass(frozen=True)
class AdaptedMap:
    """The map of outcomes, and after it the checkpoint's calibration; see `model.calibration.adaptation`.

    Attributes:
        drift_map: From nominal scores to scores under the checkpoint's calibration.
        base: The checkpoint's calibration; None: its answers are raw.
    """

    drift_map: ConformalMap
    base: ConformalMap | None

    def calibrate(self, scores: Tensor, only_widen: Tensor | bool = False) -> Tensor:
        """Scores in the raw predictive, see `ConformalMap.calibrate`; rows that may only widen move all the same."""
        drifted = self.drift_map.calibrate(scores)
        return drifted if self.base is None else self.base.calibrate(drifted, only_widen)

    def nominal_of(self, scores: Tensor, only_widen: Tensor | bool = False) -> Tensor:
        """Return the inverse of `calibrated`."""
        return self.drift_map.nominal_of(scores if self.base is None else self.base.nominal_of(scores, only_widen))


def _arrays(scores: Tensor, only_widen: Tensor | bool) -> tuple[Doubles, NDArray[np.bool_]]:
    mask = only_widen.cpu().numpy() if isinstance(only_widen, Tensor) else np.asarray(only_widen)
    return scores.detach().cpu().numpy(), mask


def _like(scores: Tensor, values: Doubles) -> Tensor:
    return torch.as_tensor(values, dtype=scores.dtype, device=scores.device)


def fit_conformal_map(
    scores: Doubles,
    *,
    weights: Doubles | None = None,
    units: float | None = None,
    method: str = SPLIT,
    earlier: ConformalMap | None = None,
) -> ConformalMap | None:
    """Fit the map to the normal scores of held-out rows.

    Args:
        scores: ``z`` of each held-out row, ``[n]``, from `model.distributions.predictive.Predictive.normal_score`.
        weights: Relative weights of the scores, ``[n]``, not negative. Bands then cover the share c of the *weight* of
            new rows (Tibshirani et al. 2019, "Conformal prediction under covariate shift"). None: all count alike.
        units: Number u of exchangeable units behind the scores, such as groups of rows. The level of a score is
            ``u / (u + 1)`` times the share of the weight up to it. None: n, or with weights ``sum(w)^2 / sum(w^2)``,
            which leaves the new row the weight ``sum(w^2) / sum(w)``.
        method: The method, see the module.
        earlier: The map of earlier rows, which count like the new ones; None: there are none.

    Returns:
        The map; None for fewer than 10 scores of positive weight, which are too few for one.
    """
    shares = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    values = np.asarray(scores, dtype=np.float64)[shares > 0.0]
    shares = shares[shares > 0.0]
    if units is None:
        units = float(shares.sum() ** 2 / np.sum(shares**2)) if len(shares) else 0.0
    if earlier is not None:
        values = np.concatenate([earlier.representative_scores(), values])
        shares = np.concatenate([np.ones(earlier.rows), shares / np.mean(shares) if len(shares) else shares])
        units += earlier.rows
    if len(values) < MINIMUM_ROWS:
        return None
    shares = shares / shares.sum()
    if units >= SIGNED_FROM:
        upper, lower = (_quantiles(sign * values, shares, units) for sign in (1.0, -1.0))
        centre = 0.5 * float(np.interp(0.0, *upper) - np.interp(0.0, *lower))
    else:
        upper = lower = _quantiles(np.abs(values), shares, units, folded=True)
        centre = 0.0
    (above, high), (below, low) = (_knots(*side) for side in (upper, lower))
    nominal = np.concatenate([-below[::-1], [0.0], above])
    observed = np.maximum.accumulate(np.concatenate([-low[::-1], [centre], high]))
    # Ties (a target with few distinct values) are separated.
    observed += TIE * (np.arange(len(observed)) - len(below))
    return ConformalMap(tuple(nominal.tolist()), tuple(observed.tolist()), len(values), method)


TIE = 1e-9
MAXIMUM_KNOTS = 200
"""Knots on either side of the median that are evenly spaced, and as many outermost ones."""


def _quantiles(scores: Doubles, shares: Doubles, units: float, *, folded: bool = False) -> tuple[Doubles, Doubles]:
    """Return the scores, rising, and normal scores of the levels of which they are conformal quantiles, ``[n]`` each.

    Args:
        scores: ``[n]``.
        shares: Weight of each score, ``[n]``, of sum 1.
        units: Number of exchangeable units behind the scores.
        folded: Whether the scores are sizes, so that a level is a coverage.
    """
    order = np.argsort(scores, kind="stable")
    levels = np.minimum(np.cumsum(shares[order]), 1.0) * (units / (units + 1.0))
    return ndtri(0.5 + 0.5 * levels if folded else levels), scores[order]


def _knots(nominal: Doubles, observed: Doubles) -> tuple[Doubles, Doubles]:
    """Return the quantiles above the median; of many, some evenly spaced and all the outermost: most bands are wide."""
    above = np.flatnonzero(nominal > 0.0)
    if len(above) > 2 * MAXIMUM_KNOTS:
        spaced = np.linspace(0, len(above) - 1, MAXIMUM_KNOTS).round().astype(int)
        above = above[np.unique(np.concatenate([spaced, np.arange(len(above) - MAXIMUM_KNOTS, len(above))]))]
    return nominal[above], observed[above]


CENTRAL = 2.5758293035489004
"""Normal score of 99.5 %, the end of the central 99 %."""
NODES = np.array([-1.0, -0.8, -0.55, -0.3, 0.0, 0.3, 0.55, 0.8, 1.0])
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
        forms: The matrices A of three variances ``u A u``, where u are the quantiles at the nodes minus the middle one:
            raw, calibrated, and calibrated where bands may only widen; ``[3, n, n]``.
        moves: Vectors b of ``u b``, by which outcomes move the mean: all rows, and those whose bands may only widen,
            ``[2, n]``; None: the mean stays the raw one.
    """

    nodes: Tensor
    forms: Doubles
    moves: Doubles | None = None

    @classmethod
    @lru_cache(maxsize=KEPT)
    def of(cls, calibration: ConformalMap | AdaptedMap, device: torch.device) -> Self:
        """Prepare the quadratic forms.

        Args:
            calibration: The map of the checkpoint, or of outcomes.
            device: The device of the nodes.
        """
        nominal = (np.arange(POINTS) + 0.5) / POINTS * 2.0 * CENTRAL - CENTRAL
        weights = np.exp(-0.5 * nominal**2)
        weights /= weights.sum()
        scores = torch.from_numpy(nominal)
        reached = [nominal, *(calibration.calibrate(scores, only_widen).numpy() for only_widen in (False, True))]
        before = calibration.base if isinstance(calibration, AdaptedMap) else calibration
        unmoved = [scores.numpy() if before is None else before.calibrate(scores, w).numpy() for w in (False, True)]
        furthest = max(float(np.abs(each).max()) for each in (*reached, *unmoved))
        means, forms = [], []
        for each in (*reached, *unmoved):
            basis = _spline(each / furthest)
            means.append(weights @ basis)
            basis -= means[-1]
            forms.append((basis * weights[:, None]).T @ basis)
        moves = np.stack(means[1:3]) - np.stack(means[3:]) if isinstance(calibration, AdaptedMap) else None
        return cls(torch.from_numpy(furthest * NODES).to(device), np.stack(forms[:3]), moves)

    def ratio(self, quantiles: Doubles, only_widen: NDArray[np.bool_]) -> Doubles:
        """Calibrated over raw standard deviation of each row, ``[B]``.

        Args:
            quantiles: Raw quantiles at the nodes, ``[B, n]``, in the target's unit.
            only_widen: The rows where bands may only widen, ``[B]``.

        Returns:
            Finite and positive. 1 for a row whose quantiles are all the same, or so large that their differences
            overflow.
        """
        with np.errstate(all="ignore"):
            apart = quantiles - quantiles[:, len(NODES) // 2, None]
            apart /= np.abs(apart).max(axis=1, keepdims=True)
            raw, inside, beyond = ((apart @ self.forms) * apart).sum(axis=2)
            ratio = np.sqrt(np.where(only_widen, beyond, inside) / raw)
        return np.where((ratio > 0.0) & (ratio < np.inf), ratio, 1.0)

    def shift_mean(self, mean: Doubles, quantiles: Doubles, only_widen: NDArray[np.bool_]) -> Doubles:
        """Return the mean of each row, ``[B]``, as outcomes move it.

        Args:
            mean: The raw mean, ``[B]``.
            quantiles: See `ratio`.
            only_widen: See `ratio`.
        """
        if self.moves is None:
            return mean
        with np.errstate(all="ignore"):
            by = (quantiles - quantiles[:, len(NODES) // 2, None]) @ self.moves.T
            shifted = (mean + np.where(only_widen, by[:, 1], by[:, 0])).clip(quantiles[:, 0], quantiles[:, -1])
        return np.where(np.isfinite(shifted), shifted, mean)


def _spline(points: Doubles) -> Doubles:
    """Return the natural cubic spline through each node's unit vector.

    It is the sum of ``|x - node|^3`` over the nodes and of a line that has the right values and as many conditions as
    parameters (Green and Silverman 1994, "Nonparametric regression and generalized linear models", section 7.3).

    Args:
        points: In units of the last node, ``[P]``.

    Returns:
        ``[P, n]``: times the values at the nodes, it gives the spline's values at the points.
    """

    def terms(at: Doubles) -> Doubles:
        return np.column_stack([np.abs(at[:, None] - NODES) ** 3, np.ones_like(at), at])

    count = len(NODES)
    system = np.zeros((count + 2, count + 2))
    system[:count] = terms(NODES)
    system[count:, :count] = system[:count, count:].T
    spline: Doubles = terms(points) @ np.linalg.solve(system, np.eye(count + 2, count))
    return spline
