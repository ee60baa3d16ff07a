"""The options of an update. This module imports neither numpy nor torch, so that a wrong option is answered at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from murho.model.errors import OptionError

__all__ = ["LEARNING_RATE", "UpdateOptions"]

LEARNING_RATE = 5e-3
"""Half of a training's learning rate: the weights move by a few of their own sigma at most."""


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """Options of an update.

    Attributes:
        epochs: Most epochs; by default as many as make 2000 steps.
        learning_rate: First learning rate.
        seed: Seed of the split, the minibatches and the draws; by default the checkpoint's seed.
    """

    epochs: int | None = None
    learning_rate: float = LEARNING_RATE
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise OptionError(f"--epochs must be at least 1, not {self.epochs}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0.0):
            raise OptionError(f"--learning-rate must be a positive number, not {self.learning_rate!r}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise OptionError(f"--seed must lie between 0 and 2^63 - 1, not {self.seed}")
