"""Fits of made images: they learn, go on where they stopped, and become checkpoints that answer the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from benchmarks.mnist_parts.bayes_answers import (
    drawn_log_probabilities,
    error_rate,
    mean_outputs,
    mixture_log_probabilities,
)
from benchmarks.mnist_parts.bayes_fit import Recipe, RunningFit, fit_network
from benchmarks.mnist_parts.checkpoint import calibrated_spec, image_columns, make_spec, write_image_checkpoint
from benchmarks.mnist_parts.point_fit import PointRecipe, fit_point_network
from benchmarks.mnist_parts.pruning import decibels, pruning_table
from benchmarks.mnist_parts.systems import as_tensors
from benchmarks.mnist_parts.unlike_images import doubt_table, drawn_answers
from murho.model.bbb.priors import GaussianPrior, ScaleMixturePrior
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from tests.benchmarks.mnist_parts.made_images import made_images

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.bbb.network import BayesianNetwork

RECIPE = Recipe((16, 16), ScaleMixturePrior(0.25, 0.37, 0.018), temperature=0.02, epochs=40, batch_size=30)


@pytest.fixture(scope="module")
def network() -> BayesianNetwork:
    training = as_tensors(made_images(300))
    return fit_network(RECIPE, training, training, say=lambda _: None)[0]


def test_a_fit_learns(network: BayesianNetwork) -> None:
    inputs, digits = as_tensors(made_images(100, seed=2))
    assert error_rate(mean_outputs(network, inputs), digits) < 0.1
    assert error_rate(mixture_log_probabilities(network, inputs, 8, seed=0), digits) < 0.1


def test_geometric_weights_and_a_closed_form_learn_too() -> None:
    training = as_tensors(made_images(300))
    recipe = Recipe((16,), GaussianPrior(0.1), temperature=0.02, epochs=30, batch_size=30, kl_weights="geometric")
    fitted, history = fit_network(recipe, training, training, say=lambda _: None)
    assert error_rate(mean_outputs(fitted, training[0]), training[1]) < 0.1
    assert history[-1]["epoch"] == 30


def test_a_fit_goes_on_from_its_state(tmp_path: Path) -> None:
    training = as_tensors(made_images(100))
    whole, first, second = (RunningFit(RECIPE, *training) for _ in range(3))
    for _ in range(2):
        whole.epoch()
    first.epoch()
    first.save(tmp_path / "state")
    second.load(tmp_path / "state")
    second.epoch()
    torch.testing.assert_close(second.network.mu, whole.network.mu, rtol=0.0, atol=0.0)
    torch.testing.assert_close(second.network.rho, whole.network.rho, rtol=0.0, atol=0.0)


def test_a_state_of_another_recipe_is_refused(tmp_path: Path) -> None:
    training = as_tensors(made_images(50))
    fit = RunningFit(RECIPE, *training)
    fit.epoch()
    fit.save(tmp_path / "state")
    other = RunningFit(Recipe((16, 16), GaussianPrior(), epochs=3), *training)
    with pytest.raises(SystemExit, match="another recipe"):
        other.load(tmp_path / "state")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_network_without_a_posterior_learns(dropout: float) -> None:
    inputs, digits = as_tensors(made_images(300))
    recipe = PointRecipe((32,), hidden_dropout=dropout, epochs=20, batch_size=30)
    fitted = fit_point_network(recipe, inputs, digits, say=lambda _: None)
    with torch.no_grad():
        assert error_rate(fitted(inputs), digits) < 0.1


def test_a_checkpoint_answers_as_the_network(network: BayesianNetwork, tmp_path: Path) -> None:
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    spec = make_spec(network.architecture, RECIPE.prior, made_images(300), {})
    spec = calibrated_spec(spec, tensors, made_images(150, seed=3))
    assert spec.metrics["accuracy"] > 0.9
    posterior = Posterior.load(write_image_checkpoint(tmp_path, "made", spec, tensors), engine="torch")
    images = made_images(300)[:20]  # within the training range; others are drawn towards the class shares
    inputs, _ = as_tensors(images)

    answer = posterior.predict(image_columns(images), PredictOptions(samples=0))
    weight = 1.0 / 301  # of the class shares, which are even here
    expected = (1.0 - weight) * torch.softmax(mean_outputs(network, inputs), dim=1).numpy() + weight * 0.1
    np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)

    raw = posterior.predict(image_columns(images), PredictOptions(samples=512, calibrated=False))
    drawn = mixture_log_probabilities(network, inputs, 2048, seed=0).exp()
    np.testing.assert_allclose(raw.probabilities, drawn.numpy(), atol=0.03)


def test_pruning_counts_weights_and_loses_nothing_at_zero(network: BayesianNetwork) -> None:
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    images = as_tensors(made_images(100, seed=2))
    whole, half, most = pruning_table(tensors, network.architecture, images, (0.0, 0.5, 0.98), draws=4)
    weights = 784 * 16 + 16 * 16 + 16 * 10
    assert [whole.weights, half.weights, most.weights] == [weights, weights // 2, weights - round(0.98 * weights)]
    assert whole.mean_error == error_rate(mean_outputs(network, images[0]), images[1])
    assert 0.0 < half.threshold < most.threshold
    assert decibels(tensors).shape == (weights,)


def test_draws_doubt_noise_more_than_digits(network: BayesianNetwork) -> None:
    found = doubt_table(drawn_answers(network, 16), made_images(40, seed=5), angles=(0, 90))
    assert found["rotated"]["degrees"] == [0.0, 90.0]
    assert found["noise"]["entropy"] > found["rotated"]["entropy"][0]
    assert found["noise"]["mutual_information"] > found["rotated"]["mutual_information"][0]


def test_draws_are_the_same_for_the_same_seed(network: BayesianNetwork) -> None:
    inputs, _ = as_tensors(made_images(10))
    torch.testing.assert_close(
        drawn_log_probabilities(network, inputs, 4, seed=1), drawn_log_probabilities(network, inputs, 4, seed=1)
    )
