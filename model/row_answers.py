"""Answers by compiled code at once from the network's outputs: moments and percentiles, what is asked for mostly.

Anything else goes by way of `model.predictive`, as do the few rows a level of which compiled code does not find. Both
ways give the same numbers, to single precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from model.dense_quantiles import DENSE_LEVELS
from model.kernels import at_hand
from model.likelihoods import NOISE_FLOOR
from model.threads import in_parts
from model.transforms import LEAST_DEVIATION, NEAR_SEAM, Identity, Logarithm

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from model.likelihoods import Likelihood
    from model.question import Question
    from model.reach import Outside
    from model.transforms import Transform
    from model.wide_component import WideRule

__all__ = ["RowAnswers"]

KINDS = ("fixed", "homoscedastic", "heteroscedastic", "mixture")
"""Likelihoods whose outputs compiled code reads as they do."""
PART = 2**16
"""Components times rows that another thread is woken for: a millisecond's."""


@dataclass(frozen=True, slots=True)
class RowAnswers:
    """What a posterior's outputs mean.

    Attributes:
        likelihood: Its observation model.
        learned: Location and scale of what was learned.
        noise: The noise of each member where outputs tell none, ``[M]``, standardised.
        wide: Weight, widening and widest noise, standardised, of the wide component; weight 0: there is none.
        logarithm: See `model.answer_kernel.answer_rows`.
    """

    likelihood: Likelihood
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
            The answer, see `model.question.Question.answer`, and the numbers of the rows whose percentiles are still
            to be found. None where there is no compiled code at hand, or more is asked than it knows.
        """
        kernels = at_hand()
        if kernels is None or not question.plain or len(question.scores) >= DENSE_LEVELS:
            return None
        batch, levels = outputs.shape[1], len(question.scores)
        moments, values = np.empty((3, batch)), np.empty((batch, levels))
        settled = np.empty(values.shape, dtype=np.bool_)
        arrays = (
            outputs.transpose(1, 2).numpy(),
            self.likelihood.means,
            self.noise[members.numpy()],
            NOISE_FLOOR,
            _scores(question, outside).numpy(),
            self.learned,
            self.wide,
            self.logarithm,
        )
        in_parts(
            batch,
            -(-PART // (len(outputs) * self.likelihood.means)),
            lambda rows: kernels.answer_rows(*arrays, rows.start, rows.stop, moments, values, settled),
        )
        mean, epistemic, aleatoric = moments
        answer = {
            "mean": mean,
            "epistemic_std": epistemic,
            "aleatoric_std": aleatoric,
            "std": np.sqrt(epistemic * epistemic + aleatoric * aleatoric),
            "percentiles": values,
        }
        return answer, np.flatnonzero(~settled.all(axis=1))


def _known_noise(likelihood: Likelihood, members: int) -> NDArray[np.float32]:
    """Noise of each member where it is not told by outputs, ``[M]``."""
    if likelihood.outputs > likelihood.means:
        return np.zeros(members, dtype=np.float32)
    with torch.inference_mode():
        _, noise, _ = likelihood.components(torch.zeros((members, 1, 1)))
        return np.broadcast_to(noise.flatten().cpu().numpy(), members).copy()


def _scores(question: Question, outside: Outside) -> Tensor:
    """Normal scores of the levels, ``[B, L]``."""
    scores, batch = question.scores, len(outside.mask)
    if question.calibration is not None and len(outside) > 0:
        scores = torch.where(outside.mask.unsqueeze(1), question.wider, scores)
    return scores.expand(batch, -1)
