"""The full fit of the chosen candidate with all members, the settling fit that continues it, and what is tried besides.

The settling fit of a regression is kept, whatever the full fit scored: it descends the documented free energy, while
the best parameters of a full fit are from a phase in which noisy rows still counted less than the likelihood says
(`beta` of `model.likelihoods.likelihood.Likelihood.gradient`), or from just after it. Classes have no such phase. There
the settling fit must be better than parameters from a temperature path, which it may overfit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from murho.model.data.splits import folds_of
from murho.model.encoding.encodings import MIXED, PIECEWISE
from murho.model.fitting.cross_fit_rows import scores_of_judges
from murho.model.networks.named_tensors import learned_tensors
from murho.model.training.search_space import next_temperature
from murho.model.training.stages import FULL, SETTLING

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Fit
    from murho.model.training.candidate_fits import CandidateFits
    from murho.model.training.candidates import Candidate
    from murho.model.training.comparison import BestSoFar

__all__ = ["fit_in_full"]


def fit_in_full(fits: CandidateFits, best: BestSoFar, chosen: Candidate) -> None:
    """Fit with all members, replacing the best trial; then run the settling fit, and keep it.

    Two more fits may come. After a full fit with the mixed encoding, one with the encoding of half of the members, if
    that half is better alone: it replaces the first. After a settling fit at a temperature that trials have chosen, one
    at a neighbouring temperature: the better of the two is kept. An interruption ends this.

    Args:
        fits: Makes the fits.
        best: Has the best trial, if there was one; gets the best fit.
        chosen: The candidate.
    """
    trial = best.attempt.loss if fits.attempts else None
    attempt, outcome = fits.fit(chosen, FULL)
    if outcome is None or fits.interrupted:
        best.keep(attempt, outcome)
        return
    best.replace(attempt, outcome)
    alone = _better_alone(fits, chosen, outcome)
    if alone is not None:
        fits.plan.add(FULL)
        attempt, outcome = fits.fit(replace(chosen, encoding=alone), FULL)
        if outcome is None or fits.interrupted:
            return
        best.replace(attempt, outcome)
    start = learned_tensors(outcome.network, outcome.likelihood)
    settled, settled_fit = fits.fit(attempt.candidate, SETTLING, start)
    if settled_fit is not None:
        if fits.levels_noise or chosen.temperature is not None:
            best.replace(settled, settled_fit)
        else:
            best.keep(settled, settled_fit)
    if chosen.temperature is None or trial is None or fits.options.temperature is not None or fits.interrupted:
        return
    temperature = next_temperature(chosen.temperature, trial, attempt.loss)
    if temperature != chosen.temperature:
        fits.plan.add(SETTLING)
        another = replace(attempt.candidate, temperature=temperature)
        # The trials have preferred the chosen temperature, so a warmer one must be better, if only by chance.
        best.keep(*fits.fit(another, SETTLING, start), None if temperature > chosen.temperature else "temperature")


def _better_alone(fits: CandidateFits, candidate: Candidate, outcome: Fit) -> str | None:
    """The encoding of one half of the members of a mixed fit, if it does without the other half.

    It does if one member of this half is better on held-out rows than it is together with one of the other half.
    This is judged after a full fit: members without bins need more steps than a trial has.
    """
    members = fits.options.members
    if candidate.encoding != MIXED or fits.options.encoding != "auto" or members != 2 * folds_of(members):
        return None
    _, validation = fits.data.rows(candidate.inputs, candidate.transform)
    if validation.judges(members) != 2:
        return None
    targets, scorer = fits.judging(candidate, outcome, validation)
    scores = scores_of_judges(outcome.network, validation, targets, scorer, seed=fits.options.seed)
    binned, plain, both = scores.tolist()
    if min(binned, plain) >= both:
        return None
    return PIECEWISE if binned < plain else "standard"
