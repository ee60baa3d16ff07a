"""Bayes by Backprop on the rows of a UCI set: one network of the size of the dropout network, raw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from murho.model.bbb.fit import FitOptions, fit
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.numbers import HomoscedasticNoise
from murho.model.bbb.priors import EmpiricalBayesPrior
from murho.model.bbb.rows import Rows
from murho.model.distributions.mixtures import Mixture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from benchmarks.dropout_parts.regression_rows import RegressionRows
    from murho.model.bbb.fit import Fit

__all__ = ["TEMPERATURES", "bayes_options", "bayes_predictive", "choose_temperature", "fit_bayes"]

TEMPERATURES = (1.0, 0.3, 0.1)
"""Factors of the KL to choose from, as a training does."""


def bayes_options(temperature: float, epochs: int, seed: int) -> FitOptions:
    """Options of a fit that runs all its epochs, as the dropout network's does."""
    return FitOptions(epochs=epochs, patience=None, temperature=temperature, seed=seed)


def fit_bayes(hidden: int, options: FitOptions, features: Tensor, targets: Tensor) -> Fit:
    """Fit to all rows ``[N, D]`` and ``[N]``, standardised; a few of them are looked at and decide nothing."""
    start = torch.Generator().manual_seed(options.seed)
    network = BayesianNetwork(Architecture(features.shape[1], (hidden,), 1), start)
    shown = Rows(features[:20], targets[:20])
    return fit(network, HomoscedasticNoise(1), EmpiricalBayesPrior(), Rows(features, targets), shown, options)


@torch.no_grad()
def bayes_predictive(fitted: Fit, rows: Tensor, draws: int, seed: int) -> Mixture:
    """The predictive of rows ``[B, D]``, standardised: one Gaussian for each of S draws."""
    outputs = fitted.network(rows, torch.Generator().manual_seed(seed), draws)[0, :, 0].view(draws, len(rows))
    likelihood = fitted.likelihood
    if not isinstance(likelihood, HomoscedasticNoise):
        raise TypeError("the fit has noise of another kind")
    return Mixture(outputs.double(), likelihood.noise(outputs).double())


def choose_temperature(
    rows: RegressionRows, temperatures: Sequence[float], hidden: int, options: FitOptions, draws: int
) -> tuple[float, dict[float, float]]:
    """The temperature of the highest validation log-likelihood, and that of each, nats per row, standardised.

    Args:
        rows: Rows of the split; those of ``chosen_by`` judge, the other training rows are learned.
        temperatures: Temperatures to try.
        hidden: Width of the hidden layer.
        options: Options of the fit, whatever their temperature.
        draws: S.
    """
    features, targets = rows.training
    learned = torch.ones(len(targets), dtype=torch.bool)
    learned[rows.chosen_by] = False
    found = {}
    for temperature in temperatures:
        fitted = fit_bayes(hidden, replace(options, temperature=temperature), features[learned], targets[learned])
        predictive = bayes_predictive(fitted, features[rows.chosen_by], draws, options.seed)
        found[temperature] = float(predictive.log_density(targets[rows.chosen_by].double()).mean())
    return max(found, key=lambda temperature: found[temperature]), found
