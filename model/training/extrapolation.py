"""How a function may go on beyond the training range: a trial within the training rows.

No row tells what a function does beyond the training rows. Rows near the edge tell what it does there: its value, slope
and curvature. So beyond the range each draw goes on from the edge by a Taylor expansion of its own. At a distance of d
standard deviations of a number, the function value of a draw is

    f(what the network sees) + k (A d z + B d^2 / 2 z'),   z, z' ~ N(0, 1)

with the root mean square slope A and curvature B of the fitted function at this edge. A linear function has no
curvature, and little more is random; a function that bends is as uncertain as it bends. Both terms together are one
normal number for each draw and number (`model.encoding.encoder.Ranges`).

How much of this is needed, the factor k, is tried within the training rows. The trial pretends that the range of a
number ends at the edge of its inner third, and extrapolates the fitted function from there to the rows in the outer
thirds. There the function is known. The *share* of the extrapolated change that it really makes is the share of the
excess that the network will see beyond the true range: about 1 for a trend, 0 where a function bends back or only
wiggles. What is then left over, in the target's own unit, compared with what slope and curvature at the pretended edge
let expect, gives k. One number says little, so half of the evidence is the mean of all numbers.

Numbers that are correlated leave their ranges together, and the fit hardly knows the slope along one of them alone:
such slopes are large and opposed. So their variances are divided by how many they are, the sum of the squared
correlations.

The random terms are the posterior of weights from inputs that are zero for every training row
(`model.encoding.encoder.Encoder.zero_in_training`): the distance of a number beyond its range, a category never seen.
The rows carry no information about such weights, so their posterior is their prior, and it is set in closed form. A fit
would not get there: early stopping leaves these weights near their random start. Dates, hidden directions and odd
combinations have a random slope of the size of the slopes that the function has learned across the range.

All this is ours, measured by `benchmarks.beyond`. A Gaussian process with a squared exponential kernel returns to its
prior within a length scale or two, and deep ensembles go on along the slopes of their members.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.network import Architecture, inverse_softplus
from murho.model.encoding.encoder import Continuation
from murho.model.encoding.feature_encodings import OneHot, Scaled
from murho.model.encoding.outliers import COMBINATION
from murho.model.tables.schema import Columns, FeatureKind, select_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.arrays import Doubles, Places
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded

NEGLIGIBLE_SIGMA = 1e-3
"""sigma of the weights from such inputs to hidden layers and noise: they have almost no effect, but an update with rows
beyond the range can move them."""


def with_extrapolation_prior(
    tensors: Mapping[str, Tensor],
    architecture: Architecture,
    slopes: Mapping[int, float],
    *,
    means: int = 1,
) -> dict[str, Tensor]:
    """Return the tensors with ``N(0, slope_j^2)`` for the weights to the means from each input j zero in training.

    If the last layer reads the inputs (with a skip, or without hidden layers), the function value of a draw changes by
    ``slope_j d_j`` for every such input j at distance ``d_j``; each draw has its own ``slope_j``. So epistemic_std
    grows in proportion to the distance, in the same way for every row. Hidden layers and noise then almost ignore such
    inputs. Without a skip the weights of the first layer get this prior, with ``slope / sqrt(width of the layer)``.

    Args:
        tensors: mu and rho by the names of `Architecture.shapes`; other tensors are returned unchanged.
        architecture: The network's sizes.
        slopes: Number of each input that is zero for every training row → standard deviation of its slope, in
            standardised units of the target.
        means: Number of means among the outputs; the means come first.
    """
    changed = {name: tensor.clone() for name, tensor in tensors.items()}

    def set_scale(layer: int, row: int, sigma: float, outputs: int | None = None) -> None:
        """Set the weights from one input of a layer to its first ``outputs`` (None: all) to ``N(0, sigma^2)``."""
        rho = inverse_softplus(torch.tensor(max(sigma, NEGLIGIBLE_SIGMA), dtype=torch.float64)).float()
        changed[f"layers.{layer}.weight.mu"][:, row, :outputs] = 0.0
        changed[f"layers.{layer}.weight.rho"][:, row, :outputs] = rho

    hidden = architecture.hidden
    for number, slope in slopes.items():
        if hidden and not architecture.skip:
            set_scale(0, number, slope / math.sqrt(hidden[0]))
            continue
        set_scale(0, number, NEGLIGIBLE_SIGMA)
        last, row = (len(hidden), hidden[-1] + number) if hidden else (0, number)
        set_scale(last, row, NEGLIGIBLE_SIGMA)
        set_scale(last, row, slope, means)
    return changed


ROWS, DRAWS = 256, 40
"""Training rows of the trial, and draws of the function."""
INNER = (1 / 3, 2 / 3)
"""Quantiles of a number between which the trial pretends its range to lie."""
STEP = 0.5
"""Length over which slope and curvature are measured, in standard deviations of the number: where rows are few, a fit
wiggles on a smaller scale."""
LEAST_FACTOR = 0.1
"""Factor k of a straight line; the squares of both add up."""
FACTORS = np.geomspace(0.01, 30.0, 48)
"""Factors k that the trial compares, G of them."""
NODE = math.sqrt(3.0)
"""Quadrature of a standard normal number with three nodes, exact up to the fifth power: ± this one with a weight of 1/6
each, and 0."""
ACROSS = (0.05, 0.95)
"""Quantiles of a number between which its slopes across the range are measured."""
LEAST_SLOPE = 0.25
"""Least random slope, as a share of ``1 / sqrt(features)``: the slope of each feature in a linear function that all
features explain alike. Where no row has been, a function may depend on what does not matter elsewhere."""
MOST_LEVELS = 20
"""Most categories of a feature that are compared, the most frequent ones."""
FOLLOWED = 0.5
"""By which share the slope across the range counts less of a number that the function follows in full."""
MOST_OF_A_COMBINATION = 1.0
"""Largest random slope of an odd combination, in standard deviations of the target. Where columns nearly determine each
other, the gradient across them is long and hardly known."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """What the trial found.

    Attributes:
        continuations: Number → how the function goes on beyond its training range. Dates have none: time goes on.
        slopes: Number of each encoded column that is zero in training → standard deviation of its random slope, in
            standardised units of the target.
    """

    continuations: dict[str, Continuation]
    slopes: dict[int, float]


@dataclass(frozen=True, slots=True)
class _Trial:
    """The trial of a number: extrapolation from the edges of its inner third to the rows in its outer thirds.

    Attributes:
        share: Share of the excess that the function follows.
        tested: Widths of the outer thirds below and above, in the number's unit.
        error: Sum over draws and rows of the squared errors of what is followed, in a multiple of the target's unit.
        expected: The same sum as slope and curvature at the pretended edge let expect it, for each of `FACTORS`,
            ``[G]``.
        slopes: Root mean square slope of the function at the true edges below and above, ``[2]``, for a standard
            deviation of the number.
        bends: Root mean square curvature there, ``[2]``.
    """

    share: float
    tested: tuple[float, float]
    error: float
    expected: Doubles
    slopes: Doubles
    bends: Doubles

    def continuation(self, others: Sequence[_Trial], alike: float, least: float, unit: float) -> Continuation:
        """How the function goes on.

        Args:
            others: The trials of all numbers.
            alike: How many numbers leave their range together with this one, itself included.
            least: Least standard deviation of the random slope, in standardised units of the target.
            unit: Standard deviation of the weight that makes the slope random.
        """
        error = self.error + np.mean([other.error for other in others])
        expected = self.expected + np.mean([other.expected for other in others], axis=0)
        tried = np.interp(error, expected, FACTORS) if expected[-1] > 0.0 else 0.0
        factor = math.hypot(float(tried), LEAST_FACTOR)
        slopes, bends = self.slopes / math.sqrt(alike), self.bends / math.sqrt(alike)
        sides = np.array([np.hypot(factor * slopes, least), factor * bends, self.share * slopes]) / unit
        return Continuation(self.share, self.tested, *(tuple(pair) for pair in sides.tolist()))


def extrapolation_trial(posterior: Posterior, columns: Columns, target_std: float) -> Extrapolation:
    """Extrapolate a fit within its training rows.

    Args:
        posterior: The fit. Its encoder has no continuations yet, and inputs that are zero for every training row do not
            change its function.
        columns: Canonical columns of the training rows, ``[N]`` each.
        target_std: Standard deviation of the targets, standardised.
    """
    encoder, count = posterior.encoder, len(next(iter(columns.values())))
    rows = select_rows(columns, np.sort(np.random.default_rng(SEED).permutation(count)[:ROWS]))

    def values_of(encoded: Encoded) -> Doubles:
        """Return function values, ``[S, B]``, standardised."""
        with torch.inference_mode():
            drawn = posterior.draw_rows(encoded, DRAWS, SEED)
            value = posterior.likelihood.function_values(drawn.outputs, drawn.members)
        return np.asarray(value.double().cpu().numpy())

    def values(changed: dict[str, Any], among: Any = slice(None)) -> Doubles:
        """Return function values of the rows, or some of them, with changed cells."""
        return values_of(encoder.encode({name: column[among] for name, column in rows.items()} | changed))

    def in_unit(standardised: Doubles) -> Doubles:
        """Return function values in the target's own unit, or a classifier's as they are; any shape."""
        if encoder.schema.target.classes is not None:
            return standardised
        target = posterior.spec.target
        return np.asarray(target.transform.inverse(torch.from_numpy(target.location + target.scale * standardised)))

    function = values({})
    size = float(np.abs(in_unit(function)).max()) or 1.0  # so that squares stay finite

    def expand(name: str, edges: Doubles, outwards: Doubles, std: float, among: Places) -> Doubles:
        """Value, slope and curvature at the edges of some rows, ``[3, S, n]``, by one-sided differences.

        Args:
            name: The number.
            edges: Where, ``[n]``.
            outwards: 1 where the range ends above, -1 where it ends below, ``[n]``; slopes are outwards.
            std: Standard deviation of the number.
            among: The rows, ``[n]``.
        """
        at, before, earlier = (values({name: edges - back * STEP * std * outwards}, among) for back in range(3))
        slope = (3.0 * at - 4.0 * before + earlier) / (2.0 * STEP)
        return np.array([at, slope, (at - 2.0 * before + earlier) / STEP**2])

    def trial(name: str, std: float, ends: tuple[float, float]) -> _Trial:
        """Extrapolate from the inner third of a number, and expand the function at the ends of its range."""
        present, cells = columns[name][~np.isnan(columns[name])], rows[name]
        low, high = (float(end) for end in np.quantile(present, INNER))
        tested = max(0.0, low - float(present.min())), max(0.0, float(present.max()) - high)
        excess = cells - np.minimum(np.maximum(cells, low), high)
        outer, known = np.flatnonzero(np.abs(excess) > 0.0), np.flatnonzero(~np.isnan(cells))
        if outer.size == 0:
            return _Trial(0.0, tested, 0.0, np.zeros_like(FACTORS), np.zeros(2), np.zeros(2))
        excess = excess[outer]
        at_edge, slope, curvature = expand(name, cells[outer] - excess, np.sign(excess), std, outer)
        distances = np.abs(excess) / std
        linear, quadratic, change = slope * distances, 0.5 * curvature * distances**2, function[:, outer] - at_edge
        squares = float(np.square(linear).sum())
        share = min(1.0, max(0.0, float((linear * change).sum()) / squares)) if squares > 0.0 else 0.0
        followed, spread = at_edge + share * linear, np.hypot(linear, quadratic)
        middle = in_unit(followed)
        error = float(np.square((in_unit(function[:, outer]) - middle) / size).sum())
        ends_of = (in_unit(followed + side * factor * spread) for factor in FACTORS for side in (-NODE, NODE))
        squares_of = [np.square((end - middle) / size).sum() / 6.0 for end in ends_of]
        expected = np.reshape(squares_of, (-1, 2)).sum(axis=1)
        expansions = [
            expand(name, np.full(known.size, end), np.full(known.size, side), std, known)[1:]
            for end, side in zip(ends, (-1.0, 1.0), strict=True)
        ]
        slopes, bends = np.sqrt(np.square(expansions).mean(axis=(2, 3))).T
        return _Trial(share, tested, error, expected, slopes, bends)

    def slope_across(name: str, std: float) -> float:
        """Root mean square, over rows and draws, of the function's slope across the range of a number or date."""
        present, known = columns[name][~np.isnan(columns[name])], ~np.isnan(rows[name])
        low, high = (float(end) for end in np.quantile(present, ACROSS))
        if low == high:
            low, high = float(present.min()), float(present.max())
        if low == high or not known.any():
            return 0.0
        ends = (values({name: np.full(int(known.sum()), end)}, known) for end in (low, high))
        return _difference(*ends) * std / (high - low)

    def spread(name: str, levels: tuple[str, ...]) -> float:
        """Return standard deviation of the effects of a feature's categories: what to expect of a further one."""
        if len(levels) < 2:
            return 0.0
        effects = [values({name: np.full(len(rows[name]), level, object)}) for level in levels]
        return math.sqrt(float(np.var(np.stack(effects), axis=0, ddof=1).mean()))

    slopes, trials = dict[str, float](), dict[str, _Trial]()
    ranges = encoder.ranges
    ends = dict(zip(ranges.features, zip(ranges.minima.tolist(), ranges.maxima.tolist(), strict=True), strict=True))
    for feature, part in zip(encoder.schema.features, encoder.parts, strict=True):
        if isinstance(part, Scaled) and feature.minimum is not None:
            slope = slope_across(feature.name, part.scale.std)
            if feature.kind is FeatureKind.NUMERIC and feature.name in ends:
                tried = trials[feature.name] = trial(feature.name, part.scale.std, ends[feature.name])
                slope *= 1.0 - FOLLOWED * tried.share
            slopes[_beyond(feature.name)] = slope
        elif isinstance(part, OneHot):
            slopes[f"{feature.name} is unseen"] = spread(feature.name, feature.categories[:MOST_LEVELS])
    encoded = encoder.encode(rows)
    for name in () if encoder.whitening is None else encoder.whitening.names:
        column = encoded.inputs[:, encoder.names.index(name)]
        low, high = np.quantile(column, ACROSS)
        of_ends = []
        for end in (low, high):
            changed = encoded.inputs.copy()
            changed[:, encoder.names.index(name)] = end
            of_ends.append(values_of(replace(encoded, inputs=changed)))
        if low < high:
            slopes[_beyond(name)] = _difference(*of_ends) / float(high - low)
    squares = sum(slope**2 for slope in slopes.values())
    usual = math.sqrt(squares / max(len(slopes), 1))  # for other kinds of distance
    # No row tells along which features a combination is odd: the slope is at most the length of the gradient.
    slopes[COMBINATION] = min(MOST_OF_A_COMBINATION * target_std, math.sqrt(squares))
    least = LEAST_SLOPE * target_std / math.sqrt(len(encoder.schema.features))
    scales = {number: max(slopes.get(encoder.names[number], usual), least) for number in encoder.zero_in_training}
    units = {encoder.names[number]: scale for number, scale in scales.items()}
    alike = np.square(_correlations([columns[name] for name in trials])).sum(axis=0)
    continuations = {
        name: tried.continuation([*trials.values()], float(of_name), least, units.get(_beyond(name), least))
        for (name, tried), of_name in zip(trials.items(), alike, strict=True)
    }
    return Extrapolation(continuations, scales)


def _correlations(columns: Sequence[Doubles]) -> Doubles:
    """Correlations of F columns ``[N]``, ``[F, F]``; a missing cell counts as the mean."""
    if not columns:
        return np.empty((0, 0))
    with np.errstate(invalid="ignore", divide="ignore"):  # of columns that do not vary
        centred = np.nan_to_num(np.array(columns) - np.nanmean(columns, axis=1, keepdims=True))
        scaled = np.nan_to_num(centred / np.linalg.norm(centred, axis=1, keepdims=True))
    correlations: Doubles = scaled @ scaled.T
    np.fill_diagonal(correlations, 1.0)
    return correlations


def _beyond(name: str) -> str:
    """Return the input that tells how far a number or a direction lies beyond the training rows."""
    return f"{name} beyond the training rows"


def _difference(first: Doubles, second: Doubles) -> float:
    """Return the root mean square difference of function values."""
    return float(np.sqrt(np.square(second - first).mean()))
