"""The engine of compiled code, for CPUs: the forward pass of many rows, and answers from its outputs in one pass.

PyTorch answers ``samples=0``, and the percentiles of the few rows that compiled code can't prove to be accurate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from murho.model.distributions.transforms import LEAST_DEVIATION, NEAR_SEAM, Identity, Logarithm
from murho.model.engines.compiled_forward import CompiledForward
from murho.model.engines.prediction_plan import SPREADS
from murho.model.likelihoods.likelihood import NOISE_FLOOR
from murho.model.runtime.threads import in_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.encoding.training_range import Outside
    from murho.model.engines.compiled.loader import Kernels
    from murho.model.engines.prediction_plan import PredictionPlan
    from murho.model.engines.target_model import TargetModel
    from murho.model.likelihoods.gaussian_mixture import GaussianMixtureLikelihood

__all__ = ["CompiledEngine"]

NOTHING = np.empty(0)


class CompiledEngine(CompiledForward):
    """The engine of compiled code, see `model.engines.engine.Engine`."""

    def __init__(self, target: TargetModel, kernels: Kernels, *, components_per_thread: int = 2**16) -> None:
        """Prepare the constants of a target model.

        Args:
            target: A target model that `supports` accepts.
            kernels: The compiled functions.
            components_per_thread: Rows times components that justify one more thread: about a millisecond of work.
        """
        super().__init__(target, kernels)
        self._target: TargetModel = target
        self._components_per_thread = components_per_thread
        self._noise = _noise_of_members(cast("GaussianMixtureLikelihood", target.likelihood), target.members)
        wide, transform = target.wide, target.transform
        self._wide = (0.0, 0.0, 0.0) if wide is None else (wide.weight, wide.widening, 1.0)
        seam = (transform.top, transform.shift) if isinstance(transform, Logarithm) else (math.inf, 0.0)
        self._logarithm = (*seam, NEAR_SEAM, LEAST_DEVIATION)

    @staticmethod
    def supports(target: TargetModel) -> bool:
        """Whether there is compiled code for the observation model and the transform of a target model.

        There is none for a target with limits.
        """
        known = target.likelihood.mixture_outputs and isinstance(target.transform, Identity | Logarithm)
        return known and target.limits is None

    def answer(
        self, plan: PredictionPlan, outputs: Tensor, members: Tensor, outside: Outside
    ) -> dict[str, NDArray[Any]]:
        """See `Engine.answer`."""
        if plan.options.samples == 0:
            return self._reference.answer(plan, outputs, members, outside)
        answer, quantiles, settled = self._answer(plan, outputs, members, outside)
        if plan.options.noise:
            unsettled = (~settled).nonzero()[0]
            if len(unsettled):
                rows = torch.from_numpy(unsettled)
                predictive = self._target.predictive(outputs[:, rows], members)
                quantiles[unsettled] = plan.quantiles(predictive, outside.of_rows(rows)).numpy()
            spreads = {name: torch.from_numpy(answer[name]) for name in SPREADS}
            of_quantiles = plan.of_quantiles(spreads, torch.from_numpy(quantiles), outside)
            answer |= {name: part.numpy() for name, part in of_quantiles.items()}
        return answer

    def _answer(
        self, plan: PredictionPlan, outputs: Tensor, members: Tensor, outside: Outside
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64], NDArray[np.bool_]]:
        """The answer without what follows from quantiles; the quantiles, ``[B, L]``; the rows where all are proved."""
        options, likelihood = plan.options, self._target.likelihood
        samples, batch = outputs.shape[:2]
        scores, ranks, thresholds = np.empty((batch, 0)), None, NOTHING
        if options.noise:
            scores, ranks = (part.numpy() for part in plan.rising_scores(outside))
            thresholds = self._standardised(plan.thresholds) if options.thresholds else NOTHING
        moments, settled = np.empty((4, batch)), np.empty(batch, np.bool_)
        values, tails = np.empty(scores.shape), np.empty((2, batch, len(thresholds)))
        draws = np.empty((batch, samples if options.draws or not options.noise else 0))
        arrays = (
            outputs.transpose(1, 2).numpy(),
            likelihood.means,
            self._noise[members.numpy()],
            NOISE_FLOOR,
            scores,
            thresholds,
            (self._target.location, self._target.scale),
            self._wide,
            self._logarithm,
        )
        in_parts(
            batch,
            -(-self._components_per_thread // (samples * likelihood.means)),
            lambda rows: self._kernels.answer_rows(
                *arrays, rows.start, rows.stop, moments, values, settled, tails, draws
            ),
        )
        mean, epistemic, aleatoric, std = moments
        answer = {"mean": mean, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
        if options.noise:
            answer["std"] = std
            if options.thresholds:
                below, above = map(torch.from_numpy, tails)
                answer["exceedance"] = plan.exceedance(below, above, outside).numpy()
        else:
            answer["std"] = epistemic
            of_functions = plan.of_functions(torch.from_numpy(draws).T)
            answer |= {name: part.numpy() for name, part in of_functions.items()}
        if options.draws:
            answer["draws"] = draws
        if ranks is not None:
            values = np.take_along_axis(values, ranks, axis=1)
        return answer, values, settled

    def _standardised(self, thresholds: Tensor) -> NDArray[np.float64]:
        """Standardised thresholds of thresholds in the target's unit, ``[T]``."""
        target = self._target
        return (target.transform.forward(thresholds).numpy() - target.location) / target.scale


def _noise_of_members(likelihood: GaussianMixtureLikelihood, members: int) -> NDArray[np.float32]:
    """Noise of each member where it is no output of the network, else 0; ``[M]``, standardised."""
    if likelihood.outputs > likelihood.means:
        return np.zeros(members, dtype=np.float32)
    with torch.inference_mode():
        _, noise, _ = likelihood.components(torch.zeros((members, 1, 1)))
        return np.broadcast_to(noise.flatten().cpu().numpy(), members).copy()
