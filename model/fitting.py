"""The fit: minibatches, optimiser, validation, early stop, interruption.

The best parameters are those with the lowest validation negative log likelihood of the *mixture* over draws.
They are an exponential average of mu and rho over the last steps, which smooths out the noise of single
draws. The learning rate falls to nothing along a cosine over the epochs allowed; a fit whose validation has
stopped improving ends sooner.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from model.averaging import RunningAverage
from model.errors import FitError
from model.gradients import GradientStep
from model.likelihoods import make_likelihood
from model.networks import Architecture, BayesianNetwork
from model.objective import kl_weights
from model.validation import mixture_nll

if TYPE_CHECKING:
    from collections.abc import Callable

    from model.likelihoods import FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
    from model.priors import Prior
    from model.validation import Rows

__all__ = ["OPTIMISERS", "Epoch", "Fit", "FitOptions", "Progress", "fit"]

OPTIMISERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate, fused=True),
    "adamw": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, fused=True),
    "rmsprop": lambda parameters, rate: torch.optim.RMSprop(parameters, lr=rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9, fused=True),
}
"""Gradient methods by name; AdamW's weight decay acts on mu and rho beside the prior's."""

STEPS_BETWEEN_VALIDATIONS = 50
FINAL_LEARNING_RATE = 0.01
"""The last learning rate as a fraction of the first."""
GRADIENT_NORM = 10.0


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How to fit; every value has been validated by `model.options`.

    Attributes:
        prior: Prior of all weights and biases.
        noise: ``fixed``, ``homoscedastic`` or ``heteroscedastic``.
        noise_sigma: Known noise, standardised units, for ``fixed``.
        hidden: Widths of the hidden layers.
        activation: Activation between the layers.
        skip: Whether the last layer also reads the inputs.
        members: M.
        kl_weights: ``uniform`` or ``geometric``.
        draws_per_step: Draws a row in each step.
        optimiser: A key of `OPTIMISERS`.
        learning_rate: Its first learning rate.
        batch_size: Rows a minibatch, at most.
        epochs: Most epochs to run.
        early_stop: Whether validation decides which parameters are kept and when to stop; if not, all epochs
            are run and the last average is kept.
        patience: Validations without improvement before the fit stops.
        warm_up_steps: Steps over which the KL's factor rises from 0 to 1.
        validation_draws: Draws behind a validation.
        seed: Seed of initial means, minibatches and draws.
        budget: Most seconds to run, or None.
    """

    prior: Prior
    noise: str = "homoscedastic"
    noise_sigma: float | None = None
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
    validation_draws: int = 16
    seed: int = 0
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a progress bar shows; all in nats per row, standardised units.

    Attributes:
        number: Epochs done, from 1.
        epochs: Most epochs that will be run.
        negative_log_likelihood: Expected under the posterior, mean over the epoch.
        kl: ``KL / N``, mean over the epoch.
        validation: Negative log likelihood of the mixture on the validation rows when last measured.
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
    """Is told of every epoch."""

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
    """

    network: BayesianNetwork
    likelihood: FixedNoise | HomoscedasticNoise | HeteroscedasticNoise
    validation: float
    epochs: int
    best_epoch: int
    stopped: str
    history: tuple[Epoch, ...]


def _steps_between_validations(validation_rows: int, options: FitOptions) -> int:
    """So many that validations take about a fifth of the time: a step costs about three forward passes."""
    passes = validation_rows * options.validation_draws / (3 * options.batch_size * options.draws_per_step)
    return max(STEPS_BETWEEN_VALIDATIONS, round(4 * passes))


def _cosine(progress: float) -> float:
    return FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * 0.5 * (1.0 + math.cos(math.pi * progress))


def _clip_gradients(parameters: list[Tensor]) -> None:
    """Bounds the norm of each member's gradient by itself: members do not interact."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = torch.stack([gradient.square().sum(dim=1) for gradient in gradients]).sum(dim=0)
    factor = (GRADIENT_NORM * squares.rsqrt()).clamp_(max=1.0).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(factor)


def _check_finite(loss: Tensor, named: dict[str, Tensor], epoch: int) -> None:
    if bool(torch.isfinite(loss)):
        return
    culprit = next(
        (name for name, tensor in named.items() if not bool(torch.isfinite(tensor).all())), "the loss"
    )
    raise FitError(
        f"the fit became non-finite in epoch {epoch} ({culprit}); "
        "use a smaller --learning-rate, or look for extreme values in the table"
    )


