"""From the network's outputs for rows to the distribution of their targets, and to an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from murho.model.distributions.predictive import Predictive
from murho.model.posterior.row_answers import RowAnswers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.distributions.transforms import Transform
    from murho.model.distributions.wide_component import WideRule
    from murho.model.encoding.training_range import Outside
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.posterior.prediction_plan import Question

__all__ = ["Answering"]


class Answering:
    """What a posterior makes of its outputs, in the target's own unit."""

    def __init__(
        self,
        likelihood: Likelihood,
        location: float,
        scale: float,
        transform: Transform,
        wide: WideRule | None,
        *,
        members: int,
    ) -> None:
        """Takes what a checkpoint says of it.

        Args:
            likelihood: The observation model, on the device of the outputs.
            location: Of what was learned.
            scale: Its standard deviation.
            transform: From the target to what was learned.
            wide: The rule of wide components; None: there are none.
            members: M.
        """
        self._likelihood, self._location, self._scale = likelihood, location, scale
        self._transform, self._wide = transform, wide
        self._rows = RowAnswers.of(likelihood, location, scale, transform, wide, members=members)

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Predictive:
        """The distribution of the target of each row, not calibrated.

        Args:
            outputs: Of the network, ``[S, B, P]``, standardised.
            members: Member of each draw, ``[S]``.
            widened: Whether with a wide component, if there is a rule for it.
        """
        means, noise, weights = self._likelihood.components(outputs, members)
        predictive = Predictive.of(
            means.double() * self._scale + self._location,
            noise.double() * self._scale,
            None if weights is None else weights.double(),
            self._transform,
        )
        if self._wide is None or not widened:
            return predictive
        return predictive.with_wide(self._wide, self._scale)

    def answer(
        self, question: Question, outputs: Tensor, members: Tensor, outside: Outside
    ) -> dict[str, NDArray[Any]]:
        """The answer, see `model.posterior.prediction_plan.Question.answer`, by compiled code where that can give it.

        Args:
            question: What is asked.
            outputs: Of the network, ``[S, B, P]``, standardised.
            members: Member of each draw, ``[S]``.
            outside: Which rows lie beyond the training rows.
        """
        found = None if self._rows is None else self._rows.answer(question, outputs, members, outside)
        if found is None:
            predictive = self.predictive(outputs, members, widened=question.options.samples > 0)
            return {key: part.cpu().numpy() for key, part in question.answer(predictive, outside).items()}
        answer, unsettled = found
        if len(unsettled):
            rows = torch.from_numpy(unsettled)
            some = self.predictive(outputs[:, rows], members)
            answer["percentiles"][unsettled] = question.percentiles(some, outside.of_rows(rows)).numpy()
        return answer
