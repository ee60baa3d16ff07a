"""Quantiles and tails of a row's mixture by compiled code are exact, whatever the mixture."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from murho.model.distributions.mixtures import Mixture
from murho.model.predictive.compiled.answer_kernels import Scale, find_levels, find_tails, row_of
from tests.model.mixture_references import HARD, RULE, SCORES, SMOOTH, assert_exact, make, tail, without_wide

FAR_OUT = torch.tensor([-36.9, -20.0, -12.0, -9.5, -7.1, -6.9, -6.8, 5.2, 7.0, 7.01, 8.0, 15.0, 37.0]).double()
DENSE = torch.special.ndtri(torch.arange(1, 100, dtype=torch.float64) / 100.0)
Numbers = NDArray[np.float64]
Row = tuple[Numbers, Numbers, Numbers, Scale]


def rows_of(mixture: Mixture) -> list[Row]:
    """Each row's components and scale: see `murho.model.predictive.compiled.answer_kernels.find_levels`."""
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


def by_row(mixture: Mixture, scores: Tensor) -> Tensor:
    """Return the same levels of every row, ``[B, L]``."""
    values, settled = np.zeros((mixture.means.shape[1], len(scores))), np.zeros(len(scores), dtype=np.bool_)
    buffers = row_of(len(mixture.means), np.float32), row_of(len(mixture.means), np.float64)
    for number, row in enumerate(rows_of(mixture)):
        find_levels(*row, scores.numpy(), values[number], settled, *buffers)
    return torch.from_numpy(values)


WIDE = "weighted, and wide"
SLOW = [kind for kind in HARD if kind != WIDE]


@pytest.mark.parametrize(
    "kind", [*SMOOTH, "weighted, and wide", *(pytest.param(k, marks=pytest.mark.slow) for k in SLOW)]
)
def test_quantiles_are_what_bisection_finds(kind: str) -> None:
    for seed, scores in ((0, SCORES), (1, SCORES), (2, FAR_OUT), (3, DENSE)):
        mixture = make(kind, seed)
        values = by_row(mixture, scores)
        assert_exact(mixture, scores, values, tolerance=2e-6)
        assert (values.diff(dim=1) > -1e-6 * mixture.moments()[1].unsqueeze(1)).all()


@pytest.mark.parametrize("seed", [3, 6, 9, 10])
def test_between_components_far_apart_a_bracket_finds_what_free_steps_run_past(seed: int) -> None:
    generator = np.random.default_rng(seed)
    means = torch.from_numpy(4.0 * generator.normal(size=(12, 1)))
    mixture = Mixture(means, torch.from_numpy(np.exp(generator.normal(size=(12, 1)) - 1.2)))
    scores = torch.tensor([-1.6, 0.0, 1.6]).double()
    values = by_row(mixture, scores)
    assert_exact(mixture, scores, values)


@given(
    components=st.integers(1, 40),
    noise=st.floats(1e-3, 30.0),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32),
    scores=st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=60),
)
@settings(max_examples=8)
def test_any_levels_of_any_mixture_are_exact(
    components: int, noise: float, weighted: bool, seed: int, scores: list[float]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    means, widths, weights = torch.rand((3, components, 4), generator=generator, dtype=torch.float64)
    means = 5000.0 + 1000.0 * torch.special.ndtri(means.clamp(1e-6, 1.0 - 1e-6))
    mixture = Mixture(means, 1000.0 * noise * (0.5 + widths), weights / weights.sum(dim=0) if weighted else None)
    asked = torch.tensor(sorted(scores), dtype=torch.float64)
    assert_exact(mixture, asked, by_row(mixture, asked), tolerance=2e-6)
    assert_exact(mixture, asked, mixture.quantiles(asked), tolerance=2e-6)


def tails_of(mixture: Mixture, thresholds: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Probabilities of less and of more than each threshold of each row, ``[B, T]``."""
    below, above = np.empty((2, *thresholds.shape))
    for number, row in enumerate(rows_of(mixture)):
        find_tails(*row, thresholds[number], below[number], above[number], row_of(len(mixture.means), np.float64))
    return below, above


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
