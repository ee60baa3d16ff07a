"""`fit`, Bayes by Backprop of one network: minibatches, optimiser, validation, early stopping, interruption.

The best parameters are those with the lowest validation negative log likelihood of the *mixture* over draws and
members. They are an exponential average of mu and rho over the last steps, which smooths out the noise of single draws.
The learning rate falls along a cosine over the allowed epochs. A fit ends early once its validation stops improving.

Work is counted in reference seconds, a function of shapes alone. One is about one second of plain steps on one thread
of the machine on which the rates were measured (a server processor of 2023, busy with other work); compiled steps take
half of that. So a budget in reference seconds ends a fit after the same number of steps on any machine; only the time
by the clock differs. The rates were fitted to the processor time of 40 fits: 1 to 20 members, 25 to 500 rows in a
minibatch, 3 to 310 inputs, no to four hidden layers, up to 512 wide. Steps are foretold within 10 % (root mean square;
25 % at worst), validations within 20 %.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Protocol

import torch

from murho.model.bbb.fit_rows import Rows, mixture_nll
from murho.model.bbb.free_energy import kl_weights, require_finite
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.priors import Prior
from murho.model.bbb.schedule import FitOptions, Schedule
from murho.model.bbb.steps import PlainSteps, steps_of
from murho.model.runtime import interrupts_held_back
from murho.model.seeds import seed_for


def default_batch_size(rows: int) -> int:
    """Rows in a minibatch where the user gives no size: an eighth of the training rows, from 32 to 512."""
    return min(512, max(32, rows // 8))


@dataclass(frozen=True, slots=True)
class Epoch:
    """The progress of a fit after an epoch; losses are in nats per row, standardised units.

    Attributes:
        number: Number of finished epochs, from 1.
        epochs: Most epochs to run.
        negative_log_likelihood: Expectation under the posterior, mean over the epoch.
        kl: ``KL / N`` at the last validation; before the first, that of the start.
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
        epochs: Number of epochs run.
        best_epoch: Epoch of the best parameters.
        stopped: Why the fit ended: ``converged``, ``epochs``, ``budget`` or ``interrupted``.
        history: All epochs.
        temperature: The KL's factor at the best parameters.
        work: Work of all epochs, reference seconds (`model.bbb.fit`).
    """

    network: BayesianNetwork
    likelihood: Likelihood
    epochs: int
    best_epoch: int
    stopped: str
    history: tuple[Epoch, ...]
    temperature: float
    work: float


STEPS_BETWEEN_VALIDATIONS = 50
VALIDATION_DRAWS = 16
"""Draws per row in a validation."""


def fit(
    network: BayesianNetwork,
    likelihood: Likelihood,
    prior: Prior,
    training: Rows,
    validation: Rows,
    options: FitOptions,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Fit a network to encoded rows by Bayes by Backprop.

    Args:
        network: Its parameters are where the fit starts; they are changed in place.
        likelihood: The observation model, likewise.
        prior: Prior of all weights and biases.
        training: N training rows, standardised.
        validation: Rows that decide when to stop. With folds these are the training rows again, each judged by the
            members that have not seen it.
        options: Options of the fit.
        device: Device of the fit; the CPU by default.
        progress: Gets every epoch.

    Returns:
        The fit with the best parameters. A KeyboardInterrupt ends the fit early; ``stopped`` is then ``interrupted``.

    Raises:
        FitError: The loss became NaN or infinite.
        KeyboardInterrupt: Interrupted before the end of the first epoch: there is nothing to keep.
    """
    device, seed, members = device or torch.device("cpu"), options.seed, network.architecture.members
    training, validation = training.to(device), validation.to(device)
    network, likelihood = network.to(device), likelihood.to(device)
    order, seen = torch.Generator().manual_seed(seed_for(seed, "minibatches")), training.seen_by(members)
    minibatches = max(1, math.ceil(seen.longest / options.batch_size))
    shares = kl_weights(options.kl_weights, minibatches)
    steps = steps_of(
        PlainSteps(
            network,
            likelihood,
            prior,
            training,
            seen,
            draws=options.draws_per_step,
            minibatches=minibatches,
            seed=seed_for(seed, "steps"),
        )
    )
    state = steps.state
    schedule = Schedule(options, options.epochs * minibatches)
    # Validations take about a fifth of the time: a step costs about as much as three forward passes.
    passes = len(validation) * VALIDATION_DRAWS / (3 * options.batch_size * options.draws_per_step)
    epochs_between = math.ceil(max(STEPS_BETWEEN_VALIDATIONS, round(4 * passes)) / minibatches)
    model = WorkModel(network.architecture, device.type)
    work_of_epoch = minibatches * model.step(seen.longest / minibatches, options.draws_per_step)
    work_of_validation = model.validation(len(validation) * validation.judges(members), VALIDATION_DRAWS)

    began, work, stopped, history = time.monotonic(), 0.0, "epochs", list[Epoch]()
    best, best_epoch, temperature, waited, measured = math.inf, 0, schedule.temperature, 0, math.nan
    kept = state.average
    kl = _kl(network, prior, seed) / seen.longest
    try:
        for number in range(1, options.epochs + 1):
            of_steps = [schedule.step(share) for share in shares]
            # A minibatch at a time: all rows, once for each member, would take M times the memory of the table.
            nll = steps.take(seen.shuffle(order).tensor_split(minibatches, dim=1), of_steps, number) / minibatches
            work += work_of_epoch
            spent = time.monotonic() - began if options.budget_by_clock else work
            schedule.keep_within_budget(spent)
            out_of_budget = options.budget is not None and spent > options.budget
            last = schedule.done or out_of_budget
            if number % epochs_between == 0 or last:
                work += work_of_validation
                current = state.load(state.average)
                of_validation = seed_for(seed, "validation")
                measured = mixture_nll(network, likelihood, validation, VALIDATION_DRAWS, of_validation, steps.outputs)
                kl = _kl(network, prior, seed) / seen.longest
                require_finite(network, likelihood, number, {"the validation": torch.tensor(measured)})
                state.load(current)
                # Before the KL has its full weight, the parameters are not those of the posterior.
                if options.patience is None or (schedule.warm and measured < best - 1e-4):
                    kept = [each.clone() for each in state.average]
                    best, best_epoch, temperature, waited = measured, number, schedule.temperature, 0
                elif schedule.warm and options.temperature is not None:
                    waited += 1
            seconds = time.monotonic() - began
            history.append(Epoch(number, options.epochs, nll, kl, measured, seconds, schedule.share_done))
            if progress is not None:
                progress.epoch(history[-1])
            if last:
                stopped = "budget" if out_of_budget or number < options.epochs else "epochs"
                break
            if options.patience is not None and waited >= options.patience:
                stopped = "converged"
                break
    except KeyboardInterrupt:
        if not history:
            raise
        stopped = "interrupted"
    with interrupts_held_back() as held_back:
        if not best_epoch:  # stopped before the first validation that counts: keep the average so far
            best_epoch, temperature = len(history), schedule.temperature
        state.load(kept)
        network, likelihood = network.cpu(), likelihood.cpu()
    if held_back.came:
        stopped = "interrupted"
    temperature = options.temperature or temperature
    return Fit(network, likelihood, len(history), best_epoch, stopped, tuple(history), temperature, work)


