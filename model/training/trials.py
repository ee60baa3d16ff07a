"""The trials of a search: short fits of the values of one dimension after the other, and narrow losers once more.

Each dimension starts from the best candidate so far. A value that lost narrowly is tried again together with the later
choices. Where the temperature is a choice, because rows are few, a narrow margin is due to chance: nothing is repeated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from murho.model.training.comparison import NARROW
from murho.model.training.idle_features import without_idle_features
from murho.model.training.stages import TRIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.training.candidate_fits import CandidateFits
    from murho.model.training.candidates import Candidate
    from murho.model.training.comparison import BestSoFar
    from murho.model.training.search_space import SearchDimension

__all__ = ["planned_trials", "run_trials"]


def planned_trials(dimensions: Sequence[SearchDimension]) -> int:
    """Trials that a search plans: the first candidate, and the other values of each dimension."""
    return sum(len(dimension.others) for dimension in dimensions) + 1 if dimensions else 0


def run_trials(
    fits: CandidateFits, best: BestSoFar, first: Candidate, dimensions: Sequence[SearchDimension]
) -> Candidate:
    """Try the values of all dimensions; an interruption, or a budget that is spent, ends the trials.

    Args:
        fits: Makes the fits.
        best: Gets the best fit.
        first: The candidate to start from.
        dimensions: The dimensions, in order.

    Returns:
        The best candidate, with a temperature path if the first has one.
    """
    chosen = first
    narrow: dict[str, Candidate] = {}
    best.keep(*fits.fit(chosen, TRIAL))
    if fits.plan.few and fits.options.idle_features == "auto":
        chosen = without_idle_features(fits, best)
    for dimension in dimensions:
        chosen = _search_dimension(fits, best, dimension, chosen, narrow)
    if chosen.temperature is None:
        chosen = _reconsider(fits, best, chosen, narrow)
    return chosen


def _search_dimension(
    fits: CandidateFits,
    best: BestSoFar,
    dimension: SearchDimension,
    chosen: Candidate,
    narrow: dict[str, Candidate],
) -> Candidate:
    """Try the values of one dimension; returns the best candidate, and adds a narrow loser to ``narrow``."""
    values = list(dimension.others)
    while values and not _over(fits):
        value, before = values.pop(0), best.attempt.loss
        attempt, outcome = fits.fit(replace(chosen, **{dimension.name: value}), TRIAL)
        won = best.keep(attempt, outcome, dimension.name)
        if abs(attempt.loss - before) < NARROW:
            runner_up = getattr(chosen, dimension.name) if won else value
            narrow[dimension.name] = replace(chosen, **{dimension.name: runner_up})
        if not won and dimension.otherwise:
            values = list(dimension.otherwise) if value == dimension.others[0] else []
    return _best_candidate(best, temperature_path=chosen.temperature is None)


def _reconsider(fits: CandidateFits, best: BestSoFar, chosen: Candidate, narrow: dict[str, Candidate]) -> Candidate:
    """Try values that lost narrowly again, together with the later choices; returns the best candidate."""
    for name, narrow_loser in narrow.items():
        candidate = replace(chosen, **{name: getattr(narrow_loser, name)})
        if candidate not in (narrow_loser, chosen) and not _over(fits):
            fits.plan.add(TRIAL)
            best.keep(*fits.fit(candidate, TRIAL))
            chosen = _best_candidate(best, temperature_path=True)
    return chosen


def _over(fits: CandidateFits) -> bool:
    """Whether there is no time for another trial."""
    return fits.interrupted or fits.budget.late


def _best_candidate(best: BestSoFar, *, temperature_path: bool) -> Candidate:
    """The best candidate so far, at its temperature or with a temperature path."""
    candidate = best.attempt.candidate
    return replace(candidate, temperature=None) if temperature_path else candidate
