"""Gradient clipping by member, and the error that names the first quantity that is not finite."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.fit import FitOptions, fit
from murho.model.bbb.free_energy import GRADIENT_NORM, FreeEnergy, GradientClipping
from murho.model.bbb.priors import GaussianPrior
from murho.model.bbb.rows import Rows
from murho.model.errors import FitError
from tests.model.conftest import small_fit, small_model, small_rows

FINE = FreeEnergy(torch.tensor(1.0), torch.tensor(1.0), torch.tensor(1.0))


def test_an_infinite_target_is_named() -> None:
    rows = small_rows()
    bad = Rows(rows.features, torch.where(torch.arange(50) == 7, torch.inf, rows.targets))
    with pytest.raises(FitError, match=r"in epoch 1 \(the targets\); use a smaller --learning-rate"):
        small_fit(bad, rows)


def test_an_infinite_input_is_named() -> None:
    rows = small_rows()
    features = rows.features.clone()
    features[7, 1] = torch.nan
    with pytest.raises(FitError, match=r"\(the inputs\)"):
        small_fit(Rows(features, rows.targets), rows)


def test_parameters_that_overflow_are_named() -> None:
    rows = small_rows()
    with pytest.raises(FitError, match=r"in epoch 1 \(layers\.\d\.(weight|bias)\.(mu|rho)\)"):
        small_fit(rows, rows, learning_rate=1e39)


def test_a_log_likelihood_that_overflows_is_named() -> None:
    rows = small_rows()
    with pytest.raises(FitError, match=r"in epoch 1 \(the log likelihood\)"):
        small_fit(rows, rows, learning_rate=1e30, noise="fixed", known={"sigma": 0.5})


def test_a_gradient_is_named_before_it_spoils_the_parameters() -> None:
    rows, (network, likelihood) = small_rows(), small_model(hidden=(6, 5))
    for part in ("weight", "bias"):
        # The square of sigma underflows: epsilon / deviation is infinite, while loss and parameters are finite.
        network.named_tensors()[f"layers.1.{part}.rho"].fill_(-60.0)
    with pytest.raises(FitError, match=r"in epoch 1 \(the gradient of layers\.1\.(weight|bias)\.rho\)"):
        fit(network, likelihood, GaussianPrior(), rows, rows, FitOptions(batch_size=16, epochs=2))


def test_each_member_is_clipped_by_itself() -> None:
    network, likelihood = small_model(members=2)
    for parameter in (network.mu, network.rho, *likelihood.parameters()):
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[1] = 1e6
    assert network.mu.grad is not None
    before = network.mu.grad[0].clone()
    GradientClipping(network, likelihood).clip(FINE, torch.zeros(1), torch.zeros(1), 1)
    gradients = [network.mu.grad, network.rho.grad, *(p.grad for p in likelihood.parameters())]
    squares = sum(gradient.square().sum(dim=1) for gradient in gradients if gradient is not None)
    assert isinstance(squares, torch.Tensor)
    torch.testing.assert_close(network.mu.grad[0], before)
    assert float(squares[1]) == pytest.approx(GRADIENT_NORM**2, rel=1e-4)


def test_large_finite_gradients_do_not_stop_a_fit() -> None:
    network, likelihood = small_model()
    for parameter in (network.mu, network.rho, *likelihood.parameters()):
        parameter.grad = torch.full_like(parameter, 1e30)  # its square is not finite
    GradientClipping(network, likelihood).clip(FINE, torch.zeros(1), torch.zeros(1), 1)
    assert network.mu.grad is not None
    assert bool(torch.isfinite(network.mu.grad).all())


def test_a_validation_that_is_not_finite_names_the_parameter() -> None:
    network, likelihood = small_model()
    clipping = GradientClipping(network, likelihood)
    clipping.check_validation(1.0, 3)
    with pytest.raises(FitError, match=r"epoch 3 \(the validation\)"):
        clipping.check_validation(torch.inf, 3)
    with torch.no_grad():
        network.rho[0, -1] = torch.nan  # the last entry is the last layer's bias: names follow the parameters
    with pytest.raises(FitError, match=r"epoch 4 \(layers\.1\.bias\.rho\)"):
        clipping.check_validation(torch.nan, 4)
