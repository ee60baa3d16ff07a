"""The search over fits: transform, observation model, encoding and temperature, chosen on rows the fit has not seen.

The search makes one choice at a time, by short fits ("trials"), with one member per fold on larger tables. Then follow
a full fit with all members, and a shorter, "settling" fit that starts from its parameters. Scores are extrapolated to
all members (`model.bbb.rows`). Options that the user has set are not searched. The order of the search is observation
model and transform, as the task has them, then encoding, whitening and temperature.

From `model.training.candidates.FEW_ROWS` rows on, the temperature (the factor of the KL) rises along each fit: members
first overfit, then the prior gets more and more weight. The best parameters on this path are kept, and the settling fit
runs at their temperature. A value that lost narrowly is tried again together with the later choices.

On a smaller table the path would take too many steps. There the search tries temperatures like the other choices, and
after the settling fit it may try another one at a neighbouring temperature. Chance decides between trials as often as
anything else, so nothing is repeated, and the simpler choice is kept unless the other one is better by more than a
standard error, row by row (`BestSoFar`).

The settling fit of a regression is kept, whatever the full fit scored: it descends the documented free energy, while
the best parameters of a full fit are from a phase in which noisy rows still counted less than the likelihood says
(`beta` of `model.bbb.likelihood.Likelihood.evened`), or from just after it. Classes have no such phase. There
the settling fit must be better than parameters from a temperature path, which it may overfit.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from murho.model.bbb.fit import Fit, FitOptions, WorkModel, default_batch_size, fit
from murho.model.bbb.likelihood import ClassLikelihood, Likelihood, NumericLikelihood
from murho.model.bbb.line import start_at_line
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.encoding.encoder import MIXED, PIECEWISE, InputChoice
from murho.model.errors import FitError
from murho.model.runtime import give_back, interrupts_held_back
from murho.model.seeds import seed_for
from murho.model.tables.splits import folds_of
from murho.model.training.candidates import (
    FULL,
    LONGER,
    NARROW,
    SETTLING,
    TRIAL,
    Attempt,
    Candidate,
    Reporter,
    SearchPlan,
    SearchResult,
    epochs_of,
    stage_title,
    warm_up_share,
)
from murho.model.training.idle_features import without_idle_features
from murho.model.training.options import QUICK_TEMPERATURE, TrainOptions
from murho.model.training.scoring import DRAWS, ClassScorer, NumberScorer, extrapolated, is_better, judge_scores
from murho.model.training.tasks import (
    MUCH_BETTER,
    TEMPERATURES,
    SearchDimension,
    dimensions_of_numbers,
    first_likelihood,
    is_simpler,
    likelihood_spec,
    next_temperature,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from murho.model.bbb.rows import Rows
    from murho.model.encoding.whitening import Whitening
    from murho.model.training.rows import TrainingData


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


RATE_OF_STAGE = {TRIAL: 1.0, FULL: 1.0, SETTLING: 0.3, LONGER: 0.5}
"""First learning rate of each stage, as a share of the usual one."""


def fit_options(options: TrainOptions, rows: int, *, rate: float = 1.0, **others: Any) -> FitOptions:
    """The options of a fit, from those of a training.

    Args:
        options: Options of the training.
        rows: Training rows, N.
        rate: The first learning rate, as a share of the usual one.
        others: Values of further fields of `FitOptions`.
    """
    return FitOptions(
        kl_weights=options.kl_weights,
        draws_per_step=options.draws_per_step,
        learning_rate=options.learning_rate * rate,
        batch_size=options.batch_size or default_batch_size(rows),
        **others,
    )


class CandidateFits:
    """Fits candidates to one table, one after the other, within the plan and the budget of a search.

    Attributes:
        data: The table.
        options: Options of the training.
        plan: The fits that are planned; each fit takes its share of what is left.
        attempts: All fits so far, in order, with those that failed.
        interrupted: Whether the user has interrupted the last fit that gave scores.
        newest: That fit, which nobody may have kept yet where an interruption comes next; None: there was none.
        failure: Why the last fit that failed did; None: none has.
        of_numbers: Whether the target is a number. Early in such a fit noisy rows pull as hard as others (``beta`` of
            `model.bbb.likelihood.Likelihood.evened`), which is not the gradient of the free energy.
    """

    def __init__(
        self,
        data: TrainingData,
        options: TrainOptions,
        plan: SearchPlan,
        reporter: Reporter,
        device: str,
    ) -> None:
        """Begin without a fit.

        Args:
            data: The table.
            options: Options of the training.
            plan: The fits that are planned, and what they may take.
            reporter: Gets the progress.
            device: Device of the fits.
        """
        self.data, self.options, self.plan = data, options, plan
        self.attempts: list[Attempt] = []
        self.interrupted = False
        self.newest: tuple[Attempt, Fit] | None = None
        self.failure: FitError | None = None
        self._reporter, self._device = reporter, device
        self.of_numbers = data.schema.target.classes is None

    def fit(self, candidate: Candidate, stage: str, start: Fit | None = None) -> tuple[Attempt, Fit | None]:
        """Fit and score one candidate, within its share of the budget left.

        Args:
            candidate: The candidate.
            stage: ``trial``, ``full``, ``settling`` or ``longer``.
            start: The fit from whose parameters a settling or a longer fit goes on; it is not changed.

        Returns:
            The attempt and the fit; the fit is None if it failed.
        """
        began = time.monotonic()
        training, validation = self.data.rows(candidate.inputs, candidate.transform)
        title = f"{stage_title(stage)}{candidate}"
        part, budget = self.plan.begin(stage, len(self.attempts) + 1, title, began)
        self._reporter.stage(part)
        if start is None:
            network, likelihood = self._initial(candidate, stage, training)
        else:
            network, likelihood = copy.deepcopy((start.network, start.likelihood))
        outcome: Fit | None = None
        self._reporter.begin(title)
        try:
            try:
                outcome = fit(
                    network,
                    likelihood,
                    self.options.make_prior(),
                    training,
                    validation,
                    self._options_of(candidate, stage, len(training), budget),
                    device=torch.device(self._device),
                    progress=self._reporter,
                )
            finally:
                self._reporter.end()
            with interrupts_held_back() as held_back:
                rows = _finite(self.row_scores(candidate, outcome, validation))
                seconds = time.monotonic() - began
        except FitError as error:
            self.failure, outcome = error, None
            attempt = Attempt(candidate, stage, math.inf, math.inf, time.monotonic() - began)
            self.plan.spend(budget)  # how far it came is not known
            self._reporter.say(f"{title}: passed over: {error}")
        else:
            work = outcome.work + self.work_of_scoring(outcome, len(validation))
            candidate = replace(candidate, temperature=outcome.temperature)
            nll, *crps = (float(scores.mean()) for scores in rows)
            attempt = Attempt(candidate, stage, nll, crps[0] if crps else None, seconds, rows, outcome.history)
            self.plan.spend(work, max(0.0, seconds - outcome.history[-1].seconds))
            self.newest = attempt, outcome
            self._reporter.scored(attempt)
            self.interrupted = held_back.came or outcome.stopped == "interrupted"
        self.attempts.append(attempt)
        give_back()
        return attempt, outcome

    def judge_scores(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row under each judge and under all (`judge_scores`)."""
        data = self.data
        targets = torch.from_numpy(data.targets[data.split.validation])
        spread = float(validation.mean((targets - validation.mean(targets)).square()).sqrt())
        scorer: NumberScorer | ClassScorer
        if isinstance(outcome.likelihood, ClassLikelihood):
            scorer = ClassScorer(outcome.likelihood)
        else:
            numeric = cast("NumericLikelihood", outcome.likelihood)
            scorer = NumberScorer(numeric, data.standardisation(candidate.transform), spread)
        return judge_scores(outcome.network, validation, targets, scorer, seed=self.options.seed)

    def row_scores(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row: NLL and CRPS ``[2, N]``, or the log loss alone ``[1, N]``."""
        scores = self.judge_scores(candidate, outcome, validation)
        return extrapolated(scores, outcome.network, validation)

    def work_of_scoring(self, outcome: Fit, rows: int) -> float:
        """Reference seconds of `row_scores`."""
        work = WorkModel(outcome.network.architecture, self._device.partition(":")[0])
        return work.score(rows, DRAWS, outcome.likelihood.means)

    def _initial(self, candidate: Candidate, stage: str, training: Rows) -> tuple[BayesianNetwork, Likelihood]:
        """The network and the observation model of a candidate, before a fit."""
        data, options = self.data, self.options
        members = folds_of(options.members) if stage == TRIAL and not self.plan.few else options.members
        likelihood = likelihood_spec(candidate.noise, candidate.transform, data, options).make(members)
        likelihood.learn_target(data.standardisation(candidate.transform))
        architecture = Architecture(
            inputs=data.encoder(candidate.inputs).width,
            hidden=candidate.hidden,
            outputs=likelihood.outputs,
            activation=options.activation,
            members=members,
            skip=options.skip and bool(candidate.hidden),
            unread=data.unread(candidate.inputs, members),
        )
        start = torch.Generator().manual_seed(seed_for(options.seed, "initial weights"))
        alike = not architecture.unread or candidate.encoding != MIXED
        network = BayesianNetwork(
            architecture,
            start,
            likelihood.initial_outputs,
            alike=alike,
            feature_of_input=data.encoder(candidate.inputs).feature_of_column,
        )
        if data.line and self.of_numbers:
            start_at_line(network, likelihood.means, training)
        return network, likelihood

    def _options_of(self, candidate: Candidate, stage: str, rows: int, budget: float) -> FitOptions:
        """The options of a fit, from the number of its training rows, N, and its budget."""
        options, goes_on = self.options, stage in (SETTLING, LONGER)
        minibatches = math.ceil(rows / (options.batch_size or default_batch_size(rows)))
        epochs = epochs_of(stage, minibatches, options.epochs)
        return fit_options(
            options,
            rows,
            rate=RATE_OF_STAGE[stage],
            epochs=epochs,
            warm_up_steps=0 if goes_on else round(warm_up_share(rows) * epochs * minibatches),
            temperature=candidate.temperature,
            patience=options.patience,
            seed=seed_for(options.seed, f"{stage} fit") if goes_on else options.seed,
            budget=budget,
            budget_by_clock=self.plan.by_clock,
        )


def _finite(rows: Tensor) -> Tensor:
    if not math.isfinite(float(rows.sum())):
        raise FitError("the predictions of the fit are not finite; use a smaller --learning-rate")
    return rows


FEWEST_ROWS_TO_BEND, OF_A_LINE = 200, 1.0
"""Training rows below which a quick training fits a linear model, too, and keeps the better one; its temperature."""
WELL_HIDDEN = 0.01
"""Whitening gets a trial if a direction of the standardised numbers has a variance below this. Fits find directions of
larger variance without whitening."""


def first_candidate(data: TrainingData, options: TrainOptions) -> Candidate:
    """The candidate that the search starts from: what the user has given, and the first value of every other choice."""
    first = QUICK_TEMPERATURE if options.quick else TEMPERATURES[1]
    return Candidate(
        noise=first_likelihood(data.schema.target.classes, options),
        transform="none" if options.transform == "auto" else options.transform,
        encoding=_first_encoding(data, options) if options.encoding == "auto" else options.encoding,
        whitened=options.whiten == "yes" and _whitening(data) is not None,
        hidden=options.hidden,
        temperature=options.temperature or (first if data.few else None),
    )


def open_dimensions(data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:
    """The dimensions to search, in order: those that the user has not fixed."""
    if data.schema.target.classes is None:
        yield from dimensions_of_numbers(data, options)
    # After the noise: many inputs together with a flexible density would overfit a small table.
    if (
        options.encoding == "auto"
        and _first_encoding(data, options) != MIXED
        and data.encoder(InputChoice(PIECEWISE)).bins
    ):
        yield SearchDimension("encoding", (PIECEWISE,))
    if options.whiten == "auto" and not data.few:
        whitening = _whitening(data)
        if whitening is not None and whitening.variances.min() < WELL_HIDDEN:
            yield SearchDimension("whitened", (True,))
    if data.few and options.temperature is None:
        yield SearchDimension("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


def _first_encoding(data: TrainingData, options: TrainOptions) -> str:
    """The encoding that the search starts from.

    It is the mixed one for classes of few rows, if numbers have bins and every row has judges of both kinds.
    """
    both = options.members > folds_of(options.members)
    # Of numbers bands are narrowed as for members that read the same inputs.
    mixed = data.schema.target.classes is not None and data.few and both and not options.quick
    return MIXED if mixed and data.encoder(InputChoice(PIECEWISE)).bins else "standard"


def _whitening(data: TrainingData) -> Whitening | None:
    """The whitened directions of the table; they are the same for every encoding."""
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
    return fits.interrupted or fits.plan.late


def _best_candidate(best: BestSoFar, *, temperature_path: bool) -> Candidate:
    """The best candidate so far, at its temperature or with a temperature path."""
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


MOST_LONGER = 3
"""Most longer fits after one another."""


def fit_on(fits: CandidateFits, best: BestSoFar, reporter: Reporter, began: float) -> None:
    """Go on from the best fit, as long as held-out rows are better by more than a standard error.

    Args:
        fits: Makes the fits.
        best: Has the best fit; gets a better one.
        reporter: Gets a message if the last of `MOST_LONGER` fits still made it better.
        began: When the user began to wait, monotonic seconds.
    """
    fits.plan.extend([LONGER] * MOST_LONGER)
    for _ in range(MOST_LONGER):
        if fits.interrupted or best.attempt.rows is None:
            return
        attempt, outcome = fits.fit(best.attempt.candidate, LONGER, best.fit)
        if attempt.rows is None or not is_better(attempt.rows, best.attempt.rows, simpler=False):
            return
        best.replace(attempt, outcome)
    seconds = 10 * math.ceil((time.monotonic() - began) / 5.0)
    reporter.say(f"still improving when the time was up: --budget {seconds} may give more")


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
    scores = fits.judge_scores(candidate, outcome, validation)
    binned, plain, both = validation.mean(scores[:, 0]).tolist()
    if min(binned, plain) >= both:
        return None
    return PIECEWISE if binned < plain else "standard"


def trial(data: TrainingData, options: TrainOptions, reporter: Reporter, device: str = "cpu") -> Attempt:
    """One trial of the candidate that `search` starts from; its loss compares tables with other columns.

    Raises:
        FitError: The fit became non-finite.
    """
    # A trial takes a small share of it.
    plan = SearchPlan([FULL], options, len(data.split.training), began=time.monotonic())
    fits = CandidateFits(data, options, plan, reporter, device)
    attempt, outcome = fits.fit(first_candidate(data, options), TRIAL)
    if outcome is None:
        raise FitError(str(fits.failure))
    return attempt


def search(
    data: TrainingData,
    options: TrainOptions,
    reporter: Reporter,
    device: str,
    began: float,
    kept_back: float = 0.0,
) -> SearchResult:
    """Fit candidates and keep the best. A candidate whose fit becomes non-finite is reported and passed over.

    A KeyboardInterrupt ends the search; once a fit is scored, the best one so far is kept.

    Args:
        data: The table.
        options: Validated options; options with a given value are not searched.
        reporter: Gets the progress.
        device: Device of the fits.
        began: When the user began to wait, in monotonic seconds: ``--budget`` counts from there.
        kept_back: Seconds of ``--budget`` that are left for what follows the search.

    Raises:
        FitError: Every fit became non-finite.
        KeyboardInterrupt: The search was interrupted before a fit was scored. Later it returns the best fit so far.
    """
    rows = len(data.split.training)
    if options.budget is not None:
        reporter.say("a budget in seconds: another machine, or a busy one, gives another fit")
    chosen = first_candidate(data, options)
    dimensions = list(open_dimensions(data, options))
    # The first candidate, and the other values of each dimension.
    trials = 1 + sum(len(dimension.others) for dimension in dimensions) if dimensions and not options.quick else 0
    # A handful of rows tells a straight line more surely than a bend.
    linear = options.quick and options.budget is None and rows < FEWEST_ROWS_TO_BEND
    linear &= "hidden" not in options.model_fields_set
    plan = SearchPlan([TRIAL] * trials + [FULL, SETTLING], options, rows, began=began, kept_back=kept_back)
    fits = CandidateFits(data, options, plan, reporter, device)
    best, interrupted = BestSoFar(few=data.few), False
    try:
        if trials and not plan.late:
            chosen = run_trials(fits, best, chosen, dimensions)
        trial = None if best.fit is None else best.attempt.loss
        if not fits.interrupted:
            fit_in_full(fits, best, chosen)
        limited = options.budget is not None or options.epochs is not None
        if trial is not None and not limited and trial - best.attempt.loss > MUCH_BETTER:
            fit_on(fits, best, reporter, began)
        if linear and not fits.interrupted:
            fits.plan = SearchPlan([FULL, SETTLING], options, rows, began=time.monotonic())
            simple = BestSoFar(few=data.few)
            fit_in_full(fits, simple, replace(chosen, hidden=(), temperature=options.temperature or OF_A_LINE))
            best.keep(simple.attempt, simple.fit)
    except KeyboardInterrupt:
        if best.fit is None:
            if fits.newest is None:
                raise
            best.replace(*fits.newest)
        interrupted = True
    if best.fit is None:
        raise FitError(str(fits.failure))
    if best.attempt.stage not in (SETTLING, LONGER) and fits.of_numbers:
        reporter.say("the fit has not converged: noisy rows may count too little")
    return SearchResult(best.attempt, best.fit, tuple(fits.attempts), interrupted or fits.interrupted)
