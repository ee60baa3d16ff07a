"""The line that a fit starts at: Bayesian linear regression in closed form."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import BayesianRidge

from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.line import LEAST_SIGMA, fit_line, start_at_line
from murho.model.bbb.network import Architecture, BayesianNetwork


def _data(rows: int, inputs: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(rows)
    features = generator.normal(size=(rows, inputs)) @ generator.normal(size=(inputs, inputs)) + 3.0
    targets = features @ generator.normal(size=inputs) + 7.0 + noise * generator.normal(size=rows)
    return torch.from_numpy(features), torch.from_numpy(targets)


@pytest.mark.parametrize(("rows", "inputs", "noise"), [(60, 4, 0.5), (200, 20, 5.0), (30, 25, 1.0)])
def test_the_line_is_that_of_bayesian_ridge_regression(rows: int, inputs: int, noise: float) -> None:
    features, targets = _data(rows, inputs, noise)
    line = fit_line(features, targets)
    tiny = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 0.0)
    oracle = BayesianRidge(max_iter=10_000, tol=1e-10, **tiny).fit(features.numpy(), targets.numpy())
    expected = oracle.predict(features.numpy())
    found = (features @ line.weights + line.intercept).numpy()
    assert found == pytest.approx(expected, abs=1e-3 * float(targets.std()))
    assert line.noise == pytest.approx(oracle.alpha_**-0.5, rel=1e-2)


def test_an_exact_line_is_found_to_rounding() -> None:
    features, targets = _data(50, 10, 0.0)
    line = fit_line(features, targets)
    assert (features @ line.weights + line.intercept).numpy() == pytest.approx(targets.numpy(), abs=1e-6)
    assert line.noise < 1e-5 * float(targets.std())


def test_targets_without_a_line_have_none() -> None:
    generator = np.random.default_rng(1)
    line = fit_line(torch.from_numpy(generator.normal(size=(100, 30))), torch.from_numpy(generator.normal(size=100)))
    assert float(line.weights.square().sum()) < 0.05
    assert line.noise == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("features", [torch.zeros(20, 3).double(), torch.zeros(20, 0).double()])
def test_features_that_do_not_vary_leave_the_mean(features: torch.Tensor) -> None:
    targets = torch.arange(20).double()
    line = fit_line(features, targets)
    assert line.intercept == pytest.approx(9.5)
    assert float(line.weights.abs().sum()) == 0.0


def test_a_row_of_weight_two_counts_as_often_as_two_rows() -> None:
    features, targets = _data(40, 3, 1.0)
    weights = torch.ones(40).double()
    weights[:10] = 2.0
    line = fit_line(features, targets, weights)
    twice = fit_line(torch.cat((features, features[:10])), torch.cat((targets, targets[:10])))
    assert line.weights.numpy() == pytest.approx(twice.weights.numpy(), abs=1e-2)


def _network(inputs: int, members: int) -> BayesianNetwork:
    architecture = Architecture(inputs, (16,), 2, members=members, skip=True)
    return BayesianNetwork(architecture, torch.Generator().manual_seed(0), {1: 0.5})


def test_a_member_starts_at_the_line_of_the_rows_that_it_learns_from() -> None:
    features, targets = (part.float() for part in _data(50, 4, 0.0))
    folds = torch.arange(50).remainder(5).expand(1, -1)
    judged = targets.clone()
    judged[folds[0] == 0] += 1e3  # member 0 does not learn from these rows
    network = _network(4, members=5)
    start_at_line(network, 1, Rows(features, judged, folds))
    weight, bias = network.parts(network.mu)[-2:]
    starts = (torch.einsum("nd,mdk->mnk", features, weight[:, -4:]) + bias).detach()
    torch.testing.assert_close(starts[0, :, 0], targets, atol=1e-2, rtol=0.0)
    assert float((starts[1, :, 0] - targets).abs().max()) > 10.0
    assert float(network.parts(network.sigma().detach())[-2][0, -4:, 0].min()) >= 0.9 * LEAST_SIGMA
