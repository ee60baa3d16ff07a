"""How far to follow a number beyond its training range, and how much to doubt there: a trial within the training rows.

No row tells what a function does beyond the training rows. Rows near the edge tell what it does there. So the trial
pretends that the range of a number ends at the edge of its inner third, and extrapolates the fitted function from there
along its slope, row by row. The *share* of the extrapolated change that the fitted function really makes is the share
of the excess that the network will see beyond the true range (`model.encoding.encoder.Ranges`): about 1 for a trend, 0
where a function bends or only wiggles. It was tested as far as the outer thirds reach, and is trusted as far.

The doubt beyond the range is a random slope. Its standard deviation is the size of the slopes that the function has
learned across the range of this number. An unimportant number hardly changes an answer, however far out it lies; one
that matters has a slope of its own size. What the function follows is in its mean: a number followed in full is doubted
half as much as one that is held.

Doubt has a limit where a function does not go on (`Continuation.furthest`): a number that is held at its edge leaves
the function as uncertain as targets are apart, and no more (as a stationary Gaussian process returns to its prior).
With share s the limit is ``1 / (1 - s)`` standard deviations of the target; a trend that is followed in full has none.

These slopes are the posterior of weights from inputs that are zero for every training row
(`model.encoding.encoder.Encoder.zero_in_training`): the distance of a number beyond its range, a category never seen.
The rows carry no information about such weights, so their posterior is their prior, and it is set in closed form. A fit
would not get there: early stopping leaves these weights near their random start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.network import Architecture, inverse_softplus
from murho.model.encoding.encoder import Continuation
from murho.model.encoding.transforms import OneHot, Scaled
from murho.model.encoding.unlike import COMBINATION
from murho.model.tables.schema import Columns, FeatureKind, select_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded

__all__ = ["NEGLIGIBLE_SIGMA", "Extrapolation", "extrapolation_trial", "with_extrapolation_prior"]

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
    """The tensors of a fit, with ``N(0, slope_j^2)`` for the weights to the means from each input j zero in training.

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
STEP = 0.25
"""Length over which the slope at the edge is measured, in standard deviations of the number."""
ACROSS = (0.05, 0.95)
"""Quantiles of a number between which its slopes across the range are measured."""
LEAST_SHARE = 0.25
"""Least slope, as a share of ``1 / sqrt(features)``: the slope of each feature in a linear function that all features
explain alike. Where no row has been, a function may depend on what does not matter elsewhere."""
MOST_LEVELS = 20
"""Most categories of a feature that are compared, the most frequent ones."""
FOLLOWED = 0.5
"""By which share the doubt is smaller of a number that the function follows in full."""
MOST_DOUBT = 1.0
"""Largest doubt along a number that is held at its edge, in standard deviations of the target or, where these are more
as the logits of classes are, of the function over the training rows."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """What the trial found.

    Attributes:
        continuations: Number → what the network sees of it beyond its training range, and how far it is doubted. Dates
            have none: time goes on.
        slopes: Number of each encoded column that is zero in training → standard deviation of its random slope, in
            standard deviations of the target (behind a transform: of the transformed target).
    """

    continuations: dict[str, Continuation]
    slopes: dict[int, float]


def extrapolation_trial(posterior: Posterior, columns: Columns) -> Extrapolation:
    """Extrapolate a fit within its training rows.

    Args:
        posterior: The fit; its encoder has no continuations yet.
        columns: Canonical columns of the training rows, ``[N]`` each.
    """
    encoder, count = posterior.encoder, len(next(iter(columns.values())))
    rows = select_rows(columns, np.sort(np.random.default_rng(SEED).permutation(count)[:ROWS]))

    def values_of(encoded: Encoded) -> NDArray[np.float64]:
        """Function values, ``[S, B]``, in standard deviations of the target."""
        with torch.inference_mode():
            drawn = posterior.drawn(encoded, DRAWS, SEED)
            value = posterior.likelihood.function_values(drawn.outputs, drawn.members)
        return np.asarray(value.double().cpu().numpy())

    def values(changed: dict[str, Any], among: Any = slice(None)) -> NDArray[np.float64]:
        """Function values of the rows, or some of them, with changed cells."""
        return values_of(encoder.encode({name: column[among] for name, column in rows.items()} | changed))

    function = values({})

    def continuation(name: str, std: float) -> Continuation:
        """Extrapolate from the inner third of a number to the rows in its outer thirds."""
        present, cells = columns[name][~np.isnan(columns[name])], rows[name]
        low, high = (float(end) for end in np.quantile(present, INNER))
        edge = np.minimum(np.maximum(cells, low), high)
        outer = np.flatnonzero(np.abs(cells - edge) > 0.0)
        below, above = max(0.0, low - float(present.min())), max(0.0, float(present.max()) - high)
        if outer.size == 0:
            return Continuation(0.0, below, above)
        edge, cells = edge[outer], cells[outer]
        at_edge = values({name: edge}, outer)
        before_edge = values({name: edge - np.sign(cells - edge) * STEP * std}, outer)
        extrapolated = (at_edge - before_edge) / STEP * np.abs(cells - edge) / std
        change = function[:, outer] - at_edge
        squares = float(np.square(extrapolated).sum())
        share = float((extrapolated * change).sum()) / squares if squares > 0.0 else 0.0
        return Continuation(min(1.0, max(0.0, share)), below, above)

    def slope_of(name: str, std: float) -> float:
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
        """Standard deviation of the effects of a feature's categories: what to expect of a further one."""
        if len(levels) < 2:
            return 0.0
        effects = [values({name: np.full(len(rows[name]), level, object)}) for level in levels]
        return math.sqrt(float(np.var(np.stack(effects), axis=0, ddof=1).mean()))

    slopes, continuations = dict[str, float](), dict[str, Continuation]()
    for feature, part in zip(encoder.schema.features, encoder.parts, strict=True):
        if isinstance(part, Scaled) and feature.minimum is not None:
            slope = slope_of(feature.name, part.scale.std)
            if feature.kind is FeatureKind.NUMERIC:
                followed = continuation(feature.name, part.scale.std)
                continuations[feature.name] = followed
                slope *= 1.0 - FOLLOWED * followed.share
            slopes[_beyond(feature.name)] = slope
        elif isinstance(part, OneHot):
            slopes[f"{feature.name} is unseen"] = spread(feature.name, feature.categories[:MOST_LEVELS])
    encoded = encoder.encode(rows)
    for name in () if encoder.whitening is None else encoder.whitening.names:
        column = encoded.inputs[:, encoder.names.index(name)]
        ends = []
        for end in np.quantile(column, ACROSS):
            changed = encoded.inputs.copy()
            changed[:, encoder.names.index(name)] = end
            ends.append(values_of(replace(encoded, inputs=changed)))
        low, high = np.quantile(column, ACROSS)
        if low < high:
            slopes[_beyond(name)] = _difference(*ends) / float(high - low)
    squares = sum(slope**2 for slope in slopes.values())
    usual = math.sqrt(squares / max(len(slopes), 1))  # for other kinds of distance
    # No row tells along which features a combination is odd: the slope is at most the length of the gradient.
    slopes[COMBINATION] = math.sqrt(squares)
    least = LEAST_SHARE / math.sqrt(len(encoder.schema.features))
    doubts = {number: max(slopes.get(encoder.names[number], usual), least) for number in encoder.zero_in_training}
    # The median, because the values of a few draws may be wild at a wild row.
    most = MOST_DOUBT * max(1.0, float(np.median(function.std(axis=1))))
    for name, followed in continuations.items():
        doubt = next((doubts[number] for number in doubts if encoder.names[number] == _beyond(name)), None)
        if doubt is not None and followed.share < 1.0:
            continuations[name] = replace(followed, furthest=most / ((1.0 - followed.share) * doubt))
    return Extrapolation(continuations, doubts)


def _beyond(name: str) -> str:
    """The input that tells how far a number or a direction lies beyond the training rows."""
    return f"{name} beyond the training rows"


def _difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The root mean square difference of function values."""
    return float(np.sqrt(np.square(second - first).mean()))
