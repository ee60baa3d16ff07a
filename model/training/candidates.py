"""Candidates of a search, their scores, the budget of their fits, and the protocol of a progress reporter.

A budget that the user has set is in seconds by the clock. The default is in reference seconds (`model.bbb.fit`), the
same on every machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor

from murho.model.bbb.fit import Epoch, Fit
from murho.model.bbb.registry import CLASS_KINDS, LIKELIHOODS
from murho.model.encoding.encoder import InputChoice
from murho.model.training.options import TrainOptions, default_budget, quick_budget


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a training: a fit, or what follows the fits.

    Attributes:
        title: What it does, for people.
        number: Number of the fit, from 1.
        fits: How many fits the training will take, as far as is known.
        done: Share of the whole training that is done when the stage begins, from 0 to 1.
        share: Share of the whole training that the stage takes.
    """

    title: str
    number: int
    fits: int
    done: float
    share: float


class Reporter:
    """Gets the progress of a training, and shows nothing of it; subclasses do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the display."""

    def stage(self, stage: Stage) -> None:
        """Show that a stage of a training begins. A single fit outside of a search has no stage."""

    def show_scores(self, attempt: Attempt) -> None:
        """Show the scores of a finished fit."""

    def say(self, message: str) -> None:
        """Show a line for people."""

    def begin(self, title: str) -> None:
        """Show that a fit begins."""

    def epoch(self, epoch: Epoch) -> None:
        """Show that an epoch of the fit is done."""

    def end(self) -> None:
        """Show that the fit is done."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The choices that a search makes, for one fit.

    Attributes:
        noise: A kind of `model.bbb.registry.KINDS`.
        transform: A key of `model.distributions.target_transforms.TRANSFORMS`.
        encoding: A key of `model.encoding.encoder.ENCODINGS`.
        whitened: Whether whitened directions of correlated numbers are inputs too (`model.encoding.whitening`).
        hidden: Widths of the hidden layers.
        temperature: Factor of the KL at the end of the fit. None: the factor rises along the fit, and validation picks
            the best one.
        unread: For each member the names of the features that it does not read; empty:
            all members read all.
    """

    noise: str
    transform: str
    encoding: str
    whitened: bool
    hidden: tuple[int, ...]
    temperature: float | None
    unread: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        """Take the transform of an observation model that goes with one alone."""
        object.__setattr__(self, "transform", LIKELIHOODS[self.noise].only_transform or self.transform)

    @property
    def inputs(self) -> InputChoice:
        """How features become inputs."""
        return InputChoice(self.encoding, self.whitened, self.unread)

    def __str__(self) -> str:
        """Return the candidate in words."""
        widths = "x".join(str(width) for width in self.hidden) or "none"
        if self.noise in CLASS_KINDS:
            model = f"{self.noise} classes"
        else:
            model = f"{self.noise} noise, transform {self.transform}"
        temperature = "" if self.temperature is None else f", temperature {self.temperature:.3g}"
        encoding = f"{self.encoding} encoding{', whitened' if self.whitened else ''}"
        if self.unread:
            fewest, most = min(map(len, self.unread)), max(map(len, self.unread))
            encoding += f", without {most if fewest == most else f'{fewest} to {most}'} idle features"
        return f"{model}, {encoding}, hidden {widths}{temperature}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The fit of a candidate, and its scores on the validation rows.

    Attributes:
        candidate: The candidate.
        stage: ``trial``, ``full``, ``settling`` or ``longer``: a short fit, the full one, the short one that continues
            it, or a long one that continues this.
        nll: Negative log likelihood of the mixture of all members, nats per row, the target's unit; infinite if the
            fit failed. Of classes it is the log loss.
        crps: CRPS, the target's unit; infinite if the fit failed; None for classes.
        seconds: Duration of fit and scoring.
        rows: The scores behind the loss for every validation row: NLL and CRPS, ``[2, N]``, or the log loss alone,
            ``[1, N]``; None if the fit failed.
        history: All epochs of the fit; empty if it failed.
    """

    candidate: Candidate
    stage: str
    nll: float
    crps: float | None
    seconds: float
    rows: Tensor | None = field(default=None, repr=False, compare=False)
    history: tuple[Epoch, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        """Return the candidate and its scores in one line."""
        return f"{stage_title(self.stage)}{self.candidate}: validation {self.scores} ({self.seconds:.1f} s)"

    @property
    def scores(self) -> str:
        """The scores in words."""
        if self.crps is None:
            return f"log loss {self.nll:.4f} nats"
        return f"NLL {self.nll:.3f} nats, CRPS {self.crps:.4g}"

    @property
    def loss(self) -> float:
        """The loss that the search minimises: the mean of the NLL and the logarithm of the CRPS.

        Both change by the same amount if all errors and all bands grow by a factor. The NLL alone ignores the distance
        of a confident miss, and spikes on round numbers lower it. The CRPS alone is almost insensitive to the tails.
        Of classes the loss is the log loss.
        """
        if self.crps is None:
            return self.nll
        return 0.5 * (self.nll + math.log(self.crps))

    def to_json(self) -> dict[str, Any]:
        """Return the candidate and its scores, for ``model.json``; ``unread`` has the features that no member reads."""
        facts = {name: getattr(self.candidate, name) for name in Candidate.__dataclass_fields__}
        facts["unread"] = list(self.candidate.inputs.unread_by_all)
        return facts | {"stage": self.stage, "nll": self.nll, "crps": self.crps, "seconds": self.seconds}


def stage_title(stage: str) -> str:
    """How the title of a fit begins: with the stage, if it is not the full fit."""
    return "" if stage == "full" else f"{stage}: "


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search.

    Attributes:
        best: The attempt of the best candidate.
        fit: Its fit.
        attempts: All fits, in order.
        interrupted: Whether an interruption ended the search.
    """

    best: Attempt
    fit: Fit
    attempts: tuple[Attempt, ...]
    interrupted: bool