@torch.no_grad()
def _kl(network: BayesianNetwork, prior: Prior, seed: int) -> float:
    """Mean over members of ``KL(q || prior)``, nats."""
    generator = torch.Generator(network.mu.device).manual_seed(seed_for(seed, "KL"))
    return float(prior.kl(network.mu, network.sigma(), network.groups, generator).mean())


@dataclass(frozen=True, slots=True)
class _Rates:
    """Reference seconds of each kind of operation.

    Attributes:
        step: A step, whatever its size: calls of small kernels.
        layer: Each layer of a step, likewise.
        weight: Each weight of a step: its KL, gradient and update.
        product: Each product of a value and a weight, forwards and backwards, for mean and variance.
        element: Each value of a layer and row: its draw, activation and gradient.
        component: Each Gaussian in the CRPS of a row.
        forward: Share of a step's products and elements that a forward pass alone takes.
    """

    step: float
    layer: float
    weight: float
    product: float
    element: float
    component: float
    forward: float = 0.63


_PROCESSOR = _Rates(step=3.8e-4, layer=8.6e-5, weight=1.83e-8, product=1.22e-10, element=1.25e-8, component=2e-6)
_ACCELERATOR = _Rates(step=1e-3, layer=2e-4, weight=4e-10, product=1e-12, element=2e-10, component=5e-8)
"""On a GPU the calls of small kernels take the time. These rates are estimates, not measurements."""


class WorkModel:
    """The work of steps, validations and scores of one network."""

    def __init__(self, architecture: Architecture, device: str = "cpu") -> None:
        """Take the shapes.

        Args:
            architecture: Sizes of layers, and members.
            device: Kind of device: ``cpu``, or another, which counts as a GPU. A fit on a GPU differs from one on the
                CPU anyway.
        """
        self._rates = _PROCESSOR if device == "cpu" else _ACCELERATOR
        self._layers, self._members = len(architecture.layers), architecture.members
        self._products = sum(inputs * outputs for inputs, outputs in architecture.layers)
        self._elements = sum(outputs for _, outputs in architecture.layers)

    def step(self, rows: float, draws: int) -> float:
        """Return reference seconds of an optimiser step.

        Args:
            rows: Rows of each member in the minibatch; the mean, if minibatches differ.
            draws: Draws per row, S.
        """
        rates, members = self._rates, self._members
        return (
            rates.step
            + rates.layer * self._layers
            + rates.weight * members * (self._products + self._elements)
            + self._passes(members * rows * draws)
        )

    def validation(self, judgements: int, draws: int) -> float:
        """Return reference seconds of a validation.

        Args:
            judgements: Rows times the members that judge each.
            draws: Draws per judgement, S.
        """
        return self._rates.step + self._rates.forward * self._passes(judgements * draws)

    def score(self, rows: int, draws: int, components: int) -> float:
        """Return reference seconds of the log density and CRPS of rows.

        Args:
            rows: Rows to score.
            draws: Draws per row, S, of all judges.
            components: Gaussians per draw, K.
        """
        return self.validation(rows, draws) + self._rates.component * rows * draws * components

    def _passes(self, rows: float) -> float:
        """Products and elements of a number of rows, forwards and backwards."""
        return rows * (self._rates.product * self._products + self._rates.element * self._elements)
