"""Tail probabilities by compiled code agree with double precision."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.distributions.mixtures import Mixture
from murho.model.predictive.compiled.rows import find_tails, row_of
from tests.model.mixture_references import HARD, RULE, SMOOTH, make, tail
from tests.model.predictive.compiled.rows import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tails_of(mixture: Mixture, thresholds: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Probabilities of less and of more than each threshold of each row, ``[B, T]``."""
    below, above = np.empty((2, *thresholds.shape))
    for number, row in enumerate(rows_of(mixture)):
        find_tails(*row, thresholds[number], below[number], above[number], row_of(len(mixture.means), np.float64))
    return below, above


@pytest.mark.parametrize("deviations", [-30.0, -8.0, -7.0, -3.0, -1e-9, 0.0, 0.5, 5.0, 9.0, 36.0])
def test_of_one_gaussian_they_are_its_own(deviations: float) -> None:
    gaussian = Mixture(torch.full((1, 1), 2.5).double(), torch.full((1, 1), 0.125).double())
    below, above = tails_of(gaussian, np.array([[2.5 + 0.125 * deviations]]))
    smaller, larger = sorted((below.item(), above.item()))
    assert smaller == pytest.approx(0.5 * math.erfc(abs(deviations) * 0.5**0.5), rel=1e-9)
    assert larger == pytest.approx(1.0 - smaller, rel=1e-6)
    assert (below.item() < above.item()) is (deviations < -1e-6) or abs(deviations) < 1e-6


@pytest.mark.parametrize("kind", [*SMOOTH, *HARD])
def test_the_smaller_is_right_to_1e_9_of_itself_whatever_the_mixture(kind: str) -> None:
    mixture = make(kind)
    mean, spread = mixture.moments()
    places = torch.tensor([-20.0, -6.0, -2.0, -0.3, 0.0, 0.1, 1.0, 4.0, 8.0]).double()
    thresholds = mean.unsqueeze(1) + spread.unsqueeze(1) * places
    found = tails_of(mixture, thresholds.numpy())
    ones = torch.ones_like(thresholds)
    exact = [tail(mixture, thresholds, sign * ones).numpy() for sign in (-1.0, 1.0)]
    least = np.minimum(*exact)
    # What the rounding of a threshold beside a mean of ten million does even in double precision.
    slack = 1e-7 if kind in ("a mean of ten million", "a gap where F is flat") else 0.0
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_array_less(np.abs(one - other), 1e-9 * least + slack + 1e-15)


def test_thresholds_without_end_are_never_and_always_exceeded() -> None:
    below, above = tails_of(make("smooth"), np.tile((-math.inf, math.inf), (6, 1)))
    np.testing.assert_allclose(below, np.tile((0.0, 1.0), (6, 1)), rtol=0.0, atol=1e-299)
    np.testing.assert_allclose(above, np.tile((1.0, 0.0), (6, 1)), rtol=0.0, atol=1e-299)


def test_the_wide_component_counts() -> None:
    plain, wide = make("identical components"), make("identical components, and wide")
    mean, spread = plain.moments()
    far = mean + 6.0 * spread
    found = tails_of(wide, far.unsqueeze(1).numpy())[1][:, 0]
    weight = RULE.weight
    own = tails_of(plain, far.unsqueeze(1).numpy())[1][:, 0]
    beside = [1.0 - NormalDist().cdf(6.0 * float(ratio)) for ratio in spread / wide.noise[-1]]
    np.testing.assert_allclose(found, (1.0 - weight) * own + weight * np.array(beside), rtol=1e-5)
