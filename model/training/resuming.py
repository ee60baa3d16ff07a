"""One fit of a training: read from its snapshots, resumed from them, or begun."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.errors import FitError
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_state import FitState, finished_fit, finished_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch
    from torch import Tensor

    from murho.model.fitting.cross_fit_rows import Rows
    from murho.model.fitting.fit_types import Fit, FitOptions
    from murho.model.training.candidates import Reporter
    from murho.model.training.snapshots import Snapshots

__all__ = ["ScoredFit", "fit_or_resume"]


@dataclass(frozen=True, slots=True)
class ScoredFit:
    """A fit and how it did on the rows held out.

    Attributes:
        fit: Its outcome.
        nll: Negative log likelihood, as ``score`` measured it.
        crps: Likewise.
        seconds: It took, those before an interruption included.
    """

    fit: Fit
    nll: float
    crps: float
    seconds: float


def fit_or_resume(
    snapshots: Snapshots,
    name: str,
    training: Rows,
    validation: Rows,
    options: FitOptions,
    score: Callable[[Fit], tuple[float, float]],
    *,
    initial: Mapping[str, Tensor] | None = None,
    title: str,
    reporter: Reporter,
    device: torch.device,
) -> ScoredFit:
    """Fits and scores; what was fitted before an interruption is not fitted again.

    Args:
        snapshots: What is known of the fits of this training, and is told of this one.
        name: Of the fit among them.
        training: See `model.fitting.fit.fit`.
        validation: Likewise.
        options: Likewise.
        score: NLL and CRPS of an outcome on rows held out.
        initial: See `model.fitting.fit.fit`.
        title: Of the fit for people.
        reporter: Is told of the progress, if there is any.
        device: Where to compute.

    Raises:
        FitError: The fit or its predictions became non-finite, now or before an interruption.
    """
    failure = snapshots.failure(name)
    if failure is not None:
        raise FitError(failure)
    done = snapshots.outcome(name)
    if done is not None:
        numbers = done.numbers
        again = finished_fit(done, options, training.features.shape[1])
        return ScoredFit(again, numbers["nll"], numbers["crps"], numbers["seconds"])
    began = time.monotonic() - snapshots.spent(name)
    reporter.begin(title)
    try:
        try:
            outcome = fit(
                training,
                validation,
                options,
                initial=initial,
                state=snapshots.under_way(name),
                keeper=snapshots.keeper(name),
                device=device,
                progress=reporter,
            )
        finally:
            reporter.end()
        nll, crps = _finite(*score(outcome))
    except FitError as error:
        snapshots.fail(name, str(error))
        raise
    scored = ScoredFit(outcome, nll, crps, time.monotonic() - began)
    if outcome.stopped != "interrupted":
        state = finished_state(outcome)
        scores = {"nll": nll, "crps": crps, "seconds": scored.seconds}
        snapshots.finish(name, FitState(state.tensors, {**state.numbers, **scores}))
    return scored


def _finite(nll: float, crps: float) -> tuple[float, float]:
    if not math.isfinite(nll + crps):
        raise FitError("the predictions of the fit are not finite; use a smaller --learning-rate")
    return nll, crps
