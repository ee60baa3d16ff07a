"""Mixtures of Gaussians in units of their own spread, laid out row by row, and their tails at many values at once.

The time goes into ``exp`` and ``erfc`` of every component at every value. So these work in place in a few buffers that
a processor's second cache holds, and are kept from underflow: where the answer is hardly a float, or none, PyTorch's
``exp`` takes up to four hundred times as long, its ``erfc`` fourteen times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from murho.model.distributions.quantile_steps import SINGLE, SQRT_HALF, with_gaussian

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.distributions.quantile_steps import Precision
    from murho.model.distributions.wide_component import WideComponent

__all__ = ["StandardMixture", "Tails", "slices", "tile_values"]

TILE_VALUES = 2**16
"""Values of components that a thread works on at a time: 256 KiB of float32 in each of three buffers."""
LEAST_ROWS = 64
"""Rows to standardise at a time: those side by side share the lines of a cache."""
DEVICE_TILE_VALUES = 2**22
"""Values that an accelerator works on at a time."""


def tile_values(device: torch.device) -> int:
    """How many values of components to work on at a time."""
    return TILE_VALUES * torch.get_num_threads() if device.type == "cpu" else DEVICE_TILE_VALUES


def slices(length: int, size: int) -> Iterator[slice]:
    """Parts of a length, of a size that is at least 1."""
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, length, size))


@dataclass(frozen=True, slots=True)
class Tails:
    """What is known of mixtures at values ``[B, K]``; float64, for the unit in which a mixture is standardised.

    Attributes:
        tail: 1 - F or F.
        density: ``f``.
        slope: ``f'``.
        curvature: ``f''``.
    """

    tail: Tensor
    density: Tensor
    slope: Tensor
    curvature: Tensor


@dataclass(frozen=True, slots=True)
class StandardMixture:
    """C components for each of B rows, about the row's mean and in units of its standard deviation.

    Attributes:
        centre: The mean, ``[B, 1]``, float64.
        unit: The standard deviation, ``[B, 1]``, float64.
        means: ``[B, C]``.
        precisions: ``1 / (sqrt(2) width)``, ``[B, C]``.
        weights: ``[B, C]``, of sum 1 over C; None: all weigh the same.
        wide: Precisions of one more component about the mean, ``[B, 1]``, float64, if there is one. It sets neither
            centre nor unit nor `shape`.
        of_wide: Its weight.
    """

    centre: Tensor
    unit: Tensor
    means: Tensor
    precisions: Tensor
    weights: Tensor | None
    wide: Tensor | None
    of_wide: float

    @classmethod
    def of(
        cls,
        means: Tensor,
        noise: Tensor,
        weights: Tensor | None,
        wide: WideComponent | None = None,
        kind: torch.dtype = torch.float32,
    ) -> Self:
        """Standardises rows.

        Args:
            means: ``[C, B]``, float64.
            noise: Standard deviations, broadcastable to ``[C, B]``.
            weights: ``[C, B]``, of sum 1 over C, or None.
            wide: One more component; it knows the mean and the standard deviation of the others.
            kind: Type of the numbers to work with.
        """
        count, batch = means.shape
        centre, unit = (means.new_empty((batch, 1)) for _ in range(2))
        standard, precisions = (means.new_empty((batch, count), dtype=kind) for _ in range(2))
        shares = None if weights is None else means.new_empty((batch, count), dtype=kind)
        for rows in slices(batch, max(LEAST_ROWS, tile_values(means.device) // (2 * max(1, count)))):
            some, widths = means[:, rows], noise if noise.shape[-1] == 1 else noise[..., rows]
            weight = None if weights is None else weights[:, rows]
            if wide is None:
                mean, spread, centred, work = _standardise(some, widths, weight)
            else:
                mean, spread = wide.means[rows], wide.spreads[rows]
                centred = some - mean
                work = torch.empty_like(centred)
            if weight is not None and shares is not None:
                shares[rows] = weight.T
            centre[rows, 0], unit[rows, 0] = mean, spread
            standard[rows] = centred.div_(spread).T
            precisions[rows] = torch.div(spread * SQRT_HALF, widths.expand_as(some), out=work).T
        if wide is None:
            return cls(centre, unit, standard, precisions, shares, None, 0.0)
        precision_of_wide = (wide.spreads * SQRT_HALF).div_(wide.noise).unsqueeze(1)
        return cls(centre, unit, standard, precisions, shares, precision_of_wide, wide.weight)

    def take(self, rows: Tensor | slice) -> StandardMixture:
        """Of some rows; numbers of rows may repeat."""
        weights = None if self.weights is None else self.weights[rows]
        wide = None if self.wide is None else self.wide[rows]
        centre, unit, means, precisions = (
            part[rows] for part in (self.centre, self.unit, self.means, self.precisions)
        )
        return StandardMixture(centre, unit, means, precisions, weights, wide, self.of_wide)

    def average(self, values: Tensor) -> Tensor:
        """Weighted mean over the C components of values ``[B, C]``, which are overwritten; ``[B, 1]``, float64."""
        if self.weights is None:
            return values.sum(dim=1, keepdim=True).double().div_(values.shape[1])
        return values.mul_(self.weights).sum(dim=1, keepdim=True).double()

    def inverse_fourth(self) -> Tensor:
        """``sum_c(weight_c / width_c^4)``, ``[B, 1]``, float64."""
        mean = self.average(self.precisions.square().square_())
        if self.wide is not None:
            mean.lerp_(self.wide.pow(4), self.of_wide)
        return mean.mul_(4.0)

    def shape(self) -> tuple[Tensor, Tensor]:
        """Skewness and excess kurtosis, ``[B, 1]`` each, float64, held to what `cornish_fisher` can use."""
        variances = self.precisions.square().mul_(2.0).reciprocal_()
        inner = torch.add(self.means.square(), variances, alpha=3.0)
        skewness = self.average(self.means * inner)
        kurtosis = self.average(inner.square_().sub_(variances.square_(), alpha=6.0)).sub_(3.0)
        return skewness.clamp_(-1.0, 1.0), kurtosis.clamp_(-1.0, 2.0)

    def bracket(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest of the components' own quantiles, between which the mixture's lies.

        Args:
            scores: Normal scores ``[B, 1]``.

        Returns:
            ``[B, 1]`` each, float64.
        """
        own = (scores.to(self.means) * SQRT_HALF / self.precisions).add_(self.means)
        least, most = own.amin(dim=1, keepdim=True).double(), own.amax(dim=1, keepdim=True).double()
        if self.wide is None:
            return least, most
        further = scores * SQRT_HALF / self.wide
        return torch.minimum(least, further), torch.maximum(most, further)

    def tails(self, values: Tensor, signs: Tensor, precision: Precision = SINGLE) -> Tails:
        """Tails and the density's derivatives.

        Args:
            values: ``[B, K]``, float64, of numbers that the type of the means can tell.
            signs: 1 for the upper tail, -1 for the lower one, ``[B, K]``.
            precision: That of the type of the means.

        Returns:
            ``[B, K]`` each.
        """
        (batch, levels), count = values.shape, self.means.shape[1]
        most = tile_values(values.device) // max(1, count)
        columns = max(1, min(levels, most))
        at_a_time = max(1, min(batch, most // columns))
        scratch = self.means.new_empty((3, at_a_time * columns * count))
        sums = self.means.new_empty((5, batch, levels))
        here, towards = (part.to(self.means).unsqueeze(2) for part in (values, signs))
        for rows in slices(batch, at_a_time):
            some = self.take(rows)
            for where in ((rows, part) for part in slices(levels, columns)):
                some._add_up(here[where], towards[where], scratch, sums[:, where[0], where[1]], precision)
        tail, density, slope, curvature, less = sums.double()
        share = 1.0 / count if self.weights is None else 1.0
        scale = share / math.sqrt(math.pi)
        known = (
            tail.mul_(0.5 * share),
            density.mul_(scale),
            slope.mul_(-2.0 * scale),
            curvature.mul_(2.0).sub_(less).mul_(2.0 * scale),
        )
        if self.wide is not None:
            place = values * self.wide
            complement, bell = torch.erfc(place * signs), torch.exp(-place.square())
            known = with_gaussian(known, place, complement, bell, self.wide, self.of_wide)
        return Tails(*known)

    def _add_up(
        self, values: Tensor, signs: Tensor, scratch: Tensor, sums: Tensor, precision: Precision
    ) -> None:
        """Weighted sums over the components, where ``x = a (y - mean)`` and a is the precision.

        Of ``erfc(sign x)``, of ``s = a exp(-x^2)``, of s a x, of s (a x)^2 and of s a^2.

        Args:
            values: y, ``[B, K, 1]``.
            signs: ``[B, K, 1]``.
            scratch: ``[3, at least B K C]``.
            sums: Where to put them, ``[5, B, K]``.
            precision: See `tails`.
        """
        precisions = self.precisions.unsqueeze(1)
        shape = (*values.shape[:2], self.means.shape[1])
        place, density, work = (buffer[: math.prod(shape)].view(shape) for buffer in scratch)
        torch.sub(values, self.means.unsqueeze(1), out=place).mul_(precisions)
        place.clamp_(-precision.reach, precision.reach)
        torch.mul(place, place, out=density).neg_().exp_().mul_(precisions)
        if self.weights is not None:
            density.mul_(self.weights.unsqueeze(1))
        torch.sum(density, dim=2, out=sums[1])
        torch.sum(torch.mul(density, precisions.square(), out=work), dim=2, out=sums[4])
        torch.mul(place, precisions, out=work)
        torch.sum(density.mul_(work), dim=2, out=sums[2])
        torch.sum(density.mul_(work), dim=2, out=sums[3])
        tail = place.mul_(signs).erfc_()
        torch.sum(tail if self.weights is None else tail.mul_(self.weights.unsqueeze(1)), dim=2, out=sums[0])


def _standardise(
    means: Tensor, widths: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and standard deviation, ``[B]``, of components ``[C, B]``, these about the mean, and room for as many."""
    if weights is None:
        mean = means.mean(dim=0)
        centred = means - mean
        work = centred.square()
        variance = work.mean(dim=0).add_(widths.square().mean(dim=0))
    else:
        work = means * weights
        mean = work.sum(dim=0)
        centred = means - mean
        variance = torch.square(centred, out=work).addcmul_(widths, widths).mul_(weights).sum(dim=0)
    return mean, variance.sqrt_(), centred, work
