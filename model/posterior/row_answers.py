"""Answers by compiled code at once from the network's outputs.

The few rows a level of which is not found go by way of `model.distributions.predictive`, as do all where there is no
compiled code. Both ways give the same numbers, to single precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from murho.model.distributions.transforms import LEAST_DEVIATION, NEAR_SEAM, Identity, Logarithm
from murho.model.engines.compiled.kernel_loader import at_hand
from murho.model.likelihoods.likelihood import NOISE_FLOOR
from murho.model.runtime.threads import in_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.distributions.transforms import Transform
    from murho.model.distributions.wide_component import WideRule
    from murho.model.encoding.training_range import Outside
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.posterior.prediction_plan import Question

__all__ = ["RowAnswers"]

KINDS = ("fixed", "homoscedastic", "heteroscedastic", "mixture")
"""Likelihoods whose outputs compiled code reads as they do."""
NOTHING = np.empty(0)
PART = 2**16
"""Components times rows that another thread is woken for: a millisecond's."""


@dataclass(frozen=True, slots=True)
class RowAnswers:
    """What a posterior's outputs mean.

    Attributes:
        likelihood: Its observation model.
        transform: From the target to what was learned.
        learned: Location and scale of the latter.
        noise: The noise of each member where outputs tell none, ``[M]``, standardised.
        wide: Weight, widening and widest noise, standardised, of the wide component; weight 0: there is none.
        logarithm: See `model.engines.compiled.answer_kernel.answer_rows`.
    """

    likelihood: Likelihood
    transform: Transform
    learned: tuple[float, float]
    noise: NDArray[np.float32]
    wide: tuple[float, float, float]
    logarithm: tuple[float, float, float, float]

    @classmethod
    def of(
        cls,
        likelihood: Likelihood,
        location: float,
        scale: float,
        transform: Transform,
        wide: WideRule | None,
        *,
        members: int = 1,
    ) -> Self | None:
        """For a posterior of M members; None where compiled code does not know its likelihood or its transform."""
        if likelihood.kind not in KINDS or not isinstance(transform, Identity | Logarithm):
            return None
        top, shift = (transform.top, transform.shift) if isinstance(transform, Logarithm) else (math.inf, 0.0)
        return cls(
            likelihood,
            transform,
            (location, scale),
            _known_noise(likelihood, members),
            (0.0, 0.0, 0.0) if wide is None else (wide.weight, wide.widening, 1.0),
            (top, shift, NEAR_SEAM, LEAST_DEVIATION),
        )

    def answer(
        self, question: Question, outputs: Tensor, members: Tensor, outside: Outside
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.intp]] | None:
        """The answer for B rows.

        Args:
            question: What is asked.
            outputs: Of the network, ``[S, B, P]``, on the processor.
            members: Member of each draw, ``[S]``.
            outside: Which rows lie beyond the training rows.

        Returns:
            The answer, see `model.posterior.prediction_plan.Question.answer`, and the numbers of the rows whose
            percentiles are still to be found. None where there is no compiled code at hand, and without draws.
        """
        kernels, options = at_hand(), question.options
        if kernels is None or options.samples == 0:
            return None
        samples, batch = outputs.shape[:2]
        scores, thresholds = np.empty((batch, 0)), NOTHING
        if options.noise:
            scores = _scores(question, outside).numpy()
            thresholds = self._standardised(question.thresholds) if options.thresholds else NOTHING
        moments, settled = np.empty((4, batch)), np.empty(batch, np.bool_)
        values, tails = np.empty(scores.shape), np.empty((2, batch, len(thresholds)))
        draws = np.empty((batch, samples if options.draws or not options.noise else 0))
        arrays = (
            outputs.transpose(1, 2).numpy(),
            self.likelihood.means,
            self.noise[members.numpy()],
            NOISE_FLOOR,
            scores,
            thresholds,
            self.learned,
            self.wide,
            self.logarithm,
        )
        in_parts(
            batch,
            -(-PART // (samples * self.likelihood.means)),
            lambda rows: kernels.answer_rows(
                *arrays, rows.start, rows.stop, moments, values, settled, tails, draws
            ),
        )
        mean, epistemic, aleatoric, std = moments
        answer = {"mean": mean, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
        if options.noise:
            answer["std"] = std
            answer["percentiles"] = values if question.ranks is None else values[:, question.ranks]
            if options.thresholds:
                below, above = map(torch.from_numpy, tails)
                answer["exceedance"] = question.exceedance(below, above, outside).numpy()
        else:
            answer["std"] = epistemic
            told = question.of_functions(torch.from_numpy(draws).T)
            answer |= {name: part.numpy() for name, part in told.items()}
        if options.draws:
            answer["draws"] = draws
        return answer, (~settled).nonzero()[0]

    def _standardised(self, thresholds: Tensor) -> NDArray[np.float64]:
        """From the target's unit, ``[T]``."""
        location, scale = self.learned
        return (self.transform.forward(thresholds).numpy() - location) / scale


def _known_noise(likelihood: Likelihood, members: int) -> NDArray[np.float32]:
    """Noise of each member where it is not told by outputs, ``[M]``."""
    if likelihood.outputs > likelihood.means:
        return np.zeros(members, dtype=np.float32)
    with torch.inference_mode():
        _, noise, _ = likelihood.components(torch.zeros((members, 1, 1)))
        return np.broadcast_to(noise.flatten().cpu().numpy(), members).copy()


def _scores(question: Question, outside: Outside) -> Tensor:
    """Normal scores of the levels, rising, ``[B, L]``."""
    scores, batch = question.scores, len(outside.mask)
    if question.calibration is not None and len(outside) > 0:
        scores = torch.where(outside.mask.unsqueeze(1), question.wider, scores)
    if question.ranks is not None:
        scores = scores.sort(dim=-1).values
    return scores.expand(batch, -1)