TRIAL, FULL, SETTLING, LONGER = "trial", "full", "settling", "longer"
NARROW = 0.05
"""Difference of two losses of trials, nats, below which later choices or longer fits may reverse the order."""
STEPS = 5_000
FEWEST_EPOCHS = 40
STEPS_OF_STAGE = {TRIAL: 0.25, FULL: 1.0, SETTLING: 0.25, LONGER: 2.0}
"""Steps of each stage, as shares of `STEPS`."""
TIME_OF_STAGE = {TRIAL: 0.15, FULL: 1.0, SETTLING: 0.25, LONGER: 2.0}
"""Time of each stage, relative to a full fit. Half as many members take more than half of the time."""
TIME_OF_TRIAL_OF_FEW = 0.25
"""Trials on few rows have all members. Where two judge a row, the score extrapolates to all; one per fold would score
temperatures and transforms as single networks, which need more caution than the mixture that will answer."""
FEW_ROWS, ROWS_A_FEATURE = 1_000, 50
"""Training rows, and those for each feature, below which rows are few."""
MOST_CELLS = 300_000
"""Most cells, rows times features, of more than `FEW_ROWS` rows that are few, or that are shuffled in a search for idle
features: more would take too long. Fewer rows have every feature shuffled once."""
WARM_UP_SHARE, WARM_UP_SHARE_OF_FEW = 0.2, 0.7
"""Share of a fit over which the KL's factor rises to a fixed temperature. With few rows the prior has much weight: it
prunes units before they have learned, unless the factor rises slowly."""
SHARE_OF_SEARCH = 0.96
"""Share of a training that its search takes, for the progress: the rest calibrates and scores."""


def has_few_rows(rows: int, features: int) -> bool:
    """Whether training rows are few for so many features, so that chance decides between trials as much as anything.

    Then trials have all members, the temperature is searched instead of found along each fit, and the simpler of two
    choices is kept unless the other one is clearly better.
    """
    return rows < FEW_ROWS or (rows < ROWS_A_FEATURE * features and rows * features <= MOST_CELLS)


