"""The optimiser steps of a fit, and its validation: compiled, or plain PyTorch on any device.

Both take the same steps (`model.bbb.free_energy`, Adam, averaging), with other normal numbers. Compiled steps need the
extra ``murho[compiled]`` and a CPU; counts and scale-mixture priors are left to the plain ones.
"""

from __future__ import annotations

import threading
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from murho.model.bbb.free_energy import GradientClipping, GradientStep
from murho.model.bbb.network import ACTIVATIONS
from murho.model.bbb.numbers import FixedNoise, HomoscedasticNoise
from murho.model.bbb.optimisers import AVERAGING, Adam, ParameterAverage
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, ScaleMixturePrior
from murho.model.runtime import available_processors, in_parts, interrupts_held_back, load_compiled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood
    from murho.model.bbb.network import BayesianNetwork
    from murho.model.bbb.priors import Prior
    from murho.model.bbb.rows import Rows, SeenRows

__all__ = ["KINDS", "CompiledSteps", "PlainSteps", "StepOptions", "Steps", "compiled_steps", "steps_of"]


class StepOptions(NamedTuple):
    """What differs from step to step.

    Attributes:
        kl_weight: Share of the KL in the minibatch; the shares of an epoch sum to 1.
        temperature: Factor of the KL.
        beta: Exponent of `model.bbb.likelihood.Likelihood.evened`.
        learning_rate: Learning rate.
    """

    kl_weight: float
    temperature: float
    beta: float
    learning_rate: float


class Steps(Protocol):
    """Takes the optimiser steps of a fit."""

    averaged: ParameterAverage

    def take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        """Take one step for each of T minibatches.

        Args:
            minibatches: Numbers of the rows, ``[M, B]``, or ``[1, B]`` if all members see the same.
            options: Of each step.
            epoch: Number of the epoch, for messages.

        Returns:
            The sum over minibatches of ``-E_q[log p]`` per row, times the row's weight if it has one.

        Raises:
            FitError: The loss or a gradient is not finite.
        """
        ...

    def outputs(self, rows: Tensor, generator: torch.Generator, draws: int) -> Tensor:
        """Outputs of the present network, each row under its own draws.

        Args:
            rows: Encoded rows, ``[M, B, D]``.
            generator: Source of the draws.
            draws: Draws per row, S.

        Returns:
            ``[M, S * B, P]``, draw-major.
        """
        ...


class PlainSteps:
    """The steps in PyTorch, by automatic differentiation."""

    def __init__(
        self,
        network: BayesianNetwork,
        likelihood: Likelihood,
        prior: Prior,
        training: Rows,
        seen: SeenRows,
        *,
        learning_rate: float,
        draws: int,
        minibatches: int,
        seed: int,
    ) -> None:
        """Prepare the steps; parameters are changed in place.

        Args:
            network: The network.
            likelihood: Its observation model.
            prior: Prior of all weights.
            training: Rows, on the device of the network.
            seen: Which of these each member sees.
            learning_rate: First learning rate.
            draws: Draws per row.
            minibatches: T.
            seed: Seed of the draws.
        """
        self.network, self.likelihood, self.training, self.minibatches = network, likelihood, training, minibatches
        parameters: list[Tensor] = [*network.parameters(), *likelihood.parameters()]
        self.optimiser, self.averaged = Adam(parameters, learning_rate), ParameterAverage(parameters)
        self.step = GradientStep(
            network, likelihood, prior, total_rows=seen.longest, draws=draws, kl_ratios=seen.uneven
        )
        self.clipping = GradientClipping(network, likelihood)
        self.generator = torch.Generator(training.features.device).manual_seed(seed)

    def take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        """See `Steps.take`."""
        total = torch.zeros((), device=self.training.features.device)
        for rows, step in zip(minibatches, options, strict=True):
            features, targets, weights = self.training.features[rows], self.training.targets[rows], None
            if self.training.weights is not None:
                weights = self.training.weights[rows]
            energy = self.step(
                features,
                targets,
                weights,
                kl_weight=step.kl_weight,
                minibatches=self.minibatches,
                temperature=step.temperature,
                beta=step.beta,
                generator=self.generator,
            )
            self.clipping.clip(energy, features, targets, epoch)
            self.optimiser.learning_rate = step.learning_rate
            self.optimiser.step()
            self.averaged.step()
            total += energy.negative_log_likelihood
        return float(total)

    def outputs(self, rows: Tensor, generator: torch.Generator, draws: int) -> Tensor:
        """See `Steps.outputs`."""
        outputs: Tensor = self.network(rows, generator, draws)
        return outputs


