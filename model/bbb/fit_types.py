"""Options, progress and outcome of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood
    from murho.model.bbb.network import BayesianNetwork
    from murho.model.bbb.priors import Prior
    from murho.model.distributions.transforms import Standardisation

__all__ = [
    "Epoch",
    "Fit",
    "FitOptions",
    "Progress",
    "default_batch_size",
]


def default_batch_size(rows: int) -> int:
    """Rows in a minibatch where the user gives no size: an eighth of the training rows, from 32 to 512."""
    return min(512, max(32, rows // 8))


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit; `model.training.options` has validated every value.

    Attributes:
        prior: Prior of all weights and biases.
        noise: One of `model.bbb.registry.KINDS`.
        noise_sigma: Known noise, standardised units, for ``fixed``.
        noise_components: Gaussians per row, K, for ``mixture``.
        classes: Number of classes, C; None: the target is a number.
        rows_before: Earlier rows that taught the initial noise (`model.bbb.likelihood.Likelihood.remember`).
        standardisation: Of the target, for `model.bbb.likelihood.Likelihood.learn_target`; None: its location
            is 0, its scale 1, and it has no limits.
        hidden: Widths of the hidden layers.
        activation: Activation between the layers.
        skip: Whether the last layer also reads the inputs.
        members: M.
        reads: Whether each member reads each input, ``[M, D]``, bool; None: all do (`model.bbb.network`).
        kl_weights: ``uniform`` or ``geometric``.
        draws_per_step: Draws per row in each step.
        learning_rate: First learning rate.
        batch_size: Most rows in a minibatch.
        epochs: Most epochs to run.
        early_stop: Whether validation decides which parameters are kept and when to stop. If not, all epochs are run
            and the last average is kept.
        patience: Validations without improvement before the fit stops.
        warm_up_steps: Steps over which the KL's factor rises from 0 to ``temperature``.
        temperature: The KL's factor at the end; 1 is the exact free energy.
        temperature_path: Whether the KL's factor rises over the whole fit instead, by the same ratio in each step.
            Parameters at any factor may then be the best, and the fit runs to its end.
        validation_draws: Draws per row in a validation.
        seed: Seed of initial means, minibatches and draws.
        beta_nll: Whether noisy rows have at first the same effect on their means as other rows (beta of
            `Likelihood.gradient`). Off for a fit that starts from a posterior.
        budget: Most work, in reference seconds (`model.bbb.fit`), or None. If the steps are too many, the schedule
            speeds up, so that the fit still ends with a small learning rate and the full weight of the KL.
        budget_by_clock: Whether ``budget`` is in seconds of the clock instead; the fit then depends on the machine.
    """

    prior: Prior
    noise: str = "homoscedastic"
    noise_sigma: float | None = None
    noise_components: int | None = None
    classes: int | None = None
    rows_before: int = 0
    standardisation: Standardisation | None = None
    hidden: tuple[int, ...] = (50, 50)
    activation: str = "relu"
    skip: bool = False
    members: int = 1
    reads: Tensor | None = field(default=None, compare=False)
    kl_weights: str = "uniform"
    draws_per_step: int = 1
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
    budget_by_clock: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """The progress of a fit after an epoch; losses are in nats per row, standardised units.

    Attributes:
        number: Number of finished epochs, from 1.
        epochs: Most epochs to run.
        negative_log_likelihood: Expectation under the posterior, mean over the epoch.
        kl: ``KL / N``, mean over the epoch.
        validation: Negative log likelihood of the mixture in the last validation; NaN before the first.
        seconds: Seconds since the fit began.
        progress: Share of the schedule that is done, from 0 to 1: a fit with a budget may end before its last epoch.
    """

    number: int
    epochs: int
    negative_log_likelihood: float
    kl: float
    validation: float
    seconds: float
    progress: float = field(default=0.0, compare=False)

    @property
    def free_energy(self) -> float:
        """Negative log likelihood plus KL."""
        return self.negative_log_likelihood + self.kl


class Progress(Protocol):
    """Gets every epoch of a fit."""

    def epoch(self, epoch: Epoch) -> None:
        """Take a finished epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of a fit.

    Attributes:
        network: The network with the best parameters, on the CPU.
        likelihood: The observation model with the best parameters, on the CPU.
        validation: Negative log likelihood on the validation rows, nats per row, standardised units.
        epochs: Number of epochs run.
        best_epoch: Epoch of the best parameters.
        stopped: Why the fit ended: ``converged``, ``epochs``, ``budget`` or ``interrupted``.
        history: All epochs.
        temperature: The KL's factor at the best parameters.
        work: Work of all epochs, reference seconds (`model.bbb.fit`).
    """

    network: BayesianNetwork
    likelihood: Likelihood
    validation: float
    epochs: int
    best_epoch: int
    stopped: str
    history: tuple[Epoch, ...]
    temperature: float
    work: float