def epochs_of(stage: str, minibatches: int, epochs: int | None) -> int:
    """Epochs of a stage.

    Args:
        stage: ``trial``, ``full``, ``settling`` or ``longer``.
        minibatches: Minibatches of an epoch, T.
        epochs: Epochs of the full fit; None: so many that it has about 5,000 steps.
    """
    epochs = epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
    return max(1, round(STEPS_OF_STAGE[stage] * epochs))


LEAST = 0.1
"""Least budget of a fit, seconds: it keeps the parameters of its first epochs, however late it is."""


class SearchPlan:
    """The fits that a search plans, how far it is, and what it may spend. Times are relative to a full fit.

    Attributes:
        few: Whether the training rows are few, see `has_few_rows`.
        fits: Planned fits, with those done.
        time: Time of all planned fits.
        time_left: Time of those that have not begun.
        by_clock: Whether the budget is in seconds by the clock; otherwise it is in reference seconds.
        work: Work of the fits so far, reference seconds.
    """

    def __init__(
        self,
        stages: Sequence[str],
        options: TrainOptions,
        rows: int,
        *,
        few: bool,
        began: float,
        kept_back: float = 0.0,
    ) -> None:
        """Plan a fit for each stage, with everything left.

        Args:
            stages: The stages of the fits, in order.
            options: Options of the training: ``--budget`` and ``--quick``.
            rows: Training rows, N.
            few: Whether they are few, see `has_few_rows`.
            began: When a budget by the clock began, monotonic seconds.
            kept_back: What a budget by the clock leaves for the end, seconds.
        """
        self.few, self.fits, self.by_clock = few, len(stages), options.budget is not None
        self.time = self.time_left = sum(map(self.time_of, stages))
        self.work = self._scoring = 0.0
        self._budget = options.budget or (quick_budget(rows) if options.quick else default_budget(rows))
        self._all, self._planned = self._budget, self.time
        self._began, self._kept_back = began, kept_back

    def time_of(self, stage: str) -> float:
        """Time of a stage."""
        return TIME_OF_TRIAL_OF_FEW if stage == TRIAL and self.few else TIME_OF_STAGE[stage]

    def extend(self, stages: Sequence[str]) -> None:
        """Add fits to what was planned, and as much for all of them as the fits before could spend."""
        for stage in stages:
            self._append(stage)
        self._all += self._budget

    def add(self, stage: str) -> None:
        """Add a fit to what was planned; unless the clock limits the training, it takes nothing from the others."""
        self._append(stage)
        if not self.by_clock:
            self._all += self._budget * self.time_of(stage) / self._planned

    def _append(self, stage: str) -> None:
        self.fits += 1
        self.time_left += self.time_of(stage)
        self.time += self.time_of(stage)

    @property
    def late(self) -> bool:
        """Whether a budget by the clock has nothing left for trials: the full fit and its scores take the rest."""
        return self.by_clock and self._left_at(time.monotonic()) <= 0.0

    def begin(self, stage: str, number: int, title: str, began: float) -> tuple[Stage, float]:
        """Begin a fit: its time is no longer left.

        Args:
            stage: Its stage.
            number: Its number, from 1.
            title: What it does, for people.
            began: When it began, monotonic seconds.

        Returns:
            The fit as a part of the whole training, for the progress, and what it may take, in the unit of the budget:
            its share of what is left.
        """
        time, done = self.time_of(stage), 1.0 - max(0.0, self.time_left) / self.time
        budget = max(LEAST, self._left_at(began)) * time / max(time, self.time_left)
        self.time_left -= time
        part = Stage(title, number, max(number, self.fits), SHARE_OF_SEARCH * done, SHARE_OF_SEARCH * time / self.time)
        return part, max(LEAST, budget - self._scoring) if self.by_clock else budget

    def spend(self, work: float, scoring: float | None = None) -> None:
        """Add a fit to what was spent.

        Args:
            work: Its work, with its scoring, reference seconds.
            scoring: Duration of its scoring by the clock, which the next one will take too; None: not known.
        """
        self.work += work
        self._scoring = self._scoring if scoring is None else scoring

    def _left_at(self, moment: float) -> float:
        """Return what is left for fits, in the unit of the budget."""
        if not self.by_clock:
            return self._all - self.work
        return self._all - (moment - self._began) - self._kept_back