AT_A_TIME = 64
"""Steps of a call of compiled code: an interruption waits for its end."""
KINDS = ("fixed", "homoscedastic", "heteroscedastic", "mixture", "bernoulli", "categorical")
"""Observation models of compiled steps, in the order of their numbers there."""


MOST_WEIGHTS = 2**17
"""With more of them, and fewer members than processors, PyTorch's products keep more of these busy."""


@cache
def compiled_steps() -> ModuleType | None:
    """The compiled code, loaded once; None where there is none."""
    return load_compiled(partial(import_module, "murho.model.bbb.compiled_steps"))


def steps_of(network: BayesianNetwork, likelihood: Likelihood, prior: Prior, *parts: Any, **options: Any) -> Steps:
    """The compiled steps, where there are any for the model and the device; else the plain ones; see `PlainSteps`."""
    fitting = network.mu.device.type == "cpu" and likelihood.kind in KINDS and not isinstance(prior, ScaleMixturePrior)
    shared = len(network.mu) >= available_processors() or network.mu.numel() <= MOST_WEIGHTS
    kernels = compiled_steps() if fitting and shared else None
    if kernels is None:
        return PlainSteps(network, likelihood, prior, *parts, **options)
    return CompiledSteps(kernels, network, likelihood, prior, *parts, **options)


