"""What a search tries, and what it tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Epoch, Fit

__all__ = ["Attempt", "Candidate", "Reporter", "SearchResult"]


class Reporter(Protocol):
    """Is told how a training goes."""

    def say(self, message: str) -> None:
        """A line for people."""
        ...

    def begin(self, title: str) -> None:
        """A fit begins."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """One more epoch of it is done."""
        ...

    def end(self) -> None:
        """It is done."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is searched.

    Attributes:
        noise: A kind of `model.likelihoods.registry.NOISE_KINDS`.
        transform: A key of `model.distributions.transforms.TRANSFORMS`.
        encoding: A key of `model.encoding.encoder.ENCODINGS`.
        whitened: Whether directions hidden among correlated numbers are inputs, too, see `model.encoding.whitening`.
        hidden: Widths of the hidden layers.
        temperature: Factor of the KL at the end of the fit; None: it rises, and the best one is found on the way.
    """

    noise: str
    transform: str
    encoding: str
    whitened: bool
    hidden: tuple[int, ...]
    temperature: float | None

    def __str__(self) -> str:
        """In words."""
        widths = "x".join(str(width) for width in self.hidden) or "none"
        temperature = "" if self.temperature is None else f", temperature {self.temperature:.3g}"
        encoding = f"{self.encoding} encoding{', whitened' if self.whitened else ''}"
        return f"{self.noise} noise, transform {self.transform}, {encoding}, hidden {widths}{temperature}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a candidate did on the rows held out.

    Attributes:
        candidate: What was tried.
        stage: ``trial``, ``full``, or ``settling``, see `model.training.search`.
        nll: Negative log likelihood of the mixture of all members, nats per row, the target's unit; infinite if the
            fit failed.
        crps: The target's unit; likewise.
        seconds: It took.
    """

    candidate: Candidate
    stage: str
    nll: float
    crps: float
    seconds: float

    @property
    def loss(self) -> float:
        """What decides: NLL and the logarithm of the CRPS in equal parts.

        Both change by the same amount if all errors and all bands grow by a factor. The NLL alone is blind to how
        far off a confident miss was and can be bought by spikes on round numbers; the CRPS alone hardly sees the
        tails.
        """
        return 0.5 * (self.nll + math.log(self.crps))

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        facts = {name: getattr(self.candidate, name) for name in Candidate.__dataclass_fields__}
        return facts | {"stage": self.stage, "nll": self.nll, "crps": self.crps, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search.

    Attributes:
        candidate: The best one.
        fit: Its fit.
        attempts: All that were fitted, in order.
        interrupted: Whether an interruption ended the search.
    """

    candidate: Candidate
    fit: Fit
    attempts: tuple[Attempt, ...]
    interrupted: bool
