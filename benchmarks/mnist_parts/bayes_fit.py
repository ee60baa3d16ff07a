"""Bayes by Backprop on tens of thousands of rows: the project's network, prior, likelihood and gradient, one loop.

`model.bbb.fit` is made for tables: a large batch of small networks, validated every few steps. With 50,000 images
and half a million weights the loop is simpler: a fixed number of epochs, a cosine schedule, no early stopping.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks.mnist_parts.bayes_answers import error_rate, mean_outputs, mixture_log_probabilities
from benchmarks.mnist_parts.images import CLASSES
from murho.model.bbb.classes import Categorical
from murho.model.bbb.free_energy import GradientStep, kl_weights
from murho.model.bbb.network import Architecture, BayesianNetwork, inverse_softplus
from murho.model.bbb.optimisers import Adam
from murho.model.training.pruning import PRUNED_RHO, is_removed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from murho.model.bbb.priors import Prior

__all__ = ["Recipe", "RunningFit", "fit_network"]

FINAL_RATE = 0.01
"""Last learning rate as a fraction of the first."""
RISE = (1.0 / 3.0, 0.8)
"""Where in a fit the temperature rises to its final value: networks learn the digits first, then let weights go."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is fitted.

    Attributes:
        hidden: Widths of the hidden layers.
        prior: Prior of all weights and biases.
        temperature: Factor of the KL; 1 is the exact free energy.
        final_temperature: Factor at the end: it rises by the same ratio in each step of `RISE`. None: it stays.
        warm_up: Share of all steps over which the KL's factor rises from 0 to ``temperature``.
        kl_weights: Share of the KL in each minibatch: ``uniform`` or ``geometric``.
        epochs: Passes over the images.
        batch_size: Images in a step.
        learning_rate: First learning rate of mu (Adam); it falls along a cosine.
        scale_rate: First learning rate of rho, a multiple of that of mu.
        initial_sigma: First sigma as a fraction of the standard deviation of the first means.
        seed: Seed of the first means, of minibatches and draws.
    """

    hidden: tuple[int, ...]
    prior: Prior
    temperature: float = 1.0
    final_temperature: float | None = None
    warm_up: float = 0.3
    kl_weights: str = "uniform"
    epochs: int = 100
    batch_size: int = 500
    learning_rate: float = 1e-3
    scale_rate: float = 5.0
    initial_sigma: float = 0.2
    seed: int = 0

    def temperature_at(self, done: float) -> float:
        """The KL's factor after a share of all steps."""
        temperature = self.temperature * min(1.0, done / self.warm_up) if self.warm_up else self.temperature
        if self.final_temperature is None:
            return temperature
        first, last = RISE
        risen = min(1.0, max(0.0, (done - first) / (last - first)))
        return float(temperature * (self.final_temperature / self.temperature) ** risen)

    def learning_rate_at(self, done: float) -> float:
        """The learning rate of mu after a share of all steps."""
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
        return self.learning_rate * (FINAL_RATE + (1.0 - FINAL_RATE) * cosine)


