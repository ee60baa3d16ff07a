"""Draws: each exact by itself, balanced together, a function of seed, number and members alone, kept within limits."""

import gc
import hashlib
from collections.abc import Iterator
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.predictive.draw_cache import KEPT_SEEDS, DrawCache
from murho.model.predictive.draws import BLOCK, DrawMaker, Draws, PosteriorDraws, draw_coupled_normals, mean_network
from tests.model.oracles import biases_of, weights_of


def normals(seed: int, block: int, members: int, count: int) -> np.ndarray:
    """Return the numbers of one block of draws, ``[BLOCK, P]``."""
    generator = np.random.Philox(key=seed, counter=[0, 0, 0, block])
    return np.asarray(draw_coupled_normals(generator, block, members, count).double())


def _own(block: int, member: int, members: int) -> list[int]:
    return [place for place in range(BLOCK) if (BLOCK * block + place) % members == member]


def test_the_words_of_the_generator_are_known() -> None:
    """A checkpoint keeps answers of draws: another version of NumPy must not give other draws."""
    words = np.random.Philox(key=7, counter=[0, 0, 0, 3]).random_raw(1000)
    assert hashlib.sha256(words.astype("<u8").tobytes()).hexdigest()[:16] == "746950e1476b0b85"


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


def _network(
    members: int = 2, hidden: tuple[int, ...] = (8, 5), *, skip: bool = False, wider: float = 2.0
) -> tuple[dict[str, Tensor], Architecture]:
    architecture = Architecture(3, hidden, 2, "sigmoid", members=members, skip=skip)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.rho.add_(wider)
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}, architecture


def _assert_same(one: Draws, other: Draws) -> None:
    assert torch.equal(one.members, other.members)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert torch.equal(a, b)


def test_draws_depend_neither_on_the_number_of_threads_nor_on_how_many_follow_or_went_before() -> None:
    before, (tensors, architecture) = torch.get_num_threads(), _network()
    many = DrawMaker(tensors, architecture).make(seed=4, samples=100)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for samples in (1, 31, 32, 33, 99):
                _assert_same(DrawMaker(tensors, architecture).make(seed=4, samples=samples), many.some(slice(samples)))
    finally:
        torch.set_num_threads(before)
    later = DrawMaker(tensors, architecture).make(seed=4, samples=BLOCK, start=2 * BLOCK)
    _assert_same(later, many.some(slice(2 * BLOCK, 3 * BLOCK)))


def test_draws_have_the_posteriors_mean_and_sigma_and_go_round_the_members() -> None:
    tensors, architecture = _network(members=1)
    drawn = DrawMaker(tensors, architecture).make(seed=0, samples=4000)
    mu, sigma = tensors["layers.0.weight.mu"][0], functional.softplus(tensors["layers.0.weight.rho"][0])
    assert float(((weights_of(drawn)[0].mean(dim=0) - mu) / (sigma / 4000**0.5)).abs().max()) < 5.0
    torch.testing.assert_close(weights_of(drawn)[0].std(dim=0), sigma, rtol=0.06, atol=0.0)
    tensors, architecture = _network(members=2)
    quiet = {name: tensor.fill_(-40.0) if name.endswith("rho") else tensor for name, tensor in tensors.items()}
    drawn = DrawMaker(quiet, architecture).make(seed=0, samples=5)
    assert drawn.members.tolist() == [0, 1, 0, 1, 0]
    torch.testing.assert_close(weights_of(drawn)[0], tensors["layers.0.weight.mu"][drawn.members])


@pytest.mark.parametrize("hidden", [(), (4,), (8, 5)])
@pytest.mark.parametrize("skip", [False, True])
def test_the_mean_network_is_mu_bit_for_bit_and_some_draws_are_those_draws(hidden: tuple[int, ...], skip: bool) -> None:
    tensors, architecture = _network(members=3, hidden=hidden, skip=skip)
    means = mean_network(tensors, architecture)
    for index in range(len(hidden) + 1):
        assert torch.equal(weights_of(means)[index], tensors[f"layers.{index}.weight.mu"])
        assert torch.equal(biases_of(means)[index], tensors[f"layers.{index}.bias.mu"])
    drawn = DrawMaker(tensors, architecture).make(seed=1, samples=10)
    of_two = drawn.some(torch.isin(drawn.members, torch.tensor([0, 2])))
    for some, every in zip(weights_of(of_two) + biases_of(of_two), weights_of(drawn) + biases_of(drawn), strict=True):
        assert torch.equal(some, every[[0, 2, 3, 5, 6, 8, 9]])


