"""Candidates of a search, their scores, the result, and the protocol of a progress reporter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from murho.model.encoding.input_choice import InputChoice
from murho.model.likelihoods.registry import CLASS_KINDS, LIKELIHOODS

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.fitting.fit_types import Epoch, Fit
    from murho.model.training.quick import FullSearch

__all__ = ["Attempt", "Candidate", "Reporter", "SearchResult", "Stage", "stage_title"]


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


class Reporter(Protocol):
    """Gets the progress of a training."""

    def stage(self, stage: Stage) -> None:
        """Show that a stage of a training begins. A single fit outside of a search has no stage."""
        ...

    def scored(self, attempt: Attempt) -> None:
        """Show the scores of a finished fit."""
        ...

    def say(self, message: str) -> None:
        """Show a line for people."""
        ...

    def begin(self, title: str) -> None:
        """Show that a fit begins."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """Show that an epoch of the fit is done."""
        ...

    def end(self) -> None:
        """Show that the fit is done."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """The choices that a search makes, for one fit.

    Attributes:
        noise: A kind of `model.likelihoods.registry.KINDS`.
        transform: A key of `model.distributions.transforms.TRANSFORMS`.
        encoding: A key of `model.encoding.encodings.ENCODINGS`.
        whitened: Whether whitened directions of correlated numbers are inputs too (`model.encoding.whitening`).
        hidden: Widths of the hidden layers.
        temperature: Factor of the KL at the end of the fit. None: the factor rises along the fit, and validation picks
            the best one.
        unread: For each member the names of the features that it does not read (`model.training.idle_features`); empty:
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
        """The candidate in words."""
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
        stage: ``trial``, ``full`` or ``settling``: a short fit, the full one, or the short one that continues it.
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
        """The candidate and its scores in one line."""
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
        """The candidate and its scores, for ``model.json``; ``unread`` has the features that no member reads."""
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
        candidate: The best candidate.
        fit: The fit of the best candidate.
        attempts: All fits, in order.
        interrupted: Whether an interruption ended the search.
        best: The attempt of the best candidate.
        full_search: What a search would have done, if the training is a quick one.
        pace: Seconds by the clock that a reference second (`model.fitting.work`) has taken.
    """

    candidate: Candidate
    fit: Fit
    attempts: tuple[Attempt, ...]
    interrupted: bool
    best: Attempt
    full_search: FullSearch | None = None
    pace: float = 1.0
