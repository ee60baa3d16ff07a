"""Both posteriors of numbers: they learn made rows, doubt more away from them, and are judged by known answers."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from benchmarks.datasets import Split
from benchmarks.dropout_parts.bayes_posterior import bayes_options, bayes_predictive, choose_temperature, fit_bayes
from benchmarks.dropout_parts.dropout_posterior import DropoutRecipe, choose_rate, fit_dropout
from benchmarks.dropout_parts.predictive_scores import away_from_data, mixture_entropy, predictive_scores
from benchmarks.dropout_parts.regression_rows import RegressionRows, rows_of_split
from murho.model.distributions.mixtures import Mixture

NOISE = 0.3
RECIPE = DropoutRecipe(0.02, hidden=20, epochs=30)


@pytest.fixture(scope="module")
def rows() -> RegressionRows:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, 300))
    target = 100.0 + 10.0 * (first + second + NOISE * generator.normal(size=300))
    data = pa.table({"a": first, "b": second, "y": target})
    return rows_of_split(data, "y", Split(np.arange(240), np.arange(240, 300)), seed=0)


def test_rows_are_standardised_by_the_training_rows(rows: RegressionRows) -> None:
    features, targets = rows.training
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(targets.std(correction=0), torch.tensor(1.0))
    assert len(rows.chosen_by) == 48
    assert rows.scale == pytest.approx(14.4, rel=0.1)


def test_dropout_learns_and_doubts_more_away_from_the_rows(rows: RegressionRows) -> None:
    posterior = fit_dropout(RECIPE, *rows.training)
    scores = predictive_scores(posterior.predictive(rows.test[0], 30, 0), rows.test[1], rows.scale)
    assert scores["rmse"] < 5.0  # of a target of standard deviation 14, with noise of 3
    assert 0.7 < scores["coverage_90"] <= 1.0
    far = away_from_data(lambda features: posterior.predictive(features, 30, 0), rows.test[0], seed=0)
    assert far[1.0] < far[2.0] < far[8.0]


def test_bayes_learns_and_doubts_more_away_from_the_rows(rows: RegressionRows) -> None:
    fitted = fit_bayes(20, bayes_options(0.3, 60, 0), *rows.training)
    scores = predictive_scores(bayes_predictive(fitted, rows.test[0], 30, 0), rows.test[1], rows.scale)
    assert scores["rmse"] < 5.0
    far = away_from_data(lambda features: bayes_predictive(fitted, features, 30, 0), rows.test[0], seed=0)
    assert far[1.0] < far[2.0] < far[8.0]


def test_the_chosen_rate_and_temperature_score_best(rows: RegressionRows) -> None:
    rate, tried = choose_rate(rows, (0.02, 0.6), RECIPE, draws=10)
    assert rate == 0.02
    assert tried[0.02] > tried[0.6]
    temperature, of_each = choose_temperature(rows, (0.3, 100.0), 20, bayes_options(1.0, 30, 0), draws=10)
    assert temperature == 0.3
    assert of_each[0.3] > of_each[100.0]


def test_scores_of_a_known_predictive() -> None:
    generator = torch.Generator().manual_seed(0)
    observed = torch.empty(20_000).normal_(generator=generator)
    scores = predictive_scores(Mixture(torch.zeros(2, 20_000).double(), torch.ones(1, 1).double()), observed, scale=2.0)
    assert scores["log_likelihood"] == pytest.approx(-0.5 - 0.5 * math.log(2 * math.pi) - math.log(2.0), abs=0.02)
    assert scores["rmse"] == pytest.approx(2.0, rel=0.02)
    assert scores["coverage_error"] < 0.01


def test_entropy_of_a_gaussian() -> None:
    entropy = mixture_entropy(Mixture(torch.zeros(50, 200).double(), torch.full((1, 1), 3.0).double()), seed=0)
    assert entropy == pytest.approx(0.5 * math.log(2.0 * math.pi * math.e) + math.log(3.0), abs=0.02)
