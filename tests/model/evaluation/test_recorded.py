import numpy as np
import pytest
import torch

from murho.model.evaluation.recorded import LEVELS, SCORES, class_pits, number_pits, number_sums


def test_scores_of_a_grid_are_those_of_its_distribution() -> None:
    values = np.random.default_rng(0).normal(1.0, 2.0, 2000)
    apart = np.tile(2.0 * SCORES, (len(values), 1)).astype(np.float32)
    pits = number_pits(apart, values - 1.0, np.full(len(values), 0.5))
    z = torch.from_numpy((values - 1.0) / 2.0)
    probability = torch.special.ndtr(z)
    assert np.allclose(pits, probability, atol=1e-6)
    density = torch.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    crps = 2.0 * (z * (2.0 * probability - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))  # Gneiting & Raftery 2007
    sums = number_sums(apart, values - 1.0, pits)
    assert np.allclose(sums[:, 1], crps, rtol=0.01, atol=0.01)
    assert sums[:, 6].mean() == pytest.approx(2.0 * 2.0 * 1.6449, rel=1e-4)  # width of 90 %


def test_the_pit_of_a_value_with_a_probability_of_its_own_is_uniform_in_its_span() -> None:
    rates = np.random.default_rng(1)
    counts = rates.poisson(1.5, 20_000).astype(float)
    levels = np.sort(rates.poisson(1.5, 200_000))[(np.array(LEVELS) / 100.0 * 200_000).astype(int)]
    apart = np.tile(levels - 1.5, (len(counts), 1)).astype(np.float32)
    pits = number_pits(apart, counts - 1.5, rates.random(len(counts)))
    assert np.allclose(np.histogram(pits, 5, (0.0, 1.0))[0] / len(counts), 0.2, atol=0.05)
    assert np.all(np.isfinite(number_sums(apart, counts - 1.5, pits)))


def test_p_values_of_classes_are_uniform_if_the_probabilities_are_right() -> None:
    rates = np.random.default_rng(2)
    probabilities = rates.dirichlet([1.0, 0.5, 2.0], 20_000)
    classes = (probabilities.cumsum(axis=1) < rates.random((20_000, 1))).sum(axis=1)
    pits = class_pits(probabilities.astype(np.float32), classes, rates.random(20_000))
    assert np.allclose(np.histogram(pits, 10, (0.0, 1.0))[0] / len(pits), 0.1, atol=0.01)
