"""The engine of compiled code, for CPUs: the forward pass of many rows, and answers from its outputs in one pass.

PyTorch answers ``samples=0``.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import torch

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.distributions.class_predictive import ClassPredictive, MatchedDraws
from murho.model.distributions.target_transforms import Identity, Logarithm
from murho.model.predictive.forward import FEW_ROWS, TorchEngine, forward
from murho.model.predictive.plans import ClassPlan, ClassTargetModel, PredictionPlan, TargetModel
from murho.model.runtime import in_parts, load_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from murho.model.arrays import Floats
    from murho.model.bbb.number_likelihoods import GaussianMixtureLikelihood
    from murho.model.predictive.draws import Draws
    from murho.model.predictive.plans import AnyPlan, AnyTargetModel, Arrays, DrawnRows, Engine

_LOG = logging.getLogger("murho.engines")


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled functions that an engine calls.

    Attributes:
        answer_rows: `rows.answer_rows`.
        pool_draws: `classes.pool_draws`.
        settle_draws: `classes.settle_draws`.
        forward_draws: `network.forward_draws`; None where the matrix products that it calls are missing.
    """

    answer_rows: Callable[..., None]
    pool_draws: Callable[..., None]
    settle_draws: Callable[..., None]
    forward_draws: Callable[..., None] | None


@cache
def load() -> Kernels | None:
    """Load the compiled functions once; None where PyTorch computes all answers (`load_compiled`)."""
    return load_compiled(compile_kernels)


def compile_kernels() -> Kernels:
    """Import the kernels, which compiles them or loads the code that an earlier process compiled.

    Raises:
        ImportError: Numba is missing, or does not work with this Python or NumPy.
        Exception: Numba can't compile for this processor.
    """
    from murho.model.predictive.compiled.answer_kernels import answer_rows
    from murho.model.predictive.compiled.class_kernels import pool_draws, settle_draws

    try:
        from murho.model.predictive.compiled.forward_kernels import forward_draws
    except (OSError, AttributeError):
        _LOG.info("PyTorch computes the network: this build of it has no MKL for compiled code to call")
        return Kernels(answer_rows, pool_draws, settle_draws, None)
    return Kernels(answer_rows, pool_draws, settle_draws, forward_draws)


TILE_FLOATS = 2**19
"""Hidden values of a layer in a tile of a thread's forward pass: two buffers of 2 MiB."""
LEAST_ROWS, MOST_ROWS = 256, 1024
"""Limits of the rows in such a tile."""
MULTIPLE = 8
"""The product of a tile has a multiple of so many rows, as many as a vector has numbers. MKL takes 1.8 ms for 9 rows of
the demo under 256 draws, and 0.75 ms for 16."""


