"""Options, progress and outcome of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.networks.bayesian_network import BayesianNetwork
    from murho.model.networks.priors import Prior

__all__ = ["Epoch", "Fit", "FitOptions", "Progress"]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How to fit; every value has been validated by `model.training.options`.

    Attributes:
        prior: Prior of all weights and biases.
        noise: One of `model.likelihoods.registry.NOISE_KINDS`.
        noise_sigma: Known noise, standardised units, for ``fixed``.
        noise_components: Gaussians a row, K, for ``mixture``.
        hidden: Widths of the hidden layers.
        activation: Activation between the layers.
        skip: Whether the last layer also reads the inputs.
        members: M.
        kl_weights: ``uniform`` or ``geometric``.
        draws_per_step: Draws a row in each step.
        optimiser: A key of `model.fitting.optimisers.OPTIMISERS`.
        learning_rate: Its first learning rate.
        batch_size: Rows a minibatch, at most.
        epochs: Most epochs to run.
        early_stop: Whether validation decides which parameters are kept and when to stop; if not, all epochs
            are run and the last average is kept.
        patience: Validations without improvement before the fit stops.
        warm_up_steps: Steps over which the KL's factor rises from 0 to ``temperature``.
        temperature: The KL's factor at the end; 1 is the exact free energy.
        temperature_path: Whether that factor rises over the whole fit instead, by the same ratio in each step.
            Parameters at any factor may then be the best, and the fit runs to its end.
        validation_draws: Draws behind a validation.
        seed: Seed of initial means, minibatches and draws.
        beta_nll: Whether noisy rows pull their means as hard as others at first (`Likelihood.gradient`, beta). Not
            where a fit goes on from a posterior.
        budget: Most seconds to run, or None. A fit that is too slow for it goes through its schedule faster, so that it
            still ends with a small learning rate and the full weight of the KL.
        budget_patience: How its seconds are counted, see `model.runtime.time_budget.TimeBudget`.
    """

    prior: Prior
    noise: str = "homoscedastic"
    noise_sigma: float | None = None
    noise_components: int | None = None
    hidden: tuple[int, ...] = (50, 50)
    activation: str = "relu"
    skip: bool = False
    members: int = 1
    kl_weights: str = "uniform"
    draws_per_step: int = 1
    optimiser: str = "adam"
    learning_rate: float = 1e-2
    batch_size: int = 64
    epochs: int = 1000
    early_stop: bool = True
    patience: int = 30
    warm_up_steps: int = 300
    temperature: float = 1.0
    temperature_path: bool = False
    validation_draws: int = 16
    seed: int = 0
    beta_nll: bool = True
    budget: float | None = None
    budget_patience: float = 1.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a progress bar shows; all in nats per row, standardised units.

    Attributes:
        number: Epochs done, from 1.
        epochs: Most epochs that will be run.
        negative_log_likelihood: Expected under the posterior, mean over the epoch.
        kl: ``KL / N``, mean over the epoch.
        validation: Negative log likelihood of the mixture on the validation rows when last measured; NaN before.
        seconds: Since the fit began.
    """

    number: int
    epochs: int
    negative_log_likelihood: float
    kl: float
    validation: float
    seconds: float

    @property
    def free_energy(self) -> float:
        """Negative log likelihood plus KL."""
        return self.negative_log_likelihood + self.kl


class Progress(Protocol):
    """Gets every epoch of a fit."""

    def epoch(self, epoch: Epoch) -> None:
        """One more epoch is done."""
        ...


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of a fit.

    Attributes:
        network: The network with the best parameters, on the CPU.
        likelihood: The observation model with the best parameters, on the CPU.
        validation: Its negative log likelihood on the validation rows, nats per row, standardised units.
        epochs: Epochs run.
        best_epoch: Epoch of the best parameters.
        stopped: ``converged``, ``epochs``, ``budget`` or ``interrupted``.
        history: Every epoch.
        temperature: The KL's factor where the best parameters were.
    """

    network: BayesianNetwork
    likelihood: Likelihood
    validation: float
    epochs: int
    best_epoch: int
    stopped: str
    history: tuple[Epoch, ...]
    temperature: float
