"""The search over fits: transform, observation model, encoding and temperature, chosen on rows the fit has not seen.

The search makes one choice at a time, by short fits ("trials"), with one member per fold on larger tables
(`model.training.trials`). Then follow a full fit with all members, and a shorter, "settling" fit that starts from its
parameters (`model.training.full_fit`). Scores are extrapolated to all members
(`model.distributions.ensemble_extrapolation`). Options that the user has set are not searched
(`model.training.open_choices`).

From `model.training.stages.FEW_ROWS` rows on, the temperature (the factor of the KL) rises along each fit: members
first overfit, then the prior gets more and more weight. The best parameters on this path are kept, and the settling fit
runs at their temperature. On a smaller table the path would take too many steps. There the search tries temperatures
like the other choices, and after the settling fit it may try another one at a neighbouring temperature. There chance
decides between trials as often as anything else, so the simpler choice is kept unless the other one is better by more
than a standard error, row by row (`model.training.comparison`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from murho.model.errors import FitError
from murho.model.training.candidate_fits import CandidateFits
from murho.model.training.candidates import SearchResult
from murho.model.training.comparison import BestSoFar
from murho.model.training.full_fit import fit_in_full
from murho.model.training.open_choices import first_candidate, open_dimensions
from murho.model.training.quick import FullSearch
from murho.model.training.search_budget import SearchBudget
from murho.model.training.stages import FULL, SETTLING, TRIAL, StagePlan, has_few_rows
from murho.model.training.trials import planned_trials, run_trials

if TYPE_CHECKING:
    from murho.model.fitting.training_data import TrainingData
    from murho.model.training.candidates import Attempt, Reporter
    from murho.model.training.options import TrainOptions
    from murho.model.training.time_to_finish import TimeToFinish

__all__ = ["search", "trial"]


def trial(data: TrainingData, options: TrainOptions, reporter: Reporter, device: str = "cpu") -> Attempt:
    """One trial of the candidate that `search` starts from; its loss compares tables with other columns.

    Raises:
        FitError: The fit became non-finite.
    """
    rows = len(data.split.training)
    plan = StagePlan([FULL], few=has_few_rows(rows))  # a trial takes a small share of it
    budget = SearchBudget(options, rows, began=time.monotonic())
    fits = CandidateFits(data, options, plan, budget, reporter, device)
    attempt, outcome = fits.fit(first_candidate(data, options), TRIAL)
    if outcome is None:
        raise FitError(str(fits.failure))
    return attempt


def search(
    data: TrainingData,
    options: TrainOptions,
    reporter: Reporter,
    device: str = "cpu",
    began: float | None = None,
    to_finish: TimeToFinish | None = None,
) -> SearchResult:
    """Fit candidates and keep the best. A candidate whose fit becomes non-finite is reported and passed over.

    A KeyboardInterrupt ends the search; once a fit is scored, the best one so far is kept.

    Args:
        data: The table.
        options: Validated options; options with a given value are not searched.
        reporter: Gets the progress.
        device: Device of the fits.
        began: When the user began to wait, in monotonic seconds: ``--budget`` counts from there. By default now.
        to_finish: What follows the search within the budget; by default nothing is kept back for it.

    Raises:
        FitError: Every fit became non-finite.
        KeyboardInterrupt: The search was interrupted before a fit was scored. Later it returns the best fit so far.
    """
    rows = len(data.split.training)
    few = has_few_rows(rows)
    budget = SearchBudget(options, rows, began=time.monotonic() if began is None else began, to_finish=to_finish)
    if options.budget is not None:
        reporter.say("a budget in seconds: another machine, or a busy one, gives another fit")
    chosen = first_candidate(data, options)
    dimensions = list(open_dimensions(data, options))
    stages = [TRIAL] * planned_trials(dimensions) + [FULL, SETTLING]
    plan = StagePlan([FULL, SETTLING] if options.quick else stages, few=few)
    fits = CandidateFits(data, options, plan, budget, reporter, device)
    best, interrupted = BestSoFar(few=few), False
    try:
        if dimensions and not options.quick and not budget.late:
            chosen = run_trials(fits, best, chosen, dimensions)
        if not fits.interrupted:
            fit_in_full(fits, best, chosen)
    except KeyboardInterrupt:
        if best.fit is None:
            raise
        interrupted = True
    if best.fit is None:
        raise FitError(str(fits.failure))
    if best.attempt.stage != SETTLING and fits.levels_noise:
        reporter.say("these parameters have not settled: noisy rows have counted less than they should")
    full_search = FullSearch(len(stages), round(budget.of_full_search * budget.pace, 1)) if options.quick else None
    return SearchResult(
        best.attempt.candidate,
        best.fit,
        tuple(fits.attempts),
        interrupted or fits.interrupted,
        best.attempt,
        full_search,
        budget.pace,
    )
