"""The optimiser steps of a fit, and its validation: compiled, or plain PyTorch on any device.

Both take the same steps (`model.bbb.free_energy`, Adam, averaging), with other normal numbers. Compiled steps need the
extra ``murho[compiled]`` and a CPU; counts, scale-mixture priors and pruned networks are left to the plain ones.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murho.model.bbb.fit_rows import Rows, SeenRows
from murho.model.bbb.free_energy import GradientStep
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import ACTIVATIONS, BayesianNetwork
from murho.model.bbb.number_likelihoods import FixedNoise, HomoscedasticNoise
from murho.model.bbb.optimisers import AVERAGING, FitState
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, Prior, ScaleMixturePrior
from murho.model.bbb.schedule import StepOptions
from murho.model.runtime import in_parts, interrupts_held_back, load_compiled, threads_for
from murho.model.seeds import seed_for


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
            draws: Draws per row.
            minibatches: T.
            seed: Seed of the draws.
        """
        self.network, self.likelihood, self.training, self.minibatches = network, likelihood, training, minibatches
        self.state = FitState([*network.parameters(), *likelihood.parameters()])
        self.step = GradientStep(
            network, likelihood, prior, total_rows=seen.longest, draws=draws, kl_ratios=seen.uneven
        )
        self.seed, self.generator = seed, torch.Generator(training.features.device).manual_seed(seed)

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
        total = torch.zeros((), device=self.training.features.device)
        with threads_for(self.network.mu.numel() * minibatches[0].shape[1]):
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
                self.step.clip(energy, features, targets, epoch)
                self.state.step(step.learning_rate)
                total += energy.negative_log_likelihood
        return float(total)

    def outputs(self, rows: Tensor, generator: torch.Generator, draws: int) -> Tensor:
        """Return outputs of the present network, each row under its own draws.

        Args:
            rows: Encoded rows, ``[M, B, D]``.
            generator: Source of the draws.
            draws: Draws per row, S.

        Returns:
            ``[M, S * B, P]``, draw-major.
        """
        outputs: Tensor = self.network(rows, generator, draws)
        return outputs


AT_A_TIME = 64
"""Steps of a call of compiled code: an interruption waits for its end."""
KINDS = ("fixed", "homoscedastic", "heteroscedastic", "mixture", "bernoulli", "categorical")
"""Observation models of compiled steps, in the order of their numbers there."""
MOST_WEIGHTS = 2**17
"""With more of them, and fewer members than processors, PyTorch's products keep more of these busy."""


class Kernels(NamedTuple):
    """The compiled functions that `CompiledSteps` calls."""

    network: Any
    steps: Any


@cache
def kernels() -> Kernels | None:
    """Return the compiled code, loaded once; None where there is none."""

    def load() -> Kernels:
        from murho.model.bbb.compiled import network_kernels, step_kernels

        return Kernels(network_kernels, step_kernels)

    return load_compiled(load)


def steps_of(plain: PlainSteps) -> PlainSteps | CompiledSteps:
    """Return the compiled form of steps, where there is one for the model and the device; else the plain ones."""
    weights = plain.network.mu
    fitting = weights.device.type == "cpu" and plain.likelihood.kind in KINDS and plain.network.removed is None
    shared = len(weights) >= torch.get_num_threads() or weights.numel() <= MOST_WEIGHTS
    if not (fitting and shared) or isinstance(plain.step.prior, ScaleMixturePrior):
        return plain
    loaded = kernels()
    return plain if loaded is None else CompiledSteps(plain, loaded)


