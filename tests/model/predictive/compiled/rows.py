"""Rows of a mixture in the form that compiled code takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murho.model.predictive.compiled.rows import Scale
from tests.model.mixture_references import RULE, without_wide

if TYPE_CHECKING:
    from murho.model.distributions.mixtures import Mixture

__all__ = ["Row", "rows_of"]


Numbers = NDArray[np.float64]
Row = tuple[Numbers, Numbers, Numbers, Scale]


def rows_of(mixture: Mixture) -> list[Row]:
    """Each row's components and scale: see `murho.model.predictive.compiled.rows.find_levels`."""
    mixture, wide_noise = without_wide(mixture)
    noise, weights = (part.expand_as(mixture.means) for part in (mixture.noise, mixture.shares))
    centres, units = mixture.moments()
    rows = []
    for number in range(mixture.means.shape[1]):
        means, widths, shares = (part[:, number].contiguous().numpy() for part in (mixture.means, noise, weights))
        centre, unit = float(centres[number]), float(units[number])
        of_wide, wide = (0.0, 1.0) if wide_noise is None else (RULE.weight, float(wide_noise[number]) / unit)
        rows.append((means, widths, shares, Scale(centre, unit, 1.0 - of_wide, wide, of_wide)))
    return rows