class RunningFit:
    """A fit between two epochs, which can be saved and resumed."""

    def __init__(self, recipe: Recipe, inputs: Tensor, digits: Tensor, initial: BayesianNetwork | None = None) -> None:
        """Start before the first epoch.

        Args:
            recipe: The recipe.
            inputs: ``[N, D]``.
            digits: ``[N]``, float32 class indices.
            initial: A fitted network of the same sizes to start from; weights that a pruning removed stay removed.
        """
        self.recipe, self._inputs, self._digits = recipe, inputs, digits
        self._generator = torch.Generator().manual_seed(recipe.seed)
        architecture = Architecture(inputs.shape[1], recipe.hidden, CLASSES)
        self.network = BayesianNetwork(architecture, self._generator)
        _set_initial_sigma(self.network, recipe.initial_sigma)
        if initial is not None:
            self.network.load_state_dict(initial.state_dict())
        self._removed = is_removed(self.network.mu.detach(), self.network.rho.detach())
        self._any_removed = bool(self._removed.any())
        self._step = GradientStep(self.network, Categorical(CLASSES), recipe.prior, total_rows=len(inputs))
        self._optimisers = (Adam([self.network.mu], recipe.learning_rate), Adam([self.network.rho], 1.0))
        self._minibatches = math.ceil(len(inputs) / recipe.batch_size)
        self._shares = kl_weights(recipe.kl_weights, self._minibatches)
        self.epochs = 0

    def epoch(self) -> tuple[float, float]:
        """Run all minibatches once; returns the mean negative log likelihood and ``KL / N``, nats per image."""
        if not self._any_removed:
            return self._epoch()
        # Products with the sigmas of removed weights are too small for normal numbers, and an epoch took four times as
        # long. The processor then rounds them to zero, for this thread, until it is told otherwise.
        torch.set_flush_denormal(True)
        try:
            return self._epoch()
        finally:
            torch.set_flush_denormal(False)

    def _epoch(self) -> tuple[float, float]:
        recipe, total = self.recipe, self.recipe.epochs * self._minibatches
        order = torch.randperm(len(self._inputs), generator=self._generator)
        negative, kl = 0.0, 0.0
        for number, rows in enumerate(order.split(recipe.batch_size)):
            done = self.epochs * self._minibatches + number
            rate = recipe.learning_rate_at(done / total)
            energy = self._step(
                self._inputs[rows],
                self._digits[rows],
                kl_weight=self._shares[number],
                minibatches=self._minibatches,
                temperature=recipe.temperature_at((done + 1) / total),
                generator=self._generator,
            )
            for optimiser, factor in zip(self._optimisers, (1.0, recipe.scale_rate), strict=True):
                optimiser.learning_rate = rate * factor
                optimiser.step()
            self._keep_removed()
            negative += float(energy.negative_log_likelihood) * len(rows) / len(self._inputs)
            kl += float(energy.kl) / self._minibatches
        self.epochs += 1
        return negative, kl

    @torch.no_grad()
    def _keep_removed(self) -> None:
        if self._any_removed:
            self.network.mu.masked_fill_(self._removed, 0.0)
            self.network.rho.masked_fill_(self._removed, PRUNED_RHO)

    def save(self, path: Path) -> None:
        """Write the state, all of it or nothing."""
        import safetensors.torch

        tensors = {"mu": self.network.mu.detach(), "rho": self.network.rho.detach()}
        for number, optimiser in enumerate(self._optimisers):
            for name, (moment,) in optimiser.moments.items():
                tensors[f"{number}.{name}"] = moment
        tensors["generator"] = self._generator.get_state()
        temporary = path.with_name(path.name + ".part")
        facts = {"epochs": str(self.epochs), "recipe": repr(self.recipe)}
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, facts)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state.

        Raises:
            SystemExit: It was saved with another recipe.
        """
        import safetensors

        with safetensors.safe_open(path, "pt") as file:
            facts = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        if facts["recipe"] != repr(self.recipe):
            raise SystemExit(f"{path}: a snapshot of another recipe ({facts['recipe']}); move it away to start anew")
        with torch.no_grad():
            self.network.mu.copy_(tensors["mu"])
            self.network.rho.copy_(tensors["rho"])
        for number, optimiser in enumerate(self._optimisers):
            prefix = f"{number}."
            optimiser.moments = {n.removeprefix(prefix): [t] for n, t in tensors.items() if n.startswith(prefix)}
        self._generator.set_state(tensors["generator"])
        self.epochs = int(facts["epochs"])


def fit_network(
    recipe: Recipe,
    training: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    *,
    initial: BayesianNetwork | None = None,
    snapshot: Path | None = None,
    say: Callable[[str], None] = print,
    between: int = 10,
) -> tuple[BayesianNetwork, list[dict[str, float]]]:
    """Run all epochs of a recipe.

    Args:
        recipe: The recipe.
        training: Inputs ``[N, D]`` and digits ``[N]``.
        validation: Inputs and digits that are only looked at.
        initial: A fitted network of the same sizes to start from; weights that a pruning removed stay removed.
        snapshot: File of the state, written every ``between`` epochs; where it exists, the fit goes on from it.
        say: Gets a line every ``between`` epochs.
        between: Epochs between two looks at the validation images.

    Returns:
        The network, and what the looks saw.
    """
    running = RunningFit(recipe, *training, initial=initial)
    history_file = None if snapshot is None else snapshot.with_suffix(".json")
    history: list[dict[str, float]] = []
    if snapshot is not None and history_file is not None and snapshot.exists():
        running.load(snapshot)
        history = json.loads(history_file.read_text())
    began = time.process_time()
    while running.epochs < recipe.epochs:
        negative, kl = running.epoch()
        if running.epochs % between and running.epochs < recipe.epochs:
            continue
        look = {
            "epoch": running.epochs,
            "nll": negative,
            "kl": kl,
            "mean_error": error_rate(mean_outputs(running.network, validation[0]), validation[1]),
            "error": error_rate(mixture_log_probabilities(running.network, validation[0], 8, 0), validation[1]),
            "processor_seconds": time.process_time() - began + (history[-1]["processor_seconds"] if history else 0.0),
        }
        began = time.process_time()
        history.append(look)
        say("  ".join(f"{name} {value:.5g}" for name, value in look.items()))
        if snapshot is not None and history_file is not None:
            running.save(snapshot)
            history_file.write_text(json.dumps(history))
    return running.network, history


@torch.no_grad()
def _set_initial_sigma(network: BayesianNetwork, fraction: float) -> None:
    """Set each sigma to a fraction of the standard deviation of the means of its layer's weights."""
    means, scales = network.parts(network.mu), network.parts(network.rho)
    for first in range(0, len(means), 2):
        sigma = fraction * means[first].std()
        for scale in scales[first : first + 2]:
            scale.copy_(inverse_softplus(sigma).expand_as(scale))
