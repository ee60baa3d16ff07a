"""`fit`, the loop of one fit: minibatches, optimiser, validation, early stopping, interruption; its work in seconds.

The best parameters are those with the lowest validation negative log likelihood of the *mixture* over draws and
members. They are an exponential average of mu and rho over the last steps, which smooths out the noise of single draws.
The learning rate falls along a cosine over the allowed epochs. A fit ends early once its validation stops improving.

Work is counted in reference seconds, a function of shapes alone. One is about one second of one thread of the machine
on which the rates were measured (a server processor of 2023, busy with other work). So a budget in reference seconds
ends a fit after the same number of steps on any machine; only the time by the clock differs. The rates were fitted to
the processor time of 40 fits: 1 to 20 members, 25 to 500 rows in a minibatch, 3 to 310 inputs, no to four hidden
layers, up to 512 wide. Steps are foretold within 10 % (root mean square; 25 % at worst), validations within 20 %.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.bbb.fit_types import Epoch, Fit, FitOptions, Progress
from murho.model.bbb.free_energy import GradientClipping, GradientStep, kl_weights
from murho.model.bbb.network import Architecture, BayesianNetwork, learned_tensors, tensor_problem
from murho.model.bbb.optimisers import Adam, ParameterAverage, Schedule
from murho.model.bbb.registry import make_likelihood
from murho.model.bbb.rows import DRAWS, mixture_nll
from murho.model.errors import FitError
from murho.model.runtime import interrupts_held_back

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.bbb.likelihood import Likelihood
    from murho.model.bbb.rows import Rows

__all__ = [
    "WorkModel",
    "fit",
    "make_model",
    "start_from",
]


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
        """Reference seconds of an optimiser step.

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
        """Reference seconds of a validation.

        Args:
            judgements: Rows times the members that judge each.
            draws: Draws per judgement, S.
        """
        return self._rates.step + self._rates.forward * self._passes(judgements * draws)

    def score(self, rows: int, components: int) -> float:
        """Reference seconds of `model.bbb.rows.held_out_row_scores`.

        Args:
            rows: Rows to score; their judges share the draws.
            components: Gaussians per draw, K.
        """
        return self.validation(rows, DRAWS) + self._rates.component * rows * DRAWS * components

    def _passes(self, rows: float) -> float:
        """Products and elements of a number of rows, forwards and backwards."""
        return rows * (self._rates.product * self._products + self._rates.element * self._elements)


def make_model(options: FitOptions, inputs: int, generator: torch.Generator) -> tuple[BayesianNetwork, Likelihood]:
    """Make a network and its observation model, on the CPU, with initial parameters.

    Args:
        options: Options of the fit, with architecture and noise.
        inputs: D.
        generator: Source of the initial means.
    """
    likelihood = make_likelihood(
        options.noise,
        members=options.members,
        sigma=options.noise_sigma,
        components=options.noise_components,
        classes=options.classes,
    )
    if options.standardisation is not None:
        likelihood.learn_target(options.standardisation)
    architecture = Architecture(
        inputs=inputs,
        hidden=options.hidden,
        outputs=likelihood.outputs,
        activation=options.activation,
        members=options.members,
        skip=options.skip,
    )
    return BayesianNetwork(architecture, generator, likelihood.initial_outputs, options.reads), likelihood


def start_from(initial: Mapping[str, Tensor], network: BayesianNetwork, likelihood: Likelihood) -> None:
    """Set the parameters of a fit to given values.

    Args:
        initial: A finite tensor for each name of `learned_tensors`, and no other.
        network: Gets ``layers.*``.
        likelihood: Gets ``noise.*``.

    Raises:
        FitError: A tensor is missing, unknown, of another shape or type, or not finite; it is named.
    """
    there = learned_tensors(network, likelihood)
    problem = tensor_problem(initial, there)
    if problem is not None:
        raise FitError(f"the start of the fit does not fit: {problem}")
    for name, tensor in there.items():
        tensor.copy_(initial[name])


STEPS_BETWEEN_VALIDATIONS = 50


def _steps_between_validations(validation_rows: int, options: FitOptions) -> int:
    """Steps between validations, so that validations take about a fifth of the time.

    A step costs about as much as three forward passes.
    """
    passes = validation_rows * options.validation_draws / (3 * options.batch_size * options.draws_per_step)
    return max(STEPS_BETWEEN_VALIDATIONS, round(4 * passes))


