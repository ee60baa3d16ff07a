"""Likelihoods of classes: Bernoulli with one logit for two classes, categorical with one logit each for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from murho.model.bbb.likelihood import ClassLikelihood
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor


class Bernoulli(ClassLikelihood):
    """``p(second class) = sigmoid(output)``."""

    kind = "bernoulli"
    outputs = 1
    means = 1
    classes = 2

    def __init__(self, classes: int | None = 2) -> None:
        """Check the number of classes.

        Raises:
            OptionError: It is not two.
        """
        super().__init__()
        if classes != 2:
            raise OptionError(f"a bernoulli likelihood has two classes, not {classes}")

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probabilities of both classes, ``[..., 2]``; see `ClassLikelihood.log_probabilities`."""
        logit = outputs[..., 0]
        return torch.stack((functional.logsigmoid(-logit), functional.logsigmoid(logit)), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the observed class, ``[M, B]``; see `Likelihood.log_density`."""
        return functional.logsigmoid((2.0 * targets - 1.0) * outputs[..., 0])


class Categorical(ClassLikelihood):
    """``p(class) = softmax(outputs)``: one logit for each of C classes."""

    kind = "categorical"

    def __init__(self, classes: int | None) -> None:
        """Store the number of classes.

        Args:
            classes: C.

        Raises:
            OptionError: There are fewer than two.
        """
        super().__init__()
        if classes is None or classes < 2:
            raise OptionError(f"a categorical likelihood has two or more classes, not {classes}")
        self.classes = self.outputs = self.means = classes

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probabilities of the C classes; see `ClassLikelihood.log_probabilities`."""
        return torch.log_softmax(outputs, dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the observed class, ``[M, B]``; see `Likelihood.log_density`."""
        return self._observed(self.log_probabilities(outputs), targets).squeeze(-1)

    @staticmethod
    def _observed(log_probabilities: Tensor, targets: Tensor) -> Tensor:
        """The entry of the observed class, ``[M, B, 1]``."""
        index = targets.long().expand(log_probabilities.shape[:-1]).unsqueeze(-1)
        return log_probabilities.gather(-1, index)
