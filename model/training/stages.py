"""The stages of a search (trial, full fit, settling fit): the steps and the time of each, and the plan of them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.training.candidates import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FULL", "SETTLING", "SHARE_OF_SEARCH", "TRIAL", "StagePlan", "epochs_of", "has_few_rows", "warm_up_share"]

TRIAL, FULL, SETTLING = "trial", "full", "settling"
STEPS = 5_000
FEWEST_EPOCHS = 40
STEPS_OF_STAGE = {TRIAL: 0.25, FULL: 1.0, SETTLING: 0.25}
"""Steps of each stage, as shares of `STEPS`."""
TIME_OF_STAGE = {TRIAL: 0.15, FULL: 1.0, SETTLING: 0.25}
"""Time of each stage, relative to a full fit. Half as many members take more than half of the time."""
TIME_OF_TRIAL_OF_FEW = 0.25
"""Trials on few rows have all members. Where two judge a row, the score extrapolates to all; one per fold would score
temperatures and transforms as single networks, which need more caution than the mixture that will answer."""
FEW_ROWS = 1_000
WARM_UP_SHARE, WARM_UP_SHARE_OF_FEW = 0.2, 0.7
"""Share of a fit over which the KL's factor rises to a fixed temperature. With few rows the prior has much weight: it
prunes units before they have learned, unless the factor rises slowly."""
SHARE_OF_SEARCH = 0.96
"""Share of a training that its search takes, for the progress: the rest calibrates and scores."""


def has_few_rows(rows: int) -> bool:
    """Whether so many training rows are few, so that chance decides between trials as often as anything else.

    Then trials have all members, the temperature is searched instead of found along each fit, and the simpler of two
    choices is kept unless the other one is clearly better.
    """
    return rows < FEW_ROWS


def warm_up_share(rows: int) -> float:
    """Share of the steps over which the KL's factor rises in a fit, by the number of training rows."""
    return WARM_UP_SHARE_OF_FEW if has_few_rows(rows) else WARM_UP_SHARE


def epochs_of(stage: str, minibatches: int, epochs: int | None) -> int:
    """Epochs of a stage.

    Args:
        stage: ``trial``, ``full`` or ``settling``.
        minibatches: Minibatches of an epoch, T.
        epochs: Epochs of the full fit; None: so many that it has about 5,000 steps.
    """
    epochs = epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
    return max(1, round(STEPS_OF_STAGE[stage] * epochs))


class StagePlan:
    """The fits that a search plans, and how far it is. All times are relative to a full fit.

    Attributes:
        few: Whether the training rows are few, see `has_few_rows`.
        fits: Planned fits, with those done.
        time: Time of all planned fits.
        time_left: Time of those that have not begun.
    """

    def __init__(self, stages: Sequence[str], *, few: bool) -> None:
        """Plan a fit for each stage.

        Args:
            stages: The stages of the fits, in order.
            few: Whether the training rows are few.
        """
        self.few = few
        self.fits = len(stages)
        self.time = self.time_left = sum(self.time_of(stage) for stage in stages)

    def time_of(self, stage: str) -> float:
        """Time of a stage."""
        return TIME_OF_TRIAL_OF_FEW if stage == TRIAL and self.few else TIME_OF_STAGE[stage]

    def add(self, stage: str) -> None:
        """Add a fit to what was planned."""
        self.fits += 1
        self.time_left += self.time_of(stage)
        self.time += self.time_of(stage)

    def begin(self, stage: str, number: int, title: str) -> Stage:
        """Begin a fit: its time is no longer left.

        Args:
            stage: Its stage.
            number: Its number, from 1.
            title: What it does, for people.

        Returns:
            The fit as a part of the whole training, for the progress.
        """
        time = self.time_of(stage)
        done = 1.0 - max(0.0, self.time_left) / self.time
        self.time_left -= time
        return Stage(title, number, max(number, self.fits), SHARE_OF_SEARCH * done, SHARE_OF_SEARCH * time / self.time)