class _Running:
    """A running fit: parameters, optimiser, schedule and random number generators."""

    def __init__(
        self,
        training: Rows,
        validation: Rows,
        options: FitOptions,
        initial: Mapping[str, Tensor] | None,
        device: torch.device,
    ) -> None:
        self._training, self._validation = training.to(device), validation.to(device)
        self._options, self._device = options, device
        start = torch.Generator().manual_seed(options.seed)
        self._order = torch.Generator().manual_seed(options.seed + 1)
        self._noise = torch.Generator(device).manual_seed(options.seed + 2)

        network, likelihood = make_model(options, training.features.shape[1], start)
        if initial is not None:
            start_from(initial, network, likelihood)
        self.network, self.likelihood = network.to(device), likelihood.to(device)
        parameters: list[Tensor] = [*network.parameters(), *likelihood.parameters()]
        self._optimiser = Adam(parameters, options.learning_rate)
        self._averaged = ParameterAverage(parameters)
        self._clipping = GradientClipping(network, likelihood)
        self._seen = self._training.seen_by(options.members)
        total_rows = self._seen.longest
        if options.rows_before:
            likelihood.remember(options.rows_before / total_rows)
        self._step = GradientStep(
            network,
            likelihood,
            options.prior,
            total_rows=total_rows,
            draws=options.draws_per_step,
            kl_ratios=self._seen.uneven,
        )
        self._minibatches = max(1, math.ceil(total_rows / options.batch_size))
        self._kl_weights = kl_weights(options.kl_weights, self._minibatches)
        self.epochs_between = max(
            1, math.ceil(_steps_between_validations(len(validation), options) / self._minibatches)
        )
        self.schedule = Schedule(options, options.epochs * self._minibatches)
        work, judges = WorkModel(network.architecture, device.type), validation.judges(options.members)
        self._work_of_epoch = self._minibatches * work.step(total_rows / self._minibatches, options.draws_per_step)
        self._work_of_validation = work.validation(len(validation) * judges, options.validation_draws)
        self.work = 0.0
        self.history: list[Epoch] = []
        self.best, self.best_epoch, self.best_temperature = math.inf, 0, options.temperature
        self.waited, self.measured = 0, math.nan

    def epoch(self, number: int) -> tuple[float, float]:
        """Run all minibatches once; returns the mean negative log likelihood and ``KL / N``."""
        shuffled, row_weights = self._seen.shuffled(self._order), self._training.weights
        sums = torch.zeros(2, device=self._device)
        # A minibatch at a time: all rows, once for each member, would take M times the memory of the table.
        for rows, kl_weight in zip(shuffled.tensor_split(self._minibatches, dim=1), self._kl_weights, strict=True):
            features, targets = self._training.features[rows], self._training.targets[rows]
            energy = self._step(
                features,
                targets,
                None if row_weights is None else row_weights[rows],
                kl_weight=kl_weight,
                minibatches=self._minibatches,
                temperature=self.schedule.temperature,
                beta=self.schedule.beta,
                generator=self._noise,
            )
            self._clipping.clip(energy, features, targets, number)
            self._optimiser.learning_rate = self.schedule.learning_rate
            self._optimiser.step()
            self._averaged.step()
            self.schedule.step()
            sums += torch.stack((energy.negative_log_likelihood, energy.kl))
        self.work += self._work_of_epoch
        nll, kl = (sums / self._minibatches).tolist()
        return nll, kl

    def validate(self, number: int) -> None:
        """Validate the average of the parameters, and keep it if it is the best."""
        self.work += self._work_of_validation
        current = self._averaged.load(self._averaged.average)
        self.measured = self._mixture_nll()
        self._clipping.check_validation(self.measured, number)
        self._averaged.load(current)
        # Before the KL has its full weight, the parameters are not those of the posterior.
        warm = self.schedule.warm
        if not self._options.early_stop or (warm and self.measured < self.best - 1e-4):
            self.best, self.waited = self.measured, 0
            self._keep(number)
        elif warm and not self._options.temperature_path:
            self.waited += 1

    def outcome(self, stopped: str) -> Fit:
        """The fit with the best parameters."""
        if not self.best_epoch:  # stopped before the first validation that counts: keep the average so far
            self._keep(len(self.history))
        self._averaged.load(self._averaged.best)
        best = self._mixture_nll()
        history = tuple(self.history)
        return Fit(
            self.network.cpu(),
            self.likelihood.cpu(),
            best,
            len(history),
            self.best_epoch,
            stopped,
            history,
            self.best_temperature,
            self.work,
        )

    def _keep(self, number: int) -> None:
        """Keep the average so far as the best parameters."""
        self._averaged.keep()
        self.best_epoch = number
        if self._options.temperature_path:
            self.best_temperature = self.schedule.temperature

    def _mixture_nll(self) -> float:
        options = self._options
        return mixture_nll(self.network, self.likelihood, self._validation, options.validation_draws, options.seed + 3)


def fit(
    training: Rows,
    validation: Rows,
    options: FitOptions,
    *,
    initial: Mapping[str, Tensor] | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Fit a network to encoded rows by Bayes by Backprop.

    Args:
        training: N training rows, standardised.
        validation: Rows that decide when to stop. With folds these are the training rows again, each judged by the
            members that have not seen it.
        options: Options of the fit.
        initial: Tensors to start from instead of random means, by the names of
            `model.bbb.network.learned_tensors`.
        device: Device of the fit; the CPU by default.
        progress: Gets every epoch.

    Returns:
        The fit with the best parameters. A KeyboardInterrupt ends the fit early; ``stopped`` is then ``interrupted``.

    Raises:
        FitError: The loss became NaN or infinite, or a tensor of ``initial`` does not fit; it is named.
        KeyboardInterrupt: Interrupted before the end of the first epoch: there is nothing to keep.
    """
    running = _Running(training, validation, options, initial, device or torch.device("cpu"))
    began = time.monotonic()
    stopped = "epochs"
    try:
        for number in range(1, options.epochs + 1):
            nll, kl = running.epoch(number)
            spent = time.monotonic() - began if options.budget_by_clock else running.work
            running.schedule.keep_within_budget(spent)
            out_of_budget = options.budget is not None and spent > options.budget
            last = running.schedule.done or out_of_budget
            if number % running.epochs_between == 0 or last:
                running.validate(number)
            seconds, done = time.monotonic() - began, running.schedule.share_done
            epoch = Epoch(number, options.epochs, nll, kl, running.measured, seconds, done)
            running.history.append(epoch)
            if progress is not None:
                progress.epoch(epoch)
            if last:
                stopped = "budget" if out_of_budget or number < options.epochs else "epochs"
                break
            if running.waited >= options.patience:
                stopped = "converged"
                break
    except KeyboardInterrupt:
        if not running.history:
            raise
        stopped = "interrupted"
    with interrupts_held_back() as held_back:
        outcome = running.outcome(stopped)
    return replace(outcome, stopped="interrupted") if held_back.came else outcome
