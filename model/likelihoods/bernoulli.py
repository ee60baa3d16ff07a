"""Two classes: one logit, that of the second class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
from torch.nn import functional

from murho.model.errors import OptionError
from murho.model.likelihoods.class_likelihood import ClassLikelihood

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.likelihoods.likelihood import LikelihoodOptions

__all__ = ["Bernoulli"]


class Bernoulli(ClassLikelihood):
    """``p(second class) = sigmoid(output)``."""

    kind = "bernoulli"
    outputs = 1
    means = 1
    classes = 2

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """The model of two classes; see `Likelihood.make`."""
        if options.classes not in (None, 2):
            raise OptionError(f"a bernoulli likelihood has two classes, not {options.classes}")
        return cls()

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probabilities of both classes, ``[..., 2]``; see `ClassLikelihood.log_probabilities`."""
        logit = outputs[..., 0]
        return torch.stack((functional.logsigmoid(-logit), functional.logsigmoid(logit)), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the observed class, ``[M, B]``; see `Likelihood.log_density`."""
        return functional.logsigmoid((2.0 * targets - 1.0) * outputs[..., 0])

    def gradient(
        self,
        outputs: Tensor,
        targets: Tensor,
        factor: float,
        beta: float = 0.0,  # noqa: ARG002 - there is no noise
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log probability and its derivative, ``target - sigmoid(output)``; see `Likelihood.gradient`."""
        by_output = (targets - torch.sigmoid(outputs[..., 0])).mul_(factor)
        if weights is not None:
            by_output = by_output * weights
        return self.log_density(outputs, targets), by_output.unsqueeze(-1)
