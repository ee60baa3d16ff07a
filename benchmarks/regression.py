"""One-dimensional regression problems with a known function: fit, draw, and compute the bands.

Everything is in raw units: inputs and targets are not standardised, so that prior and noise are those of the system.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.bbb.fit import fit
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.numbers import FixedNoise
from murho.model.bbb.rows import Rows
from murho.model.distributions import predictive
from murho.model.distributions.mixtures import Mixture
from murho.model.predictive.draws import make_draws
from murho.model.predictive.torch_engine import forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from murho.model.bbb.fit import Fit, FitOptions
    from murho.model.bbb.priors import Prior

__all__ = ["Answer", "System", "answer", "encode"]

FREE_ENERGY_DRAWS = 4096
"""Draws per row of the reported free energy."""
FINAL_EPOCHS = 200
"""Number of last epochs whose mean free energy is reported as well."""


@dataclass(frozen=True, slots=True)
class System:
    """A regression problem with a known function, and the options of its fit.

    Attributes:
        name: Name of the output files.
        title: Title of the figure.
        function: The true function, vectorised.
        inputs: Training inputs, ``[N]``.
        targets: Training targets, ``[N]``.
        prior: Prior of the weights.
        noise: Known standard deviation of an observation, in the target's unit.
        hidden: Widths of the hidden layers.
        activation: Activation between them.
        options: Options of the fit.
        samples: Number of draws, S.
        grid: Inputs of the predictions, ``[B]``.
        shown_at: Points of the grid that the table shows.
        levels: Lower and upper percentile of the bands.
        noise_is_visible: Whether the figure shows the band of new observations as well.
    """

    name: str
    title: str
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    inputs: NDArray[np.float64]
    targets: NDArray[np.float64]
    prior: Prior
    noise: float
    hidden: tuple[int, ...]
    activation: str
    options: FitOptions
    samples: int
    grid: NDArray[np.float64]
    shown_at: tuple[float, ...]
    levels: tuple[float, float] = (2.5, 97.5)
    noise_is_visible: bool = True

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which points of the grid lie within the range of the training inputs, ``[B]``."""
        # Rounding can put a point of the grid just outside of the outermost input.
        margin = 1e-9
        inside: NDArray[np.bool_] = (self.grid >= self.inputs.min() - margin) & (
            self.grid <= self.inputs.max() + margin
        )
        return inside

    def with_epochs(self, epochs: int) -> System:
        """The same system, fitted for fewer or more epochs, with a warm-up in proportion."""
        warm_up = round(self.options.warm_up_steps * epochs / self.options.epochs)
        return replace(self, options=replace(self.options, epochs=epochs, warm_up_steps=warm_up))


@dataclass(frozen=True, slots=True)
class Answer:
    """Predictions and free energies of a fitted system, in the target's unit.

    Attributes:
        mean: Mean of the function values, ``[B]``.
        epistemic_std: Standard deviation of the function values over draws, ``[B]``.
        function_band: Percentiles of the function values at the system's two levels, ``[B, 2]``.
        observation_band: Percentiles of a new observation at the same levels, ``[B, 2]``.
        draws: Function values of every draw, ``[S, B]``.
        mean_at_inputs: Mean of the function values at the training inputs, ``[N]``.
        function_band_at_inputs: Percentiles of the function values at the training inputs, ``[N, 2]``.
        free_energy: Free energy of the fitted parameters, in nats over all N rows, at temperature 1.
        kl: Part of the free energy that is the KL divergence from the prior.
        final_free_energy: Mean over the last epochs of the fit, in nats over all rows.
        fit_seconds: Duration of the fit.
        fit: The fit itself.
    """

    mean: NDArray[np.float64]
    epistemic_std: NDArray[np.float64]
    function_band: NDArray[np.float64]
    observation_band: NDArray[np.float64]
    draws: NDArray[np.float64]
    mean_at_inputs: NDArray[np.float64]
    function_band_at_inputs: NDArray[np.float64]
    free_energy: float
    kl: float
    final_free_energy: float
    fit_seconds: float
    fit: Fit


def encode(inputs: NDArray[np.float64], targets: NDArray[np.float64] | None = None) -> Rows:
    """Rows with one raw input as the only feature.

    Args:
        inputs: ``[N]``.
        targets: ``[N]``; zeros by default.

    Returns:
        ``features`` of ``[N, 1]`` and ``targets`` of ``[N]``.
    """
    values = np.zeros_like(inputs) if targets is None else targets
    return Rows(torch.from_numpy(inputs.astype(np.float32)).unsqueeze(1), torch.from_numpy(values.astype(np.float32)))


def answer(system: System) -> Answer:
    """Fits a system and predicts on its grid, with the seed of the system's options."""
    training = encode(system.inputs, system.targets)
    began = time.perf_counter()
    # Without early stopping, validation has no effect, so all rows can be used for training.
    start = torch.Generator().manual_seed(system.options.seed)
    network = BayesianNetwork(Architecture(1, system.hidden, 1, system.activation), start)
    fitted = fit(network, FixedNoise(system.noise), system.prior, training, training, system.options)
    fit_seconds = time.perf_counter() - began

    draws = make_draws(
        fitted.network.named_tensors(),
        fitted.network.architecture,
        seed=system.options.seed,
        samples=system.samples,
    )
    means = forward(draws, encode(system.grid).features)[..., 0].double()
    at_inputs = forward(draws, training.features)[..., 0].double()
    noise = means.new_full((1, 1), system.noise)
    mean, epistemic_std, _ = predictive.split(means, noise)
    levels = torch.tensor(system.levels, dtype=torch.float64) / 100.0
    energy, kl = _free_energy(fitted, training, system)
    final = fitted.history[-FINAL_EPOCHS:]
    return Answer(
        mean=mean.numpy(),
        epistemic_std=epistemic_std.numpy(),
        function_band=predictive.function_quantiles(means, levels).numpy(),
        observation_band=Mixture(means, noise).quantiles(torch.special.ndtri(levels)).numpy(),
        draws=means.numpy(),
        mean_at_inputs=at_inputs.mean(dim=0).numpy(),
        function_band_at_inputs=predictive.function_quantiles(at_inputs, levels).numpy(),
        free_energy=energy,
        kl=kl,
        final_free_energy=len(training) * sum(epoch.free_energy for epoch in final) / len(final),
        fit_seconds=fit_seconds,
        fit=fitted,
    )


def _free_energy(fitted: Fit, training: Rows, system: System) -> tuple[float, float]:
    """Free energy of the fitted parameters and its KL part, in nats over all rows, averaged over many draws."""
    network, generator = fitted.network, torch.Generator().manual_seed(system.options.seed)
    draws_at_a_time = 16  # few, because each repeat estimates the KL of a mixture prior by one draw of the weights
    repeats = FREE_ENERGY_DRAWS // draws_at_a_time
    targets = training.targets.repeat(draws_at_a_time)
    nll = kl = 0.0
    with torch.no_grad():
        for _ in range(repeats):
            outputs = network(training.features, generator, draws_at_a_time)
            nll -= len(training) * float(fitted.likelihood.log_density(outputs, targets).mean()) / repeats
            divergence = system.prior.kl(network.mu, network.sigma(), network.groups, generator)
            kl += float(divergence.mean()) / repeats
    return nll + kl, kl
