"""Rows of a mixture in the form that compiled code takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from murho.model.distributions.steps import SQRT_HALF
from murho.model.predictive.compiled.moments import Scale, standardise
from tests.model.mixture_references import RULE, without_wide

if TYPE_CHECKING:
    from murho.model.distributions.mixtures import Mixture

__all__ = ["rows_of"]


Numbers = NDArray[np.floating]
Row = tuple[Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Scale]


def rows_of(mixture: Mixture) -> list[Row]:
    """Each row's components, standardised and as they are, and its scale: see `quantile_kernel.find_levels`."""
    mixture, wide_noise = without_wide(mixture)
    like = mixture.means
    noise = mixture.noise.expand_as(like)
    weights = mixture.shares.expand_as(like)
    centres, units = mixture.moments()
    wide, of_wide = torch.zeros_like(units), 0.0
    if wide_noise is not None:
        wide, of_wide = units * SQRT_HALF / wide_noise, RULE.weight
    rows = []
    for number in range(like.shape[1]):
        own, precisions, shares = np.empty((3, len(like)), dtype=np.float32)
        means, widths, weight = (part[:, number].contiguous().numpy() for part in (like, noise, weights))
        centre, unit, precision = (float(part[number]) for part in (centres, units, wide))
        scale = Scale(1.0, centre, unit, precision, of_wide)
        standardise(means, widths, weight, scale, own, precisions, shares)
        rows.append((own, precisions, shares, means, widths, weight, scale))
    return rows
