"""The search over fits: transform, observation model, encoding and temperature, chosen on rows the fit has not seen.

The search makes one choice at a time, by short fits ("trials"), with one member per fold on larger tables. Then follow
a full fit with all members, and a shorter, "settling" fit that starts from its parameters. Scores are extrapolated to
all members (`model.bbb.fit_rows`). Options that the user has set are not searched. The order of the search is
observation model and transform, as the task has them, then encoding, whitening and temperature.

On a table of many rows (`has_few_rows`), the temperature (the factor of the KL) rises along each fit: members
first overfit, then the prior gets more and more weight. The best parameters on this path are kept, and the settling fit
runs at their temperature. A value that lost narrowly is tried again together with the later choices.

On a smaller table the path would take too many steps. There the search tries temperatures like the other choices, and
after the settling fit it may try another one at a neighbouring temperature. Chance decides between trials as often as
anything else, so nothing is repeated, and the simpler choice is kept unless the other one is better by more than a
standard error, row by row (`BestSoFar`).

The settling fit of a regression is kept, whatever the full fit scored: it descends the documented free energy, while
the best parameters of a full fit are from a phase in which noisy rows still counted less than the likelihood says
(`beta` of `Likelihood.reweight_mean_gradient`), or from just after it. Classes have no such phase. There the
settling fit must be better than parameters from a temperature path, which it may overfit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from murho.model.bbb.fit import Fit
from murho.model.encoding.encoder import MIXED, PIECEWISE, InputChoice
from murho.model.encoding.whitening import Whitening
from murho.model.errors import FitError
from murho.model.tables.splits import folds_of
from murho.model.training.candidate_fits import CandidateFits
from murho.model.training.candidates import (
    FULL,
    LONGER,
    NARROW,
    SETTLING,
    TRIAL,
    Attempt,
    Candidate,
    SearchPlan,
    SearchResult,
)
from murho.model.training.context import Training
from murho.model.training.idle_features import without_idle_features
from murho.model.training.options import QUICK_TEMPERATURE
from murho.model.training.scoring import is_better, paired_difference
from murho.model.training.tasks import (
    MUCH_BETTER,
    TEMPERATURES,
    SearchDimension,
    first_likelihood,
    is_overdispersed,
    is_simpler,
    next_temperature,
    suits,
)


class BestSoFar:
    """The best fit of a search so far.

    Attributes:
        attempt: Its candidate and scores; there is none before the first `keep`.
        fit: The fit; None as long as no fit has scores.
    """

    attempt: Attempt

    def __init__(self, *, few: bool) -> None:
        """Begin without a fit.

        Args:
            few: Whether the training rows are few, so that one choice is compared row by row, see `is_better`.
        """
        self.fit: Fit | None = None
        self._few = few

    def keep(self, attempt: Attempt, fit: Fit | None, choice: str | None = None) -> bool:
        """Keep a fit if it is better than the best so far; returns whether it is.

        Args:
            attempt: The attempt.
            fit: Its fit; None if it failed.
            choice: The only field in which its candidate differs from the best one, if there is one such field.
        """
        better = self.fit is None or (fit is not None and self._is_better(attempt, choice))
        if better:
            self.replace(attempt, fit)
        return better

    def replace(self, attempt: Attempt, fit: Fit | None) -> None:
        """Keep a fit, whatever it scored."""
        self.attempt, self.fit = attempt, fit

    def _is_better(self, attempt: Attempt, choice: str | None) -> bool:
        best = self.attempt
        if not self._few or choice is None or attempt.rows is None or best.rows is None:
            return attempt.loss < best.loss
        simpler = is_simpler(choice, getattr(attempt.candidate, choice), getattr(best.candidate, choice))
        return is_better(attempt.rows, best.rows, simpler=simpler)


FEWEST_ROWS_FOR_A_MIXTURE = 200
FEWEST_ROWS_TO_BEND, OF_A_LINE = 200, 1.0
"""Training rows below which a quick training fits a linear model, too, and keeps the better one; its temperature."""
WELL_HIDDEN = 0.01
"""Whitening gets a trial if a direction of the standardised numbers has a variance below this. Fits find directions of
larger variance without whitening."""


def first_candidate(data: Training) -> Candidate:
    """Return the first candidate of the search: what the user has given, and the first value of every other choice."""
    options = data.options
    first = QUICK_TEMPERATURE if options.quick else TEMPERATURES[1]
    return Candidate(
        noise=first_likelihood(data.schema.target.classes, options),
        transform="none" if options.transform == "auto" else options.transform,
        encoding=_first_encoding(data) if options.encoding == "auto" else options.encoding,
        whitened=options.whiten == "yes" and _whitening(data) is not None,
        hidden=options.hidden,
        temperature=options.temperature or (first if data.few else None),
    )


def open_dimensions(data: Training) -> Iterator[SearchDimension]:
    """Return the dimensions to search, in order: those that the user has not fixed."""
    options = data.options
    if data.schema.target.classes is None:
        yield from _dimensions_of_numbers(data)
    # After the noise: many inputs together with a flexible density would overfit a small table.
    if options.encoding == "auto" and _first_encoding(data) != MIXED and data.encoder(InputChoice(PIECEWISE)).bins:
        yield SearchDimension("encoding", (PIECEWISE,))
    if options.whiten == "auto" and not data.few:
        whitening = _whitening(data)
        if whitening is not None and whitening.variances.min() < WELL_HIDDEN:
            yield SearchDimension("whitened", (True,))
    if data.few and options.temperature is None:
        yield SearchDimension("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


def _dimensions_of_numbers(data: Training) -> Iterator[SearchDimension]:
    """Return the dimensions of the search that only numbers have: the transform of the target, and its noise."""
    options = data.options
    # Noise of one size in the target's unit has no single size after a logarithm.
    if options.transform == "auto" and options.noise != "fixed" and data.bends("log"):
        yield SearchDimension("transform", ("log",))
    if options.noise == "auto":
        few = len(data.split.training) < FEWEST_ROWS_FOR_A_MIXTURE
        others = ("homoscedastic",) if few else ("mixture", "negative-binomial")
        targets = data.targets[data.split.learned]
        suited = [kind for kind in others if suits(kind, targets, data.limits, options)]
        if "negative-binomial" in suited and not is_overdispersed(
            targets, data.encode(InputChoice("standard")).inputs[data.split.learned]
        ):
            suited.remove("negative-binomial")
        yield SearchDimension("noise", tuple(suited))


def _first_encoding(data: Training) -> str:
    """Return the encoding that the search starts from.

    It is the mixed one for classes of few rows, if numbers have bins and every row has judges of both kinds.
    """
    options = data.options
    both = options.members > folds_of(options.members)
    # Of numbers bands are narrowed as for members that read the same inputs.
    mixed = data.schema.target.classes is not None and data.few and both and not options.quick
    return MIXED if mixed and data.encoder(InputChoice(PIECEWISE)).bins else "standard"


def _whitening(data: Training) -> Whitening | None:
    """Return the whitened directions of the table; they are the same for every encoding."""
    return data.encoder(InputChoice("standard", whitened=True)).whitening


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
    if fits.options.idle_features == "auto":
        best.replace(*without_idle_features(fits, chosen, best.attempt, best.fit))
        chosen = _best_candidate(best, temperature_path=first.temperature is None)
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
    return fits.interrupted or fits.plan.late


def _best_candidate(best: BestSoFar, *, temperature_path: bool) -> Candidate:
    """Return the best candidate so far, at its temperature or with a temperature path."""
    candidate = best.attempt.candidate
    return replace(candidate, temperature=None) if temperature_path else candidate


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
    trial = None if best.fit is None else best.attempt.loss
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
    settled, settled_fit = fits.fit(attempt.candidate, SETTLING, outcome)
    if settled_fit is not None:
        if fits.of_numbers or chosen.temperature is not None:
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
        best.keep(*fits.fit(another, SETTLING, outcome), None if temperature > chosen.temperature else "temperature")


def settle_trial(fits: CandidateFits, best: BestSoFar, trial: Attempt, trial_fit: Fit) -> None:
    """Settle from the best trial, too, if it is better than the settled full fit by more than a standard error.

    Args:
        fits: Makes the fits.
        best: Has the best fit; gets a better one.
        trial: The best trial, with all members.
        trial_fit: Its fit.
    """
    full = best.attempt.rows
    if trial.rows is not None and full is not None and is_better(trial.rows, full, simpler=False):
        fits.plan.add(SETTLING)
        best.keep(*fits.fit(trial.candidate, SETTLING, trial_fit))


MOST_LONGER = 3
"""Most longer fits after one another."""
SURELY_WORSE = 2.0
"""Standard errors by which the CRPS of a longer fit must be worse to refuse it, although its loss is lower. With one, a
product of features (602 rows), whose CRPS lies in few rows, was refused and ended with 1.46 times the CRPS."""


def fit_on(fits: CandidateFits, best: BestSoFar) -> None:
    """Go on from the best fit, as long as held-out rows are better by more than a standard error.

    The CRPS must not be worse by more than two (`SURELY_WORSE`): spikes on the values of a rounded target lower the NLL
    alone. If the last of `MOST_LONGER` fits still made it better, the user is told.

    Args:
        fits: Makes the fits.
        best: Has the best fit; gets a better one.
    """
    fits.plan.extend([LONGER] * MOST_LONGER)
    for _ in range(MOST_LONGER):
        if fits.interrupted or best.attempt.rows is None:
            return
        attempt, outcome = fits.fit(best.attempt.candidate, LONGER, best.fit)
        if attempt.rows is None or not is_better(attempt.rows, best.attempt.rows, simpler=False):
            return
        worse, error = paired_difference(attempt.rows[-1:], best.attempt.rows[-1:])
        if worse > SURELY_WORSE * error:
            return
        best.replace(attempt, outcome)
    seconds = 10 * math.ceil((time.monotonic() - fits.data.began) / 5.0)
    fits.data.reporter.say(f"still improving when the time was up: --budget {seconds} may give more")


def _better_alone(fits: CandidateFits, candidate: Candidate, outcome: Fit) -> str | None:
    """Return the encoding of one half of the members of a mixed fit, if it does without the other half.

    It does if one member of this half is better on held-out rows than it is together with one of the other half.
    This is judged after a full fit: members without bins need more steps than a trial has.
    """
    members = fits.options.members
    if candidate.encoding != MIXED or fits.options.encoding != "auto" or members != 2 * folds_of(members):
        return None
    _, validation = fits.data.rows(candidate.inputs, candidate.transform)
    if validation.judges(members) != 2:
        return None
    scores = fits.judge_scores(candidate, outcome, validation)
    binned, plain, both = validation.mean(scores[:, 0]).tolist()
    if min(binned, plain) >= both:
        return None
    return PIECEWISE if binned < plain else "standard"


def trial(data: Training) -> Attempt:
    """One trial of the candidate that `search` starts from; its loss compares tables with other columns.

    Raises:
        FitError: The fit became non-finite.
    """
    # A trial takes a small share of it.
    rows, began = len(data.split.training), time.monotonic()
    fits = CandidateFits(data, SearchPlan([FULL], data.options, rows, few=data.few, began=began))
    attempt, outcome = fits.fit(first_candidate(data), TRIAL)
    if outcome is None:
        raise FitError(str(fits.failure))
    return attempt


def search(data: Training) -> SearchResult:
    """Fit candidates and keep the best. A candidate whose fit becomes non-finite is reported and passed over.

    A KeyboardInterrupt ends the search; once a fit is scored, the best one so far is kept.

    Args:
        data: The training; options with a given value are not searched.

    Raises:
        FitError: Every fit became non-finite.
        KeyboardInterrupt: The search was interrupted before a fit was scored. Later it returns the best fit so far.
    """
    options, reporter, rows = data.options, data.reporter, len(data.split.training)
    if options.budget is not None:
        reporter.say("a budget in seconds: another machine, or a busy one, gives another fit")
    chosen = first_candidate(data)
    dimensions = list(open_dimensions(data))
    # The first candidate, and the other values of each dimension.
    trials = 1 + sum(len(dimension.others) for dimension in dimensions) if dimensions and not options.quick else 0
    # A handful of rows tells a straight line more surely than a bend.
    linear = options.quick and options.budget is None and rows < FEWEST_ROWS_TO_BEND
    linear &= "hidden" not in options.model_fields_set
    stages = [TRIAL] * trials + [FULL, SETTLING]
    plan = SearchPlan(stages, options, rows, few=data.few, began=data.began, kept_back=data.kept_back)
    fits = CandidateFits(data, plan)
    best = BestSoFar(few=data.few)
    try:
        if trials and not plan.late:
            chosen = run_trials(fits, best, chosen, dimensions)
        trial = None if best.fit is None else (best.attempt, best.fit)
        if not fits.interrupted:
            fit_in_full(fits, best, chosen)
        if trial is not None and plan.few and not _over(fits):
            settle_trial(fits, best, *trial)
        limited = options.budget is not None or options.epochs is not None
        if trial is not None and not limited and trial[0].loss - best.attempt.loss > MUCH_BETTER:
            fit_on(fits, best)
        if linear and not fits.interrupted:
            fits.plan = SearchPlan([FULL, SETTLING], options, rows, few=data.few, began=time.monotonic())
            simple = BestSoFar(few=data.few)
            fit_in_full(fits, simple, replace(chosen, hidden=(), temperature=options.temperature or OF_A_LINE))
            best.keep(simple.attempt, simple.fit)
    except KeyboardInterrupt:
        if best.fit is None:
            if fits.newest is None:
                raise
            best.replace(*fits.newest)
        fits.interrupted = True
    if best.fit is None:
        raise FitError(str(fits.failure))
    if best.attempt.stage not in (SETTLING, LONGER) and fits.of_numbers:
        reporter.say("the fit has not converged: noisy rows may count too little")
    return SearchResult(best.attempt, best.fit, tuple(fits.attempts), fits.interrupted)
