"""A reporter of a training that says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Epoch
    from murho.model.training.candidates import Attempt, Stage

__all__ = ["Silence"]


class Silence:
    """A `model.training.candidates.Reporter` without output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def stage(self, stage: Stage) -> None:
        """Do nothing."""

    def scored(self, attempt: Attempt) -> None:
        """Do nothing."""

    def say(self, message: str) -> None:
        """Do nothing."""

    def begin(self, title: str) -> None:
        """Do nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
