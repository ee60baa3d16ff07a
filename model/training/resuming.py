"""`fit_or_resume`: one fit of a training, either read from its snapshot, resumed from it, or started."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.errors import FitError
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_state import FitState, finished_fit, finished_state
from murho.model.runtime.interrupts import interrupts_held_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch
    from torch import Tensor

    from murho.model.fitting.cross_fit_rows import Rows
    from murho.model.fitting.fit_types import Fit, FitOptions
    from murho.model.training.candidates import Reporter
    from murho.model.training.snapshots import Snapshots

__all__ = ["ScoredFit", "fit_or_resume"]

SCORES = "scores"
"""Name of the scores of the rows among the tensors of a finished fit."""


@dataclass(frozen=True, slots=True)
class ScoredFit:
    """A fit and its scores on validation rows.

    Attributes:
        fit: The fit.
        rows: Scores of every validation row, as ``score`` returned them: NLL and CRPS ``[2, N]``, or the log loss alone
            ``[1, N]``.
        seconds: Duration of fit and scoring, with the time before an interruption.
        interrupted: Whether the user has interrupted the fit, or its scoring. The scores are complete all the same.
    """

    fit: Fit
    rows: Tensor
    seconds: float
    interrupted: bool = False

    @property
    def nll(self) -> float:
        """Mean negative log likelihood."""
        return float(self.rows[0].mean())

    @property
    def crps(self) -> float | None:
        """Mean CRPS; None for classes."""
        return float(self.rows[1].mean()) if len(self.rows) > 1 else None


def fit_or_resume(
    snapshots: Snapshots,
    name: str,
    training: Rows,
    validation: Rows,
    options: FitOptions,
    score: Callable[[Fit], Tensor],
    *,
    initial: Mapping[str, Tensor] | None = None,
    title: str,
    reporter: Reporter,
    device: torch.device,
) -> ScoredFit:
    """Fit and score, without repeating the work before an interruption.

    Args:
        snapshots: Snapshots of the fits of this training; they are read, and the state of this fit is added.
        name: Name of the fit in the snapshots.
        training: Training rows, as `model.fitting.fit.fit` takes them.
        validation: Validation rows, likewise.
        options: Options of the fit.
        score: Returns the scores of a fit on every validation row, as `ScoredFit.rows` has them.
        initial: Tensors to start from, as `model.fitting.fit.fit` takes them.
        title: Title of the fit, for people.
        reporter: Gets the progress.
        device: Device of the fit.

    Raises:
        FitError: The fit or its predictions became non-finite, now or before an interruption.
        KeyboardInterrupt: Interrupted before the end of the first epoch, or twice while the fit is scored and kept.
    """
    failure = snapshots.failure(name)
    if failure is not None:
        raise FitError(failure)
    done = snapshots.outcome(name)
    if done is not None:
        tensors = dict(done.tensors)
        rows = tensors.pop(SCORES)
        restored = finished_fit(FitState(tensors, done.numbers), options, training.features.shape[1])
        return ScoredFit(restored, rows, done.numbers["seconds"])
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
        with interrupts_held_back() as held_back:
            rows = _finite(score(outcome))
            seconds = time.monotonic() - began
            fitted = outcome.stopped != "interrupted"
            if fitted:
                state = finished_state(outcome)
                snapshots.finish(name, FitState({**state.tensors, SCORES: rows}, {**state.numbers, "seconds": seconds}))
    except FitError as error:
        snapshots.fail(name, str(error))
        raise
    return ScoredFit(outcome, rows, seconds, interrupted=held_back.came or not fitted)


def _finite(rows: Tensor) -> Tensor:
    if not math.isfinite(float(rows.sum())):
        raise FitError("the predictions of the fit are not finite; use a smaller --learning-rate")
    return rows