class CompiledSteps:
    """The steps in compiled code; threads share the members.

    Attributes:
        plain: The plain steps, which say what is not finite.
        state: That of the plain steps, which both change.
        keys: The keys of the members' normal numbers.
    """

    def __init__(self, plain: PlainSteps, loaded: Kernels) -> None:
        """Take the parameters, and the state of the optimiser and of the average, from the plain steps."""
        self.plain, self.state, self._kernels = plain, plain.state, loaded
        network, likelihood, training, step = plain.network, plain.likelihood, plain.training, plain.step
        architecture, (members, weights) = network.architecture, network.mu.shape
        self._scale, self._taken = plain.minibatches / step.total_rows, 0
        self.keys = [_key(plain.seed, member) for member in range(members)]
        skip = architecture.skip and bool(architecture.hidden)
        self._layers = loaded.network.layer_table(architecture.layers, architecture.inputs, skip=skip)
        ends = np.flatnonzero(np.diff(network.groups.numpy(), append=-1)) + 1
        self._groups = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.int64)
        # mu, rho, and the learned noise of all rows if there is one: each with its averages.
        state = plain.state.parameters, plain.state.first, plain.state.second, plain.state.average
        arrays = [tensor.detach().numpy() for tensors in state for tensor in tensors[:2]]
        self._states = [tuple(array[member] for array in arrays) for member in range(members)]
        self._learned = [tensors[2].detach().numpy()[:, 0] for tensors in state if len(tensors) > 2]
        self._noise = np.zeros((members, 4), np.float32)
        self._features, self._targets = training.features.numpy(), training.targets.numpy()
        self._weights = np.empty(0, np.float32) if training.weights is None else training.weights.float().numpy()
        self._reads = np.ones((members, architecture.inputs), np.float32)
        if network.reads is not None:
            self._reads[:] = network.reads.squeeze(1).numpy()
        self._hyperprior = np.zeros(2)
        self._mean, self._precision = np.zeros((2, members, weights), np.float32)
        if isinstance(step.prior, EmpiricalBayesPrior):
            self._hyperprior[:] = step.prior.alpha, step.prior.beta
        elif isinstance(step.prior, GaussianPrior):
            self._precision[:] = step.prior.sigma**-2
        elif isinstance(step.prior, PosteriorPrior):
            self._mean[:], self._precision[:] = step.prior.mean.numpy(), step.prior.scale.numpy() ** -2
        self._ratios = np.ones(members) if step.kl_ratios is None else step.kl_ratios.double().numpy()
        self._known = np.zeros((members, 3))
        if isinstance(likelihood, FixedNoise):
            self._known[:, 0] = likelihood.sigma
        elif isinstance(likelihood, HomoscedasticNoise) and likelihood.earlier is not None:
            share, variance = likelihood.earlier
            self._known[:, 1], self._known[:, 2] = share, variance.squeeze(1).numpy()
        limits = np.array(likelihood.limits or (np.nan, np.nan))
        self._limits = np.where(np.isfinite(limits), limits, np.nan)  # no target is beyond it
        self._activation = list(ACTIVATIONS).index(architecture.activation)
        kind, components = KINDS.index(likelihood.kind), likelihood.means if likelihood.kind == "mixture" else 1
        self._settings = np.array([self._activation, step.draws, kind, components], np.int64)
        self._workspaces = threading.local()

    def take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        """See `PlainSteps.take`."""
        total = 0.0
        for start in range(0, len(options), AT_A_TIME):
            some = slice(start, start + AT_A_TIME)
            with interrupts_held_back() as held_back:  # threads must not go on behind an interruption
                total += self._take(minibatches[some], options[some], epoch)
            if held_back.came:
                raise KeyboardInterrupt
        return total

    def _take(self, minibatches: Sequence[Tensor], options: Sequence[StepOptions], epoch: int) -> float:
        sizes, draws = [rows.shape[1] for rows in minibatches], self.plain.step.draws
        order, bounds = torch.cat(list(minibatches), dim=1).numpy(), np.cumsum([0, *sizes])
        schedule = np.empty((len(options), 6))
        for step, values in enumerate(options):
            number = self._taken + step + 1
            keep = 1.0 - min(AVERAGING, number / (number + 10.0))
            rate, root = values.learning_rate / (1.0 - 0.9**number), (1.0 - 0.999**number) ** -0.5
            share = self._scale * values.temperature * values.kl_weight
            schedule[step] = rate, root, share, values.beta, keep, number
        members, weights = self._mean.shape
        needed = (weights, self._features.shape[1], max(sizes) * draws, int(self._settings[-1]))
        workspace = self._kernels.steps.workspace_of_steps(self._layers, *needed)
        sums, failed = np.zeros(members), np.zeros(members, np.int64)

        def work(some: slice) -> None:
            space = self._workspace(workspace)
            for member in range(some.start, some.stop):
                own, places = schedule.copy(), bounds.copy()
                own[:, 2] *= self._ratios[member]
                sums[member] = self._kernels.steps.take_steps(
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
                    self._mean[member],
                    self._precision[member],
                    self._hyperprior,
                    self._known[member],
                    self._limits,
                    self._settings,
                    self._scale,
                    space,
                    self.keys[member],
                )
                failed[member] = places[0]

        for column, learned in enumerate(self._learned):
            self._noise[:, column] = learned
        in_parts(members, 1, work)
        for column, learned in enumerate(self._learned):
            learned[:] = self._noise[:, column]
        self._taken += len(options)
        if not np.isfinite(sums).all():
            step = int(failed[~np.isfinite(sums)].min())
            self.plain.take(minibatches[step : step + 1], options[step : step + 1], epoch)
        return -float(sums.sum() * len(sizes) / (members * draws * sum(sizes)))

    def outputs(self, rows: Tensor, generator: torch.Generator, draws: int) -> Tensor:
        """See `PlainSteps.outputs`."""
        members, count, _ = rows.shape
        outputs = torch.empty(members, draws * count, self.plain.network.architecture.outputs)
        features, into, numbers = rows.numpy(), outputs.numpy(), np.arange(count)
        workspace = self._kernels.network.workspace_of_outputs(self._layers, self._mean.shape[1], count, draws)
        seed = int(torch.randint(2**62, (), generator=generator))

        def work(some: slice) -> None:
            for member in range(some.start, some.stop):
                self._kernels.network.draw_outputs(
                    *self._states[member][:2],
                    self._layers,
                    features[member],
                    self._reads[member],
                    numbers,
                    draws,
                    self._activation,
                    self._workspace(workspace),
                    into[member],
                    _key(seed, member),
                )

        in_parts(members, 1, work)
        return outputs

    def _workspace(self, size: int) -> NDArray[np.float32]:
        """Room of the calling thread: what a member leaves in the processor's cache is written over by the next."""
        workspace: NDArray[np.float32] | None = getattr(self._workspaces, "room", None)
        if workspace is None or len(workspace) < size:
            workspace = self._workspaces.workspace = np.empty(size, np.float32)
        return workspace


def _key(seed: int, member: int) -> np.uint64:
    """Return the key of a member's normal numbers."""
    return np.uint64(seed_for(seed, f"member {member}"))
