"""Cached draws equal draws made again, and stay within the limits of the cache."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.predictive.draw_room import DrawRoom
from murho.model.predictive.draws import BLOCK, DrawCache, DrawMaker, make_draws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from unittest.mock import Mock

    from murho.model.predictive.draws import Draws

CPU = torch.device("cpu")
ARCHITECTURE = Architecture(inputs=3, hidden=(8, 5), outputs=2, activation="sigmoid", members=2)
TENSORS = {
    name: tensor.detach()
    for name, tensor in BayesianNetwork(ARCHITECTURE, torch.Generator().manual_seed(0)).named_tensors().items()
}
BYTES = make_draws(TENSORS, ARCHITECTURE, seed=0, samples=1).nbytes
"""Of one draw."""


def _kept(*, most_seeds: int = 4, most_bytes: int = 100 * BYTES) -> DrawCache:
    return DrawCache(TENSORS, ARCHITECTURE, CPU, most_seeds=most_seeds, room=DrawRoom(most_bytes))


def _bytes(cache: DrawCache) -> int:
    return sum(kept.draws.nbytes for kept in cache.kept.values())


def _assert_same(one: Draws, other: Draws) -> None:
    assert torch.equal(one.members, other.members)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def made() -> Iterator[Mock]:
    """Counts how often draws are made."""
    with patch.object(DrawMaker, "make", autospec=True, side_effect=DrawMaker.make) as make:
        yield make


def test_what_is_kept_of_a_seed_answers_for_fewer_draws(made: Mock) -> None:
    kept = _kept()
    many = kept.first(20, seed=5)
    for samples in (1, 7, 20):
        few = kept.first(samples, seed=5)
        assert len(few) == samples
        _assert_same(few, many.first(samples))
    assert made.call_count == 1


def test_more_draws_begin_with_those_that_were_kept(made: Mock) -> None:
    kept = _kept()
    few, many = kept.first(6, seed=5), kept.first(20, seed=5)
    _assert_same(few, many.first(6))
    assert made.call_count == 2
    assert len(kept.kept) == 1


def test_the_seed_not_asked_for_the_longest_goes_first(made: Mock) -> None:
    kept = _kept(most_seeds=2)
    for seed in (0, 1, 0, 2):
        kept.first(4, seed)
    assert len(kept.kept) == 2
    assert made.call_count == 3
    kept.first(4, 0)
    assert made.call_count == 3
    kept.first(4, 1)
    assert made.call_count == 4


def test_bytes_are_bounded_too(made: Mock) -> None:
    kept = _kept(most_bytes=10 * BYTES)
    for seed in (0, 1, 2):
        kept.first(5, seed)
    assert (len(kept.kept), _bytes(kept)) == (2, 10 * BYTES)
    kept.first(5, 2)
    assert made.call_count == 3


def test_draws_beyond_the_bound_are_kept_alone(made: Mock) -> None:
    kept = _kept(most_bytes=10 * BYTES)
    kept.first(5, 0)
    many = kept.first(30, 1)
    assert (len(many), len(kept.kept), _bytes(kept)) == (30, 1, 30 * BYTES)
    kept.first(30, 1)
    assert made.call_count == 2


def test_the_caches_of_a_room_share_its_bytes(made: Mock) -> None:
    room = DrawRoom(10 * BYTES)
    one, other = (DrawCache(TENSORS, ARCHITECTURE, CPU, room=room) for _ in range(2))
    one.first(5, 0)
    other.first(4, 0)
    one.first(5, 0)
    other.first(4, 1)  # the room is full: the other cache's first seed was not used the longest
    assert (list(one.kept), list(other.kept)) == ([0], [1])
    room.make_room(4 * BYTES)
    assert (list(one.kept), list(other.kept)) == ([], [1])
    del other
    gc.collect()
    one.first(10, 2)  # what is gone with its cache takes no room
    one.first(10, 2)
    assert made.call_count == 4


@pytest.mark.parametrize("most", [1, 100, 256, 300])
def test_parts_are_the_same_draws_in_no_more_memory_than_allowed(most: int, made: Mock) -> None:
    """Of draws beyond the bound none is kept, and one block is made at a time."""
    kept, fresh = _kept(most_bytes=most * BYTES), _kept(most_bytes=1000 * BYTES)
    for _ in range(2):
        start, whole = 0, fresh.first(256, 5)
        for part in kept.parts(256, 5):
            _assert_same(part, whole.some(slice(start, start + len(part))))
            assert max(len(part), _bytes(kept) // BYTES) <= max(BLOCK, most)
            start += len(part)
        assert start == 256
    assert (made.call_count == 2) == (most >= 256)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 40),
)
def test_whatever_was_asked_before_draws_are_the_same_and_bounds_hold(
    requests: list[tuple[int, int]], most_seeds: int, most_draws: int
) -> None:
    kept = _kept(most_seeds=most_seeds, most_bytes=most_draws * BYTES)
    for seed, samples in requests:
        _assert_same(kept.first(samples, seed), _kept().first(samples, seed))
        assert 1 <= len(kept.kept) <= most_seeds
        assert _bytes(kept) <= max(most_draws, 12) * BYTES