class CompiledSteps(PlainSteps):
    """The steps in compiled code; threads share the members. The plain step says what is not finite."""

    def __init__(self, kernels: Any, *parts: Any, **options: Any) -> None:
        """See `PlainSteps`; ``kernels`` is `model.bbb.compiled_steps`."""
        super().__init__(*parts, **options)
        self._kernels, self._seed, self._taken = kernels, options["seed"], 0
        network, likelihood, prior = self.network, self.likelihood, self.step.prior
        architecture = network.architecture
        members, self._scale = architecture.members, options["minibatches"] / self.step.total_rows
        sizes, places, layers = architecture.layers, 0, []
        before = 0
        for inputs, outputs in sizes:
            layers.append((inputs, outputs, places, before))
            places, before = places + (inputs + 1) * outputs, before + outputs
        self._layers = np.array(layers, np.int64)
        ends = np.flatnonzero(np.diff(network.groups.numpy(), append=-1)) + 1
        self._groups = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.int64)
        moments, average = self.optimiser.moments, self.averaged.average
        arrays = [*network.parameters(), *moments["exp_avg"][:2], *moments["exp_avg_sq"][:2], *average[:2]]
        self._states = [tuple(array.detach().numpy()[member] for array in arrays) for member in range(members)]
        self._noise = np.zeros((members, 4), np.float32)
        self._features, self._targets = self.training.features.numpy(), self.training.targets.numpy()
        weights, reads = self.training.weights, network.reads
        self._weights = np.empty(0, np.float32) if weights is None else weights.float().numpy()
        self._reads = np.ones((members, architecture.inputs), np.float32)
        if reads is not None:
            self._reads = np.ascontiguousarray(reads.squeeze(1).numpy())
        self._hyperprior, size = np.zeros(2), network.mu.shape
        mean, precision = np.zeros(size, np.float32), np.ones(size, np.float32)
        if isinstance(prior, EmpiricalBayesPrior):
            self._hyperprior[:] = prior.alpha, prior.beta
        elif isinstance(prior, GaussianPrior):
            precision[:] = prior.sigma**-2
        elif isinstance(prior, PosteriorPrior):
            mean[:], precision[:] = prior.mean.numpy(), prior.scale.numpy() ** -2
        self._prior = list(zip(mean, precision, strict=True))
        ratios = self.step.kl_ratios
        self._ratios = np.ones(members) if ratios is None else ratios.double().numpy()
        self._known = np.zeros((members, 3))
        if isinstance(likelihood, FixedNoise):
            self._known[:, 0] = likelihood.sigma
        elif isinstance(likelihood, HomoscedasticNoise) and likelihood.earlier is not None:
            share, variance = likelihood.earlier
            self._known[:, 1], self._known[:, 2] = share, variance.squeeze(1).numpy()
        limits = np.array(likelihood.limits or (np.nan, np.nan))
        self._limits = np.where(np.isfinite(limits), limits, np.nan)  # no target is beyond it
        kind = KINDS.index(likelihood.kind)
        components = likelihood.means if likelihood.kind == "mixture" else 1
        activation, skip = (
            list(ACTIVATIONS).index(architecture.activation),
            architecture.skip and bool(architecture.hidden),
        )
        self._settings = np.array([activation, skip, self.step.draws, kind, components], np.int64)
        self._rooms = threading.local()

    def take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        """See `Steps.take`."""
        total = 0.0
        for start in range(0, len(options), AT_A_TIME):
            some = slice(start, start + AT_A_TIME)
            with interrupts_held_back() as held_back:  # threads must not go on behind an interruption
                total += self._take(minibatches[some], options[some], epoch)
            if held_back.came:
                raise KeyboardInterrupt
        return total

    def _take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        sizes = [rows.shape[1] for rows in minibatches]
        order, bounds = torch.cat(list(minibatches), dim=1).numpy(), np.cumsum([0, *sizes])
        schedule = np.empty((len(options), 6))
        for step, values in enumerate(options):
            number = self._taken + step + 1
            keep = 1.0 - min(AVERAGING, number / (number + 10.0))
            rate, root = values.learning_rate / (1.0 - 0.9**number), (1.0 - 0.999**number) ** -0.5
            share = self._scale * values.temperature * values.kl_weight
            schedule[step] = rate, root, share, values.beta, keep, number
        most, (inputs, outputs) = max(sizes) * self.step.draws, self._layers[:, :2].T
        room = 5 * len(self._states[0][0]) + most * (
            2 * inputs[0] + 5 + self._settings[4] + 2 * outputs.max() + 5 * outputs.sum()
        )
        sums = np.zeros(len(self._states))
        failed = np.zeros(len(self._states), np.int64)
        learned = self._learned_noise()

        def work(members: slice) -> None:
            space = self._room(room)
            for member in range(members.start, members.stop):
                own, places = schedule.copy(), bounds.copy()
                own[:, 2] *= self._ratios[member]
                sums[member] = self._kernels.take_steps(
                    self._states[member],
                    self._noise[member],
                    self._layers,
                    self._groups,
                    self._features,
                    self._targets,
                    self._weights,
                    self._reads[member],
                    order[member % len(order)],
                    places,
                    own,
                    *self._prior[member],
                    self._hyperprior,
                    self._known[member],
                    self._limits,
                    self._settings,
                    self._scale,
                    space,
                    self.key_of(member),
                )
                failed[member] = places[0]

        for column, tensor in enumerate(learned):
            self._noise[:, column] = tensor.squeeze(1).numpy()
        in_parts(len(self._states), 1, work, available_processors())
        for column, tensor in enumerate(learned):
            tensor.squeeze(1).copy_(torch.from_numpy(self._noise[:, column]))
        self._taken += len(options)
        self.averaged.steps = self._taken
        if not np.isfinite(sums).all():
            step = int(failed[~np.isfinite(sums)].min())
            super().take(minibatches[step : step + 1], options[step : step + 1], epoch)
        rows = self.step.draws * sum(sizes) / len(sizes)
        return -float(sums.sum()) / (len(sums) * rows)

    def _learned_noise(self) -> list[Tensor]:
        """The learned noise of all rows and its averages, ``[M, 1]`` each; views of the optimiser's state."""
        if not isinstance(self.likelihood, HomoscedasticNoise):
            return []
        moments = self.optimiser.moments
        state = moments["exp_avg"][2], moments["exp_avg_sq"][2], self.averaged.average[2]
        return [self.likelihood.rho.detach(), *state]

    def _room(self, size: int) -> NDArray[np.float32]:
        """Room of the calling thread: what a member leaves in the processor's cache is written over by the next."""
        room: NDArray[np.float32] | None = getattr(self._rooms, "room", None)
        if room is None or len(room) < size:
            room = self._rooms.room = np.empty(size, np.float32)
        return room

    def outputs(self, rows: Tensor, generator: torch.Generator, draws: int) -> Tensor:
        """See `Steps.outputs`."""
        members, count, width = rows.shape
        (_, sizes), architecture = self._layers[:, :2].T, self.network.architecture
        outputs = torch.empty(members, draws * count, architecture.outputs)
        features, into, numbers = rows.numpy(), outputs.numpy(), np.arange(count)
        room = 3 * len(self._states[0][0]) + count * (2 * (width + 1) + 5 * draws * int(sizes.sum()))
        seed = int(torch.randint(2**31, (), generator=generator))

        def work(members: slice) -> None:
            for member in range(members.start, members.stop):
                mu, rho = self._states[member][:2]
                self._kernels.draw_outputs(
                    mu,
                    rho,
                    self._layers,
                    features[member],
                    self._reads[member],
                    numbers,
                    draws,
                    *self._settings[:2],
                    self._room(room),
                    into[member],
                    self._key(member, seed),
                )

        in_parts(members, 1, work, available_processors())
        return outputs

    def key_of(self, member: int) -> np.uint32:
        """The key of a member's normal numbers."""
        return self._key(member, self._seed)

    @staticmethod
    def _key(member: int, seed: int) -> np.uint32:
        return np.uint32(np.random.SeedSequence((seed, member)).generate_state(1)[0])
