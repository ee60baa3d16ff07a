"""What answers are judged by: double precision, and another Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.engine_parts.reference import (
    Moments,
    deviations,
    disagreement,
    exact_answers,
    independent_moments,
)
from benchmarks.peers.engine_task import EngineTask
from benchmarks.peers.network_task import NOISE

TASK = EngineTask((6, 5))


def test_one_draw_is_a_gaussian() -> None:
    exact = exact_answers(TASK, TASK.rows(5), samples=1)
    scores = torch.special.ndtri(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).numpy()
    np.testing.assert_allclose(exact["std"], NOISE)
    np.testing.assert_allclose(exact["percentiles"], exact["mean"][:, None] + NOISE * scores, atol=1e-12)


def test_heteroscedastic_noise_starts_where_the_known_noise_is() -> None:
    exact = exact_answers(EngineTask((32,), noise="heteroscedastic"), TASK.rows(50), samples=1)
    assert np.median(exact["std"]) == pytest.approx(NOISE, rel=0.5)


def test_deviations_are_relative_to_the_larger_of_value_and_std() -> None:
    exact = {
        "mean": np.array([10.0, 0.0]),
        "std": np.array([2.0, 0.5]),
        "percentiles": np.array([[0.0, 4.0], [0.1, 0.2]]),
    }
    answer = {"mean": [10.1, 0.001], "std": [2.0, 0.51], "percentiles": [[0.0, 4.0], [0.1, 0.25]]}
    found = deviations(answer, exact)
    assert found == pytest.approx({"mean": 0.01, "std": 0.02, "percentiles": 0.1})


def test_the_other_monte_carlo_has_the_moments_of_a_linear_model() -> None:
    task = EngineTask(())
    rows = task.rows(6)
    (layer,) = task.posterior()
    mean = rows @ layer.weight_mu[:, 0] + layer.bias_mu[0]
    std = np.sqrt(rows**2 @ layer.weight_sigma[:, 0] ** 2 + layer.bias_sigma[0] ** 2)
    found = independent_moments(task, rows, draws=20_000)
    np.testing.assert_allclose(found.mean, mean, atol=0.05 * std.max())
    np.testing.assert_allclose(found.std, std, rtol=0.03)
    np.testing.assert_allclose(found.kurtosis, 3.0, atol=0.3)


def test_disagreement_is_in_standard_errors() -> None:
    other = Moments(400, np.array([1.0, 2.0]), np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    share = 1.0 / 100 + 1.0 / 400
    shifted = {"mean": other.mean + 3.0 * other.std * share**0.5, "epistemic_std": other.std}
    assert disagreement([shifted], 100, other) == pytest.approx((3.0, 0.0))
    wider = {"mean": other.mean, "epistemic_std": other.std * np.exp(2.0 * (0.5 * share) ** 0.5)}
    assert disagreement([wider], 100, other) == pytest.approx((0.0, 2.0))


def test_answers_of_several_calls_are_pooled() -> None:
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(4, 50, 3))
    answers = [{"mean": part.mean(axis=0), "epistemic_std": part.std(axis=0)} for part in draws]
    all_of_them = draws.reshape(200, 3)
    other = Moments(1000, all_of_them.mean(axis=0), all_of_them.std(axis=0), np.full(3, 3.0))
    assert disagreement(answers, 200, other) == pytest.approx((0.0, 0.0), abs=1e-9)