def fit(
    training: Rows,
    validation: Rows,
    options: FitOptions,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Fits a network to encoded rows by Bayes by Backprop.

    Args:
        training: N training rows, standardised.
        validation: Rows that decide when to stop. With folds these are the training rows again, each judged
            by the member that has not seen it.
        options: How to fit.
        device: Where to compute; the CPU by default.
        progress: Is told of every epoch.

    Returns:
        The best parameters. A KeyboardInterrupt ends the fit early and is noted in ``stopped``.

    Raises:
        FitError: The loss became NaN or infinite.
    """
    device = device or torch.device("cpu")
    training, validation = training.to(device), validation.to(device)
    initial = torch.Generator().manual_seed(options.seed)
    order = torch.Generator().manual_seed(options.seed + 1)
    noise = torch.Generator(device).manual_seed(options.seed + 2)

    likelihood = make_likelihood(options.noise, members=options.members, sigma=options.noise_sigma).to(device)
    architecture = Architecture(
        inputs=training.features.shape[1],
        hidden=options.hidden,
        outputs=likelihood.outputs,
        activation=options.activation,
        members=options.members,
        skip=options.skip,
    )
    network = BayesianNetwork(architecture, initial).to(device)
    parameters: list[Tensor] = [*network.parameters(), *likelihood.parameters()]
    named = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    named |= dict(likelihood.named_parameters(prefix="noise"))
    optimiser = OPTIMISERS[options.optimiser](parameters, options.learning_rate)
    averaged = RunningAverage(parameters)
    seen = training.seen_by(options.members)
    total_rows = seen.shape[1]
    step = GradientStep(
        network, likelihood, options.prior, total_rows=total_rows, draws=options.draws_per_step
    )

    minibatches = max(1, math.ceil(total_rows / options.batch_size))
    weights = kl_weights(options.kl_weights, minibatches)
    epochs_between = max(1, math.ceil(_steps_between_validations(len(validation), options) / minibatches))
    began = time.monotonic()
    history: list[Epoch] = []
    best, best_epoch, waited, steps, measured = math.inf, 0, 0, 0, math.nan
    total_steps = options.epochs * minibatches
    stopped = "epochs"

    try:
        for number in range(1, options.epochs + 1):
            shuffled = torch.rand(seen.shape, generator=order).argsort(dim=1).to(device)
            rows = seen.gather(1, shuffled)
            batches = zip(
                training.features[rows].tensor_split(minibatches, dim=1),
                training.targets[rows].tensor_split(minibatches, dim=1),
                weights,
                strict=True,
            )
            sums = torch.zeros(2, device=device)
            for features, targets, weight in batches:
                energy = step(
                    features,
                    targets,
                    kl_weight=weight,
                    minibatches=minibatches,
                    temperature=min(1.0, steps / options.warm_up_steps) if options.warm_up_steps else 1.0,
                    generator=noise,
                )
                _check_finite(energy.loss, named, number)
                for group in optimiser.param_groups:
                    group["lr"] = options.learning_rate * _cosine(steps / total_steps)
                _clip_gradients(parameters)
                optimiser.step()
                averaged.step()
                steps += 1
                sums += torch.stack((energy.negative_log_likelihood, energy.kl))

            out_of_time = options.budget is not None and time.monotonic() - began > options.budget
            if number % epochs_between == 0 or number == options.epochs or out_of_time:
                current = averaged.load(averaged.average)
                measured = mixture_nll(
                    network, likelihood, validation, options.validation_draws, options.seed + 3
                )
                averaged.load(current)
                # Until the KL has its full weight the parameters are not yet those of the posterior.
                warm = steps >= options.warm_up_steps
                if not options.early_stop or (warm and measured < best - 1e-4):
                    best, best_epoch, waited = measured, number, 0
                    averaged.keep()
                elif warm:
                    waited += 1
            nll, kl = (sums / minibatches).tolist()
            epoch = Epoch(number, options.epochs, nll, kl, measured, time.monotonic() - began)
            history.append(epoch)
            if progress is not None:
                progress.epoch(epoch)
            if out_of_time:
                stopped = "budget"
                break
            if waited >= options.patience:
                stopped = "converged"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"

    if not best_epoch:  # stopped before the first full validation: the average so far is the best there is
        averaged.keep()
        best_epoch = len(history)
    averaged.load(averaged.best)
    best = mixture_nll(network, likelihood, validation, options.validation_draws, options.seed + 3)
    return Fit(network.cpu(), likelihood.cpu(), best, len(history), best_epoch, stopped, tuple(history))
