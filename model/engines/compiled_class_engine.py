"""The engine of compiled code for classes: forward pass, class probabilities of draws, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.distributions.class_predictive import SettledDraws, share_of_entropy
from murho.model.engines.compiled_forward import CompiledForward
from murho.model.runtime.threads import in_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.encoding.training_range import Outside
    from murho.model.engines.class_plan import ClassPlan
    from murho.model.engines.class_target_model import ClassTargetModel
    from murho.model.engines.compiled.loader import Kernels

__all__ = ["CompiledClassEngine"]

VALUES_PER_THREAD = 2**15
"""Rows times draws times classes that justify one more thread: about a millisecond of work."""


class CompiledClassEngine(CompiledForward):
    """The engine of compiled code for classes, see `model.engines.engine.Engine`."""

    def __init__(self, target: ClassTargetModel, kernels: Kernels) -> None:
        """Keep the target model and the compiled functions."""
        super().__init__(target, kernels)
        self._target = target

    def answer(self, plan: ClassPlan, outputs: Tensor, members: Tensor, outside: Outside) -> dict[str, NDArray[Any]]:
        """See `Engine.answer`."""
        if plan.options.samples == 0:
            return self._reference.answer(plan, outputs, members, outside)
        predictive = _CompiledPredictive.of(self._target, self._kernels, outputs)
        return {name: part.numpy() for name, part in plan.answer(predictive, outside).items()}


@dataclass(frozen=True, slots=True)
class _CompiledPredictive:
    """A `model.distributions.class_predictive.ClassPredictive` in compiled code."""

    shares: Tensor
    least: float
    kernels: Kernels
    draws: NDArray[np.float64]
    means: NDArray[np.float64]
    entropies: NDArray[np.float64]

    @classmethod
    def of(cls, target: ClassTargetModel, kernels: Kernels, outputs: Tensor) -> _CompiledPredictive:
        samples, rows, _ = outputs.shape
        classes = len(target.classes)
        draws, means, entropies = np.empty((rows, classes, samples)), np.empty((rows, classes)), np.empty(rows)
        logits = np.ascontiguousarray(outputs.transpose(1, 2).numpy())
        least_rows = max(1, VALUES_PER_THREAD // (samples * classes))
        in_parts(
            rows, least_rows, lambda part: kernels.pool_draws(logits, draws, means, entropies, part.start, part.stop)
        )
        return cls(target.shares, target.least, kernels, draws, means, entropies)

    def pooled(self) -> Tensor:
        """See `ClassPredictive.pooled`."""
        return torch.lerp(torch.from_numpy(self.means), self.shares, self.least)

    def epistemic_share(self) -> Tensor:
        """See `ClassPredictive.epistemic_share`."""
        return share_of_entropy(torch.from_numpy(self.means), torch.from_numpy(self.entropies))

    def settled(self, goal: Tensor) -> SettledDraws:
        """See `ClassPredictive.settled`; the draws are changed in place."""
        rows, classes, samples = self.draws.shape
        spreads, entropies = np.empty((rows, classes)), np.empty(rows)
        wanted = np.ascontiguousarray(goal.numpy())
        in_parts(
            rows,
            max(1, VALUES_PER_THREAD // (samples * classes)),
            lambda part: self.kernels.settle_draws(self.draws, wanted, spreads, entropies, part.start, part.stop),
        )
        return SettledDraws(*(torch.from_numpy(part) for part in (self.draws, spreads, entropies)))
