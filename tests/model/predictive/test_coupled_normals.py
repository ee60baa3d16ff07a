"""Coupled draws: each exact by itself, balanced together, and a function of seed, number and members alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.predictive.draws import BLOCK, coupled_normals, make_draws, mean_network
from murho.model.predictive.torch_engine import forward


def normals(seed: int, block: int, members: int, count: int) -> np.ndarray:
    """The numbers of one block of draws, ``[BLOCK, P]``."""
    generator = np.random.Philox(key=seed, counter=[0, 0, 0, block])
    return np.asarray(coupled_normals(generator, block, members, count).double())


def _own(block: int, member: int, members: int) -> list[int]:
    return [place for place in range(BLOCK) if (BLOCK * block + place) % members == member]


def test_another_seed_or_block_gives_other_draws() -> None:
    assert not np.array_equal(normals(1, 0, 1, 10), normals(2, 0, 1, 10))
    assert not np.array_equal(normals(1, 0, 1, 10), normals(1, 1, 1, 10))


def test_largest_seed_is_accepted() -> None:
    assert np.isfinite(normals(2**63 - 1, 3, 2, 10)).all()


def test_the_words_of_the_generator_are_known() -> None:
    """A checkpoint keeps answers of draws: another version of NumPy must not give other draws."""
    words = np.random.Philox(key=7, counter=[0, 0, 0, 3]).random_raw(1000)
    assert hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()[:16] == "746950e1476b0b85"


@pytest.mark.parametrize("members", [1, 5, 10, 24, 64])
@pytest.mark.parametrize("block", [0, 1, 7])
def test_the_draws_of_a_member_sum_to_zero_over_a_block(members: int, block: int) -> None:
    drawn = normals(3, block, members, 50)
    for member in range(members):
        own = _own(block, member, members)
        if len(own) > 1:
            np.testing.assert_allclose(drawn[own].sum(axis=0), 0.0, atol=1e-4)


@pytest.mark.parametrize(("members", "block"), [(1, 0), (5, 1), (20, 3), (64, 1)])
def test_each_draw_is_standard_normal_and_pairs_correlate_as_promised(members: int, block: int) -> None:
    count = 40_000  # the numbers of a draw are independent repetitions of one and the same experiment
    drawn = normals(11, block, members, count)
    error = count**-0.5
    assert np.abs(drawn.mean(axis=1)).max() < 4.5 * error
    assert np.abs((drawn**3).mean(axis=1)).max() < 4.5 * 15.0**0.5 * error
    assert np.abs((drawn**4).mean(axis=1) - 3.0).max() < 4.5 * 96.0**0.5 * error
    expected = np.eye(BLOCK)
    for member in range(members):
        own = _own(block, member, members)
        for a in own:
            for b in own:
                expected[a, b] = 1.0 if a == b else -1.0 / (len(own) - 1)
    assert np.abs(drawn @ drawn.T / count - expected).max() < 5.5 * 2.0**0.5 * error


def test_the_tails_are_those_of_a_normal_distribution() -> None:
    drawn = np.concatenate([normals(5, block, 64, 100_000).ravel() for block in range(3)])
    for limit, share in ((3.0, 2.699796e-3), (4.0, 6.334248e-5)):
        found = np.count_nonzero(np.abs(drawn) > limit)
        assert abs(found - share * drawn.size) < 4.5 * (share * drawn.size) ** 0.5


def test_the_numbers_of_one_draw_are_independent() -> None:
    draws = np.stack([normals(seed, 0, 2, 6)[4] for seed in range(1000)])
    assert np.abs(np.cov(draws.T) - np.eye(6)).max() < 5.0 * (2.0 / 1000) ** 0.5


def test_quadratic_functions_lose_little() -> None:
    squares = (normals(7, 0, 4, 8000) ** 2).sum(axis=0)
    assert squares.var() / (2.0 * BLOCK * 8 / 7) == pytest.approx(1.0, abs=0.1)


def _linear_network() -> dict[str, torch.Tensor]:
    architecture = Architecture(inputs=3, hidden=(), outputs=1, members=3)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.rho.add_(3.0)
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}


def test_the_mean_of_a_linear_model_is_that_of_mu_after_blocks() -> None:
    architecture, tensors = Architecture(inputs=3, hidden=(), outputs=1, members=3), _linear_network()
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    outputs = forward(make_draws(tensors, architecture, seed=0, samples=6 * BLOCK), rows)[..., 0]
    by_mu = forward(mean_network(tensors, architecture), rows)[..., 0].mean(dim=0)
    assert float(outputs.std(dim=0).min()) > 0.05
    torch.testing.assert_close(outputs.mean(dim=0), by_mu, rtol=1e-5, atol=1e-5)


def test_draws_do_not_depend_on_the_number_of_threads_or_on_how_many_follow() -> None:
    before = torch.get_num_threads()
    tensors = _linear_network()
    architecture = Architecture(inputs=3, hidden=(), outputs=1, members=3)
    many = make_draws(tensors, architecture, seed=4, samples=100).weights[0]
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for samples in (1, 31, 32, 33, 99):
                few = make_draws(tensors, architecture, seed=4, samples=samples).weights[0]
                assert torch.equal(few, many[:samples])
    finally:
        torch.set_num_threads(before)


def test_draws_from_a_later_block_on_are_those_of_all() -> None:
    tensors, architecture = _linear_network(), Architecture(inputs=3, hidden=(), outputs=1, members=3)
    many = make_draws(tensors, architecture, seed=4, samples=3 * BLOCK)
    later = make_draws(tensors, architecture, seed=4, samples=BLOCK, start=2 * BLOCK)
    assert torch.equal(later.weights[0], many.weights[0][2 * BLOCK :])
    assert torch.equal(later.members, many.members[2 * BLOCK :])