TENSORS, ARCHITECTURE = _network()
BYTES = DrawMaker(TENSORS, ARCHITECTURE).make(seed=0, samples=1).nbytes
"""Of one draw."""


def _kept(most_draws: int = 100, cache: DrawCache | None = None) -> PosteriorDraws:
    return PosteriorDraws(TENSORS, ARCHITECTURE, torch.device("cpu"), cache=cache or DrawCache(most_draws * BYTES))


@pytest.fixture
def made() -> Iterator[Mock]:
    """Count how often draws are made."""
    with patch.object(DrawMaker, "make", autospec=True, side_effect=DrawMaker.make) as make:
        yield make


def test_the_seed_not_asked_for_the_longest_goes_first_and_draws_beyond_the_bound_are_kept_alone(made: Mock) -> None:
    kept = _kept(most_draws=9)
    for seed, makes in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)):
        kept.first(4, seed)
        assert made.call_count == makes
    for _ in range(2):
        assert len(kept.first(30, 3)) == 30
    assert made.call_count == 5
    assert [kept.missing(4, seed) for seed in (0, 1, 2, 3)] == [4, 4, 4, 0]


def test_the_caches_of_a_room_share_its_bytes(made: Mock) -> None:
    cache = DrawCache(10 * BYTES)
    one, other = _kept(cache=cache), _kept(cache=cache)
    one.first(5, 0)
    other.first(4, 0)
    one.first(5, 0)
    other.first(4, 1)  # the room is full: the other cache's first seed was not used the longest
    assert [one.missing(5, 0), other.missing(4, 0), other.missing(4, 1)] == [0, 4, 0]
    cache.shrink(4 * BYTES)
    assert [one.missing(5, 0), other.missing(4, 1)] == [5, 0]
    del other
    gc.collect()
    one.first(8, 2)  # what is gone with its cache takes no room
    assert one.missing(8, 2) == 0
    assert made.call_count == 4


@pytest.mark.parametrize("most", [1, 100, 256])
def test_parts_are_the_same_draws_in_no_more_memory_than_allowed(most: int, made: Mock) -> None:
    """Of draws beyond the bound none is kept, and one block is made at a time."""
    kept, fresh = _kept(most_draws=most), _kept(most_draws=1000)
    for _ in range(2):
        start, whole = 0, fresh.first(256, 5)
        for part in kept.parts(256, 5):
            _assert_same(part, whole.some(slice(start, start + len(part))))
            assert len(part) <= max(BLOCK, most)
            start += len(part)
        assert start == 256
    assert (made.call_count == 2) == (most >= 256)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12)), min_size=1, max_size=12), st.integers(0, 40))
def test_whatever_was_asked_before_draws_are_the_same(requests: list[tuple[int, int]], most_draws: int) -> None:
    kept = _kept(most_draws)
    for seed, samples in requests:
        _assert_same(kept.first(samples, seed), _kept().first(samples, seed))


def test_another_seed_or_block_gives_other_draws() -> None:
    first = normals(1, 0, 1, 10)
    assert not np.array_equal(first, normals(2, 0, 1, 10))
    assert not np.array_equal(first, normals(1, 1, 1, 10))
    assert np.isfinite(normals(2**63 - 1, 3, 2, 10)).all()


def test_the_tails_are_those_of_a_normal_distribution_and_the_numbers_of_a_draw_are_independent() -> None:
    drawn = np.concatenate([normals(5, block, 64, 100_000).ravel() for block in range(3)])
    for limit, share in ((3.0, 2.699796e-3), (4.0, 6.334248e-5)):
        found = np.count_nonzero(np.abs(drawn) > limit)
        assert abs(found - share * drawn.size) < 4.5 * (share * drawn.size) ** 0.5
    draws = np.stack([normals(seed, 0, 2, 6)[4] for seed in range(1000)])
    assert np.abs(np.cov(draws.T) - np.eye(6)).max() < 5.0 * (2.0 / 1000) ** 0.5
    squares = (normals(7, 0, 4, 8000) ** 2).sum(axis=0)  # quadratic functions lose little
    assert squares.var() / (2.0 * BLOCK * 8 / 7) == pytest.approx(1.0, abs=0.1)


def test_of_few_weights_as_many_seeds_are_kept_as_there_may_be() -> None:
    kept = _kept(most_draws=KEPT_SEEDS + 10)
    for seed in range(KEPT_SEEDS + 1):
        kept.first(1, seed)
    assert [kept.missing(1, seed) for seed in (0, 1, KEPT_SEEDS)] == [1, 0, 0]
