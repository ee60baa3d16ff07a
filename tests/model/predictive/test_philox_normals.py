"""Random numbers from a counter: the published generator, exact normal numbers, the same from compiled code."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from murho.model.predictive.normals import normal_table, philox, standard_normals

ZERO, ONES = 0, 0xFFFFFFFF


@pytest.mark.parametrize(
    ("rounds", "word", "expected"),
    [
        (7, ZERO, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        (10, ZERO, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (10, ONES, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_the_published_words(rounds: int, word: int, expected: tuple[int, ...]) -> None:
    """Those of the file ``kat_vectors`` of the authors' library Random123."""
    counter = np.array([word], dtype=np.uint64)
    found = philox((counter, counter, counter, counter), (word, word), rounds)
    assert tuple(int(one[0]) for one in found) == expected


def test_the_table_is_the_same_everywhere() -> None:
    """No entry is near a tie, and so its hash does not depend on the library that computes quantiles."""
    digest = hashlib.sha256(normal_table().astype("<i4").tobytes()).hexdigest()
    assert digest.startswith("4399c6c027ed41a4")


def test_the_first_numbers_are_known() -> None:
    found = np.empty((2, 70), dtype=np.float32)
    standard_normals(7, np.array([0, 300]), found)
    assert found[:, [0, 1, 69]].tolist() == [
        [0.4323582053184509, 0.37567001581192017, -0.15261319279670715],
        [-0.30299729108810425, -2.0125443935394287, -1.5646244287490845],
    ]


def normals(count: int, seed: int = 3, draw: int = 0) -> np.ndarray:
    found = np.empty((1, count), dtype=np.float32)
    standard_normals(seed, np.array([draw]), found)
    return np.asarray(found[0].astype(np.float64))


def test_they_are_standard_normal() -> None:
    count = 2_000_000
    numbers = normals(count)
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0), (6, 15.0, 10_170.0)):
        assert abs((numbers**power).mean() - mean) < 4.5 * (variance / count) ** 0.5
    below = 0.5 * torch.erfc(torch.from_numpy(-np.sort(numbers) * 0.5**0.5)).numpy()
    places = np.arange(count)
    distance = max((below - places / count).max(), ((places + 1) / count - below).max())
    assert distance * count**0.5 < 1.95  # Kolmogorov and Smirnov: one in a thousand


def test_tails_are_as_thick_as_they_should_be() -> None:
    count = 2_000_000
    numbers = np.abs(normals(count, seed=5))
    for level in (2.0, 3.0, 4.0, 4.5, 5.0):
        expected = count * float(torch.special.erfc(torch.tensor(level * 0.5**0.5, dtype=torch.float64)))
        assert abs((numbers > level).sum() - expected) < 4.5 * max(1.0, expected) ** 0.5
    assert normal_table()[0] * 2.0**-28 > 6.3


def test_numbers_seeds_and_draws_do_not_correlate() -> None:
    count = 200_000
    rows = np.stack([normals(count, *key) for key in ((0, 0), (0, 1), (1, 0), (1, 1), (2**62, 0), (0, 2**20))])
    assert np.abs(rows @ rows.T / count - np.eye(len(rows))).max() < 5.0 * (2.0 / count) ** 0.5
    for lag in (1, 2, 16, 64):
        assert abs((rows[0, :-lag] * rows[0, lag:]).mean()) < 4.5 * count**-0.5
        assert abs((rows[0, :-lag] ** 2 * rows[0, lag:] ** 2).mean() - 1.0) < 4.5 * (8.0 / count) ** 0.5
