"""Coupled draws: each exact by itself, balanced together, and a function of seed, number and members alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.predictive.draws import make_draws, mean_network
from murho.model.predictive.normals import (
    BLOCK,
    PlaceInBlock,
    coupled_normals,
    effective_counts,
    place_in_block,
    standard_normals,
)
from murho.model.predictive.torch_engine import forward


def normals(seed: int, draw: int, count: int) -> np.ndarray:
    out = np.empty((1, count), dtype=np.float32)
    standard_normals(seed, np.array([draw]), out)
    return np.asarray(out[0])


def _correlations(samples: int, members: int) -> np.ndarray:
    """The correlations that the module promises, ``[S, S]``, pair by pair."""
    expected = np.eye(samples)
    for a in range(samples):
        for b in range(samples):
            if a != b and a % members == b % members and a // BLOCK == b // BLOCK:
                size = sum(k % members == a % members for k in range(BLOCK * (a // BLOCK), BLOCK * (a // BLOCK + 1)))
                expected[a, b] = -1.0 / (size - 1)
    return expected


def test_another_seed_gives_other_draws() -> None:
    assert not np.array_equal(normals(1, 0, 10), normals(2, 0, 10))
    assert not np.array_equal(normals(1, 0, 10), normals(1, 1, 10))


def test_largest_seed_is_accepted() -> None:
    assert np.isfinite(coupled_normals(2**63 - 1, 3, 2, 10)).all()


@pytest.mark.parametrize("members", [1, 2, 5, 10, 33, 64])
def test_places_are_counted_within_the_block(members: int) -> None:
    for draw in (0, 5, 63, 64, 65, 127, 200, 255):
        start = draw - draw % BLOCK
        coupled = [k for k in range(start, start + BLOCK) if k % members == draw % members]
        assert place_in_block(draw, members) == PlaceInBlock(draw % members, coupled.index(draw), len(coupled))


@pytest.mark.parametrize("members", [1, 7, 64])
def test_the_first_numbers_do_not_depend_on_how_many_follow(members: int) -> None:
    many = coupled_normals(5, 130, members, 8)
    for samples in (1, 6, 63, 64, 65, 129):
        assert np.array_equal(coupled_normals(5, samples, members, 8), many[:samples])


def test_draws_do_not_depend_on_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    tensors = _linear_network()
    architecture = Architecture(inputs=3, hidden=(), outputs=1, members=3)
    drawn = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            drawn.append(make_draws(tensors, architecture, seed=4, samples=100).weights[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*drawn)


@pytest.mark.parametrize("members", [1, 5, 10, 40])
def test_the_draws_of_a_member_sum_to_zero_over_a_block(members: int) -> None:
    normals = coupled_normals(3, 3 * BLOCK, members, 50)
    for start in range(0, len(normals), BLOCK):
        for member in range(members):
            own = [k for k in range(start, start + BLOCK) if k % members == member]
            if len(own) > 1:
                np.testing.assert_allclose(normals[own].sum(axis=0), 0.0, atol=1e-4)


@pytest.mark.parametrize("members", [1, 5, 24, 64])
def test_each_draw_is_standard_normal_and_pairs_correlate_as_promised(members: int) -> None:
    samples = 80
    count = 40_000  # the numbers of a draw are independent repetitions of one and the same experiment
    normals = coupled_normals(11, samples, members, count).astype(np.float64)
    error = count**-0.5
    assert np.abs(normals.mean(axis=1)).max() < 4.5 * error
    assert np.abs((normals**3).mean(axis=1)).max() < 4.5 * 15.0**0.5 * error
    assert np.abs((normals**4).mean(axis=1) - 3.0).max() < 4.5 * 96.0**0.5 * error
    covariance = normals @ normals.T / count
    assert np.abs(covariance - _correlations(samples, members)).max() < 5.5 * 2.0**0.5 * error


def test_the_numbers_of_one_draw_are_independent() -> None:
    draws = np.stack([coupled_normals(seed, 5, 2, 6)[4] for seed in range(1000)])
    assert np.abs(np.cov(draws.T) - np.eye(6)).max() < 5.0 * (2.0 / 1000) ** 0.5


def test_a_member_drawn_once_a_block_is_not_coupled() -> None:
    for draw, row in enumerate(coupled_normals(2, 130, 64, 5)):
        assert np.array_equal(row, normals(2, draw, 5))


@pytest.mark.parametrize(("samples", "members"), [(1, 1), (64, 10), (100, 5), (256, 10), (50, 64)])
def test_effective_counts_are_sums_of_the_correlations(samples: int, members: int) -> None:
    counts, linear, quadratic = effective_counts(samples, members)
    correlations = _correlations(samples, members)
    for member in range(members):
        own = correlations[member::members, member::members]
        np.testing.assert_allclose(
            [counts[member], linear[member], quadratic[member]],
            [len(own), own.sum(), (own**2).sum()],
            atol=1e-9,
        )


def test_quadratic_functions_lose_almost_nothing() -> None:
    squares = (coupled_normals(7, 64, 5, 4000).astype(np.float64) ** 2).sum(axis=0)
    counts, _, quadratic = effective_counts(64, 5)
    assert quadratic.sum() < 1.1 * counts.sum()
    assert squares.var() / (2.0 * quadratic.sum()) == pytest.approx(1.0, abs=0.12)


def _linear_network() -> dict[str, torch.Tensor]:
    architecture = Architecture(inputs=3, hidden=(), outputs=1, members=3)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.rho.add_(3.0)
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}


def test_the_mean_of_a_linear_model_is_that_of_mu_after_a_block() -> None:
    architecture, tensors = Architecture(inputs=3, hidden=(), outputs=1, members=3), _linear_network()
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    outputs = forward(make_draws(tensors, architecture, seed=0, samples=192), rows)[..., 0]
    by_mu = forward(mean_network(tensors, architecture), rows)[..., 0].mean(dim=0)
    assert float(outputs.std(dim=0).min()) > 0.05
    torch.testing.assert_close(outputs.mean(dim=0), by_mu, rtol=1e-5, atol=1e-5)


def test_draws_from_a_later_block_on_are_those_of_all() -> None:
    many = coupled_normals(5, 3 * BLOCK + 10, 3, 8)
    assert np.array_equal(coupled_normals(5, BLOCK + 10, 3, 8, start=2 * BLOCK), many[2 * BLOCK :])
    with pytest.raises(ValueError, match="multiple of 64"):
        coupled_normals(5, 10, 3, 8, start=10)
