"""The base of observation models for classes: the network's outputs are logits, and the target is a class index."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from murho.model.likelihoods.likelihood import Likelihood

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ClassLikelihood"]


class ClassLikelihood(Likelihood):
    """The probability of each of C classes given a draw. All outputs are function values, none is scatter.

    Attributes:
        classes: C.
    """

    target: ClassVar[str] = "class"
    classes: int

    @abstractmethod
    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Log probability of every class, ``[..., C]`` for outputs ``[..., P]``; any type of float."""