class CompiledForward:
    """The engine of compiled code for any kind of target, see `model.predictive.plans.Engine`."""

    name = "compiled"

    def __init__(self, kernels: Kernels) -> None:
        """Keep the compiled functions."""
        self._reference, self._kernels = TorchEngine(), kernels

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """See `Engine.forward`: compiled code for many rows of a network with SiLU, else PyTorch."""
        forward_draws = self._kernels.forward_draws
        if forward_draws is None or draws.activation != "silu" or len(draws.layers) == 1 or len(rows) <= FEW_ROWS:
            return forward(draws, rows)
        samples, batch = len(draws), _multiple(len(rows))
        inputs = rows.new_ones((rows.shape[1] + 1, batch))
        inputs[:-1, : len(rows)] = rows.T
        outputs = rows.new_empty((samples, draws.layers[-1].shape[1], batch))
        widest = max(layer.shape[1] for layer in draws.layers[:-1])
        most = max(LEAST_ROWS, min(MOST_ROWS, TILE_FLOATS // widest))
        at_a_time = _multiple(-(-batch // -(-batch // most)))
        arrays = draws.layers, inputs.numpy(), outputs.numpy(), len(inputs) if draws.skip else 0, at_a_time
        in_parts(samples, 1, lambda part: forward_draws(*arrays, part.start, part.stop))
        return outputs[:, :, : len(rows)].transpose(1, 2)


def _multiple(rows: int) -> int:
    """Return the next multiple of `MULTIPLE`."""
    return -(-rows // MULTIPLE) * MULTIPLE


class CompiledEngine(CompiledForward):
    """The engine of compiled code, see `model.predictive.plans.Engine`."""

    def __init__(self, target: TargetModel, kernels: Kernels, *, components_per_thread: int = 2**16) -> None:
        """Prepare the constants of a target model.

        Args:
            target: A target model that `supports` accepts.
            kernels: The compiled functions.
            components_per_thread: Rows times components that justify one more thread: about a millisecond of work.
        """
        super().__init__(kernels)
        self._target: TargetModel = target
        self._components_per_thread = components_per_thread
        self._noise = _noise_of_members(cast("GaussianMixtureLikelihood", target.likelihood), target.members)
        wide, learned, top, shift = target.wide, target.standardisation, 0.0, 0.0
        transform = learned.transform
        if isinstance(transform, Logarithm):
            top, shift = transform.top, transform.shift
        rule = (0.0, 0.0, 0.0) if wide is None else (wide.weight, wide.widening, wide.most * learned.scale)
        self._numbers = (
            NOISE_FLOOR,
            learned.location - top,
            learned.scale,
            float(isinstance(transform, Logarithm)),
            math.exp(top),
            shift,
            *rule,
        )

    @staticmethod
    def supports(target: TargetModel) -> bool:
        """Whether there is compiled code for the observation model and the transform of a target model.

        There is none for a target with limits.
        """
        known = target.likelihood.mixture_outputs and isinstance(target.standardisation.transform, Identity | Logarithm)
        return known and target.standardisation.limits is None

    def answer(self, plan: AnyPlan, drawn: DrawnRows) -> Arrays:
        """See `Engine.answer`."""
        options, means = plan.options, self._target.likelihood.means
        if options.samples == 0 or not isinstance(plan, PredictionPlan):
            return self._reference.answer(plan, drawn)
        outputs, only_widen = drawn.outputs, drawn.only_widen
        samples, batch = outputs.shape[:2]
        scores = plan.scores_of(only_widen).numpy() if options.noise else np.empty((batch, 0))
        rows_of, order = np.arange(batch)[:, None], scores.argsort(axis=1, kind="stable")
        rising = scores[rows_of, order]
        thresholds = np.empty(0)
        if options.noise and options.thresholds:
            thresholds = self._target.standardisation.forward(plan.thresholds).numpy()
        moments, values, tails = np.empty((4, batch)), np.empty(scores.shape), np.empty((2, batch, len(thresholds)))
        draws = np.empty((batch, samples if options.draws or not options.noise else 0))
        variances = np.empty((batch, samples if options.noise_moments else 0))
        arrays = (
            outputs.transpose(1, 2).numpy(),
            means,
            self._noise[drawn.members.numpy()],
            rising,
            thresholds,
            self._numbers,
        )
        in_parts(
            batch,
            -(-self._components_per_thread // (samples * means)),
            lambda rows: self._kernels.answer_rows(
                *arrays, rows.start, rows.stop, moments, values, tails, draws, variances
            ),
        )
        mean, epistemic, aleatoric, third = moments
        answer = {"mean": mean}
        if not options.noise:
            answer |= {"std": epistemic, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
            answer |= plan.of_functions(torch.from_numpy(draws).T)
        else:
            quantiles = np.empty_like(values)
            quantiles[rows_of, order] = values
            answer |= plan.of_quantiles(mean, epistemic, aleatoric, quantiles, only_widen.numpy())
            if options.thresholds:
                below, above = torch.from_numpy(tails)
                answer["exceedance"] = plan.exceedance(below, above, only_widen)
        if options.draws:
            answer["draws"] = draws
        if options.noise_moments:
            answer |= {"variances": variances, "third": third}
        return answer


def _noise_of_members(likelihood: GaussianMixtureLikelihood, members: int) -> Floats:
    """Noise of each member where it is no output of the network, else 0; ``[M]``, standardised."""
    if likelihood.outputs > likelihood.means:
        return np.zeros(members, dtype=np.float32)
    with torch.inference_mode():
        _, noise, _ = likelihood.components(torch.zeros((members, 1, 1)))
        return np.broadcast_to(noise.flatten().cpu().numpy(), members).copy()


VALUES_PER_THREAD = 2**15
"""Rows times draws times classes that justify one more thread: about a millisecond of work."""


class CompiledClassEngine(CompiledForward):
    """The engine of compiled code for classes, see `model.predictive.plans.Engine`."""

    def answer(self, plan: AnyPlan, drawn: DrawnRows) -> Arrays:
        """See `Engine.answer`."""
        if plan.options.samples == 0 or not isinstance(plan, ClassPlan):
            return self._reference.answer(plan, drawn)
        target = cast("ClassTargetModel", drawn.target)
        predictive = _CompiledPredictive.of_outputs(target, self._kernels, drawn.outputs)
        return plan.answer(predictive, drawn.only_widen)


@dataclass(frozen=True, slots=True)
class _CompiledPredictive(ClassPredictive):
    """A `model.distributions.class_predictive.ClassPredictive` in compiled code; its draws are ``[B, C, S]``."""

    kernels: Kernels
    of_draws: tuple[Tensor, Tensor]

    @classmethod
    def of_outputs(cls, target: ClassTargetModel, kernels: Kernels, outputs: Tensor) -> Self:
        """From outputs of the network, ``[S, B, P]``."""
        samples, rows, _ = outputs.shape
        draws = torch.empty((rows, len(target.classes), samples), dtype=torch.float64)
        found = draws.new_empty(draws.shape[:2]), draws.new_empty(rows)
        arrays = [part.numpy() for part in (outputs.transpose(1, 2).contiguous(), draws, *found)]
        in_parts(rows, _least_rows(draws), lambda part: kernels.pool_draws(*arrays, part.start, part.stop))
        return cls(draws, target.shares, target.least, kernels, found)

    @property
    def means(self) -> Tensor:
        """See `ClassPredictive.means`."""
        return self.of_draws[0]

    @property
    def entropies(self) -> Tensor:
        """See `ClassPredictive.entropies`."""
        return self.of_draws[1]

    def match_mean(self, goal: Tensor) -> MatchedDraws:
        """See `ClassPredictive.match_mean`; the draws are changed in place."""
        matched = MatchedDraws(self.draws, torch.empty_like(self.means), torch.empty_like(self.entropies))
        parts = self.draws, goal.contiguous(), matched.epistemic_std, matched.expected_entropy
        arrays = [part.numpy() for part in parts]
        least = _least_rows(self.draws)
        in_parts(len(goal), least, lambda part: self.kernels.settle_draws(*arrays, part.start, part.stop))
        return matched


def _least_rows(draws: Tensor) -> int:
    return max(1, VALUES_PER_THREAD // (draws.shape[1] * draws.shape[2]))


WORTH_COMPILED_CODE = 2**22
"""Rows times draws above which compiled code saves more than the second that it takes to load."""


ENGINES = ("auto", "torch")
"""``auto``: compiled code on a CPU, where it is available; ``torch``: PyTorch, which saves a second of loading."""


def select_engine(target: AnyTargetModel, device: torch.device, choice: str = "auto") -> Engine:
    """Select the engine for a target model.

    ``auto`` selects compiled code on a CPU, if Numba is installed and works, for the observation models and transforms
    that it supports, and else PyTorch. If compiled code can't be loaded, `load` logs the reason once.

    Args:
        target: Maps the network's outputs to the distribution of the target.
        device: The device of the draws.
        choice: One of `ENGINES`.

    Raises:
        ValueError: The choice is not one of `ENGINES`.
    """
    if choice not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {choice!r}")
    reference = TorchEngine()
    if choice == "torch" or device.type != "cpu":
        return reference
    kernels = load()
    if kernels is None:
        return reference
    if isinstance(target, ClassTargetModel):
        return CompiledClassEngine(kernels)
    if isinstance(target, TargetModel) and CompiledEngine.supports(target):
        return CompiledEngine(target, kernels)
    return reference


def engine_worth(rows: int, samples: int) -> str:
    """Return the choice of engine for a process that answers this number of rows once, and then ends."""
    return "auto" if rows * samples > WORTH_COMPILED_CODE else "torch"
