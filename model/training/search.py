"""The search over fits: transform, observation model, encoding and temperature, chosen on rows the fit has not seen.

The search makes one choice at a time, by short fits ("trials"), with one member per fold on larger tables. A choice
with a narrow margin is tried again after the later choices. Then follow a full fit with all members, and a shorter,
"settling" fit that starts from its parameters. The settling fit is kept, whatever the full fit scored: it descends the
documented free energy, while the best parameters of a full fit are from a phase in which noisy rows still counted less
than the likelihood says (`beta` of `model.likelihoods.likelihood.Likelihood.gradient`), or from just after it. Scores
are extrapolated to all members (`model.distributions.ensemble_extrapolation`). Options that the user has set are not
searched.

From `FEW_ROWS` rows on, the temperature (the factor of the KL) rises along each fit: members first overfit, then the
prior gets more and more weight. The best parameters on this path are kept, and the settling fit runs at their
temperature. On a smaller table the path would take too many steps. There the search tries temperatures like the other
choices, and after the settling fit it may try another one at a neighbouring temperature. There chance decides between
trials as often as anything else, so the simpler choice is kept unless the other one is better by more than a standard
error, row by row (`model.training.comparison`).
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from murho.model.data.splits import folds_of
from murho.model.encoding.encoder import MIXED, PIECEWISE
from murho.model.errors import FitError
from murho.model.fitting.cross_fit_rows import held_out_row_scores, scores_of_judges
from murho.model.fitting.fit_types import FitOptions, default_batch_size
from murho.model.fitting.work import WorkModel
from murho.model.networks.named_tensors import learned_tensors
from murho.model.runtime.free_memory import give_back
from murho.model.training.candidates import Attempt, Candidate, SearchResult, Stage, stage_title
from murho.model.training.comparison import is_better
from murho.model.training.quick import QUICK_TEMPERATURE, FullSearch, default_budget, quick_budget
from murho.model.training.resuming import fit_or_resume
from murho.model.training.search_space import TEMPERATURES, SearchDimension, is_simpler, next_temperature
from murho.model.training.snapshots import Snapshots
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from murho.model.encoding.whitening import Whitening
    from murho.model.fitting.cross_fit_rows import Rows
    from murho.model.fitting.fit_types import Fit
    from murho.model.fitting.row_scorers import RowScorer
    from murho.model.fitting.training_data import TrainingData
    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions
    from murho.model.training.time_to_finish import TimeToFinish

__all__ = ["SHARE_OF_SEARCH", "search", "trial"]

HIDDEN = (64, 64)
STEPS = 5_000
FEWEST_EPOCHS = 40
FEW_ROWS = 1_000
WARM_UP_SHARE, WARM_UP_SHARE_OF_FEW = 0.2, 0.7
"""Share of a fit over which the KL's factor rises to a fixed temperature. With few rows the prior has much weight: it
prunes units before they have learned, unless the factor rises slowly."""
TRIAL, FULL, SETTLING = "trial", "full", "settling"
STEPS_OF_STAGE = {TRIAL: 0.25, FULL: 1.0, SETTLING: 0.25}
"""Steps of each stage, as shares of `STEPS`."""
TIME_OF_STAGE = {TRIAL: 0.15, FULL: 1.0, SETTLING: 0.25}
"""Time of each stage, relative to a full fit. Half as many members take more than half of the time."""
TIME_OF_TRIAL_OF_FEW = 0.25
"""Trials on few rows have all members. Where two judge a row, the score extrapolates to all; one per fold would score
temperatures and transforms as single networks, which need more caution than the mixture that will answer."""
SETTLING_RATE = 0.3
"""First learning rate of the settling fit, as a share of the usual one."""
WELL_HIDDEN = 0.01
"""Whitening gets a trial if a direction of the standardised numbers has a variance below this. Fits find directions of
larger variance without whitening."""
NARROW = 0.05
"""Difference of two losses, nats, below which later choices may reverse the order."""
SHARE_OF_SEARCH = 0.96
"""Share of a training that its search takes, for the progress: the rest calibrates and scores."""
SECOND_SEED = 10
"""Added to the seed for the settling fit; a fit uses its seed and the next few."""


def warm_up_share(rows: int) -> float:
    """Share of the steps over which the KL's factor rises in a fit, by the number of training rows."""
    return WARM_UP_SHARE_OF_FEW if rows < FEW_ROWS else WARM_UP_SHARE


class _Search:
    def __init__(
        self,
        data: TrainingData,
        options: TrainOptions,
        reporter: Reporter,
        device: str,
        snapshots: Snapshots,
        began: float | None = None,
        to_finish: TimeToFinish | None = None,
    ) -> None:
        self.to_finish = to_finish
        self.scoring = 0.0  # seconds of the last scoring, by the clock
        self.data, self.options, self.reporter, self.device = data, options, reporter, device
        self.task = task_of(data.schema.target)
        self.snapshots = snapshots
        self.attempts: list[Attempt] = []
        # A budget that the user has set is in seconds of the clock; the default is in work, the same on every machine.
        full = default_budget(len(data.split.training))
        self.budget = options.budget or (quick_budget(full) if options.quick else full)
        self.began, self.work = (time.monotonic() if began is None else began) - snapshots.carried, 0.0
        self.time_left = self.time_planned = 1.0
        self.fits_planned = self.fits_of_search = 1
        self.few = len(data.split.training) < FEW_ROWS
        self.narrow: dict[str, Candidate] = {}
        self.interrupted = False
        self.best: Attempt
        self.best_fit: Fit | None = None
        self.failure: FitError | None = None

    def time_of(self, stage: str) -> float:
        """Time of a stage, relative to a full fit."""
        return TIME_OF_TRIAL_OF_FEW if stage == TRIAL and self.few else TIME_OF_STAGE[stage]

    def fit(
        self, candidate: Candidate, stage: str, initial: Mapping[str, Tensor] | None = None
    ) -> tuple[Attempt, Fit | None]:
        """Fit and score one candidate, within its share of the time left. The fit is None if it failed."""
        name = f"{candidate!r}, {stage}"
        began = time.monotonic() - self.snapshots.spent(name)
        options, data = self.options, self.data
        training, validation = data.rows(candidate.encoding, candidate.transform, whitened=candidate.whitened)
        standardisation = data.standardisation(candidate.transform)
        batch_size = options.batch_size or default_batch_size(len(training))
        minibatches = math.ceil(len(training) / batch_size)
        epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
        epochs = max(1, round(STEPS_OF_STAGE[stage] * epochs))
        share = self.time_of(stage)
        budget = max(0.1, self.left_at(began)) * share / max(share, self.time_left)
        if options.budget:
            budget = max(0.1, budget - self.scoring)
        title = f"{stage_title(stage)}{candidate}"
        self.reporter.stage(self.stage_of(title, share))
        self.time_left -= share
        settling = initial is not None
        members = folds_of(options.members) if stage == TRIAL and not self.few else options.members
        fit_options = FitOptions(
            prior=options.make_prior(),
            noise=candidate.noise,
            noise_sigma=None if options.noise_sigma is None else options.noise_sigma / standardisation.scale,
            noise_components=options.noise_components,
            classes=self.task.class_count,
            standardisation=standardisation,
            hidden=candidate.hidden,
            activation=options.activation,
            skip=options.skip and bool(candidate.hidden),
            members=members,
            reads=data.reads(candidate.encoding, members, whitened=candidate.whitened),
            kl_weights=options.kl_weights,
            draws_per_step=options.draws_per_step,
            optimiser=options.optimiser,
            learning_rate=options.learning_rate * (SETTLING_RATE if settling else 1.0),
            batch_size=batch_size,
            epochs=epochs,
            warm_up_steps=0 if settling else round(warm_up_share(len(training)) * epochs * minibatches),
            temperature=1.0 if candidate.temperature is None else candidate.temperature,
            temperature_path=candidate.temperature is None,
            beta_nll=not settling,
            patience=options.patience,
            seed=options.seed + (SECOND_SEED if settling else 0),
            budget=budget,
            budget_by_clock=options.budget is not None,
        )

        outcome: Fit | None = None
        try:
            scored = fit_or_resume(
                self.snapshots,
                name,
                training,
                validation,
                fit_options,
                lambda outcome: self.score(candidate, outcome, validation),
                title=title,
                initial=initial,
                reporter=self.reporter,
                device=torch.device(self.device),
            )
        except FitError as error:
            self.failure = error
            self.work += budget  # how far it came is not known once it is resumed
            attempt = Attempt(candidate, stage, math.inf, math.inf, time.monotonic() - began)
            self.reporter.say(f"{title}: passed over: {error}")
        else:
            outcome = scored.fit
            scoring = WorkModel(outcome.network.architecture, self.device.partition(":")[0])
            self.work += outcome.work + scoring.score(len(validation), outcome.likelihood.means)
            candidate = replace(candidate, temperature=outcome.temperature)
            attempt = Attempt(candidate, stage, scored.nll, scored.crps, scored.seconds, scored.rows, outcome.history)
            self.reporter.scored(attempt)
            self.interrupted = outcome.stopped == "interrupted"
            self.scoring = max(0.0, scored.seconds - outcome.history[-1].seconds)
        self.attempts.append(attempt)
        give_back()
        return attempt, outcome

    def stage_of(self, title: str, share: float) -> Stage:
        """The next fit as a stage of the training."""
        number = len(self.attempts) + 1
        done = 1.0 - max(0.0, self.time_left) / self.time_planned
        return Stage(
            title,
            number,
            max(number, self.fits_planned),
            SHARE_OF_SEARCH * done,
            SHARE_OF_SEARCH * share / self.time_planned,
        )

    def plan(self, stage: str) -> None:
        """Add a fit to what was planned."""
        self.fits_planned += 1
        self.time_left += self.time_of(stage)
        self.time_planned += self.time_of(stage)

    def score(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row: NLL and CRPS ``[2, N]``, or the log loss alone ``[1, N]``."""
        targets, scorer = self.judging(candidate, outcome, validation)
        scores = held_out_row_scores(outcome.network, validation, targets, scorer, seed=self.options.seed)
        return scores[: self.task.scores_in_loss]

    def judging(self, candidate: Candidate, outcome: Fit, validation: Rows) -> tuple[Tensor, RowScorer]:
        """Targets of the validation rows, ``[N]``, and what scores a fit on them."""
        data = self.data
        targets = torch.from_numpy(data.targets[data.split.validation])
        spread = float(validation.mean((targets - validation.mean(targets)).square()).sqrt())
        return targets, self.task.scorer(outcome.likelihood, data.standardisation(candidate.transform), spread)

    def run(self) -> SearchResult:
        """Run all stages. A KeyboardInterrupt ends the search; once a fit is scored, the best one so far is kept.

        Raises:
            FitError: Every fit became non-finite.
            KeyboardInterrupt: No fit was scored yet.
        """
        if self.options.budget is not None:
            self.reporter.say("a budget in seconds: another machine, or a busy one, gives another fit")
        try:
            self._run()
        except KeyboardInterrupt:
            if self.best_fit is None:
                raise
            self.interrupted = True
        if self.best_fit is None:
            raise FitError(f"{self.failure}{self.snapshots.advice(self.options.learning_rate)}")
        if self.best.stage != SETTLING:
            self.reporter.say("these parameters have not settled: noisy rows have counted less than they should")
        return SearchResult(
            self.best.candidate,
            self.best_fit,
            tuple(self.attempts),
            self.interrupted,
            self.best,
            self._full_search() if self.options.quick else None,
            self.pace,
        )

    def left_at(self, moment: float) -> float:
        """What is left of the budget for fits: seconds by the clock if the user has set it, else reference seconds."""
        if not self.options.budget:
            return self.budget - self.work
        kept_back = 0.0 if self.to_finish is None else self.to_finish.kept_back(self.pace)
        return self.budget - (moment - self.began) - kept_back

    @property
    def late(self) -> bool:
        """Whether a budget in seconds has nothing left for trials: the full fit and its scores take the rest."""
        return self.options.budget is not None and self.left_at(time.monotonic()) <= 0.0

    @property
    def pace(self) -> float:
        """Seconds by the clock that a reference second has taken in the fits so far; 1 before the first."""
        return sum(attempt.seconds for attempt in self.attempts) / self.work if self.work else 1.0

    def _full_search(self) -> FullSearch:
        """What the search would have done, at the pace of the fits so far."""
        full = default_budget(len(self.data.split.training))
        return FullSearch(self.fits_of_search, round(full * self.pace, 1))

    def _run(self) -> None:
        """Run the trials, then the full fit and the settling fit. An interruption of a fit ends the search."""
        chosen = self._base()
        dimensions = list(self._dimensions())
        stages = [TRIAL] * _trials(dimensions) + [FULL, SETTLING]
        self.fits_of_search = len(stages)
        if self.options.quick:
            dimensions, stages = [], [FULL, SETTLING]
        self.time_left = self.time_planned = sum(self.time_of(stage) for stage in stages)
        self.fits_planned = len(stages)
        if dimensions and not self.late:
            self._keep(*self.fit(chosen, TRIAL))
            for dimension in dimensions:
                chosen = self._search_dimension(dimension, chosen)
            # With few rows a narrow margin is due to chance.
            if chosen.temperature is None:
                chosen = self._reconsider(chosen)
        if not self.interrupted:
            self._fit_in_full(chosen)

    def _search_dimension(self, dimension: SearchDimension, chosen: Candidate) -> Candidate:
        """Try the values of one dimension; returns the best candidate."""
        values = list(dimension.others)
        while values and not self.interrupted and not self.late:
            value, before = values.pop(0), self.best.loss
            attempt, outcome = self.fit(replace(chosen, **{dimension.name: value}), TRIAL)
            won = self._keep(attempt, outcome, dimension.name)
            if abs(attempt.loss - before) < NARROW:
                runner_up = getattr(chosen, dimension.name) if won else value
                self.narrow[dimension.name] = replace(chosen, **{dimension.name: runner_up})
            if not won and dimension.otherwise:
                values = list(dimension.otherwise) if value == dimension.others[0] else []
        return self._chosen(temperature_path=chosen.temperature is None)

    def _reconsider(self, chosen: Candidate) -> Candidate:
        """Try values that lost narrowly again, together with the later choices; returns the best candidate."""
        for name, narrow_loser in self.narrow.items():
            candidate = replace(chosen, **{name: getattr(narrow_loser, name)})
            if candidate not in (narrow_loser, chosen) and not self.interrupted and not self.late:
                self.plan(TRIAL)
                self._keep(*self.fit(candidate, TRIAL))
                chosen = self._chosen(temperature_path=True)
        return chosen

    def _chosen(self, *, temperature_path: bool) -> Candidate:
        """The best candidate so far, at its temperature or with a temperature path."""
        return replace(self.best.candidate, temperature=None) if temperature_path else self.best.candidate

    def _keep(self, attempt: Attempt, outcome: Fit | None, choice: str | None = None) -> bool:
        """Keep the attempt and its fit if they are better than the best so far; returns whether they are.

        Args:
            attempt: The attempt.
            outcome: Its fit.
            choice: The only field in which its candidate differs from the best one, if there is one such field.
        """
        better = self.best_fit is None or (outcome is not None and self._is_better(attempt, choice))
        if better:
            self.best, self.best_fit = attempt, outcome
        return better

    def _is_better(self, attempt: Attempt, choice: str | None) -> bool:
        if not self.few or choice is None or attempt.rows is None or self.best.rows is None:
            return attempt.loss < self.best.loss
        simpler = is_simpler(choice, getattr(attempt.candidate, choice), getattr(self.best.candidate, choice))
        return is_better(attempt.rows, self.best.rows, simpler=simpler)

    def _fit_in_full(self, chosen: Candidate) -> None:
        """Fit with all members, replacing the best trial; then run the settling fit, and keep it."""
        trial = self.best.loss if self.attempts else None
        attempt, outcome = self.fit(chosen, FULL)
        if outcome is None or self.interrupted:
            self._keep(attempt, outcome)
            return
        self.best, self.best_fit = attempt, outcome
        alone = self._better_alone(chosen, outcome)
        if alone is not None:
            self.plan(FULL)
            attempt, outcome = self.fit(replace(chosen, encoding=alone), FULL)
            if outcome is None or self.interrupted:
                return
            self.best, self.best_fit = attempt, outcome
        start = learned_tensors(outcome.network, outcome.likelihood)
        settled, settled_fit = self.fit(attempt.candidate, SETTLING, start)
        if settled_fit is not None:
            self.best, self.best_fit = settled, settled_fit
        if chosen.temperature is None or trial is None or self.options.temperature is not None or self.interrupted:
            return
        temperature = next_temperature(chosen.temperature, trial, attempt.loss)
        if temperature != chosen.temperature:
            self.plan(SETTLING)
            another = replace(attempt.candidate, temperature=temperature)
            # The trials have preferred the chosen temperature, so a warmer one must be better, if only by chance.
            self._keep(*self.fit(another, SETTLING, start), None if temperature > chosen.temperature else "temperature")

    def _better_alone(self, candidate: Candidate, outcome: Fit) -> str | None:
        """The encoding of one half of the members of a mixed fit, if it does without the other half.

        It does if one member of this half is better on held-out rows than it is together with one of the other half.
        This is judged after a full fit: members without bins need more steps than a trial has.
        """
        members = self.options.members
        if candidate.encoding != MIXED or self.options.encoding != "auto" or members != 2 * folds_of(members):
            return None
        _, validation = self.data.rows(candidate.encoding, candidate.transform, whitened=candidate.whitened)
        if validation.judges(members) != 2:
            return None
        targets, scorer = self.judging(candidate, outcome, validation)
        binned, plain, both = scores_of_judges(
            outcome.network, validation, targets, scorer, seed=self.options.seed
        ).tolist()
        if min(binned, plain) >= both:
            return None
        return PIECEWISE if binned < plain else "standard"

    def _base(self) -> Candidate:
        """The candidate that the search starts from."""
        options = self.options
        temperature_path = len(self.data.split.training) >= FEW_ROWS
        first = QUICK_TEMPERATURE if options.quick else TEMPERATURES[1]
        return Candidate(
            noise=self.task.first_likelihood(options),
            transform="none" if options.transform == "auto" else options.transform,
            encoding=self._first_encoding() if options.encoding == "auto" else options.encoding,
            whitened=options.whiten == "yes" and self._whitening() is not None,
            hidden=HIDDEN if options.hidden is None else options.hidden,
            temperature=options.temperature or (None if temperature_path else first),
        )

    def _first_encoding(self) -> str:
        """The encoding that the search starts from.

        It is the mixed one for classes of few rows, if numbers have bins and every row has judges of both kinds.
        """
        options = self.options
        both = options.members > folds_of(options.members)
        mixed = self.task.mixes_encodings and self.few and both and not options.quick
        return MIXED if mixed and self.data.encoder(PIECEWISE).bins else "standard"

    def _whitening(self) -> Whitening | None:
        """The whitened directions of the table; they are the same for every encoding."""
        return self.data.encoder("standard", whitened=True).whitening

    def _dimensions(self) -> Iterator[SearchDimension]:
        """The dimensions to search: those that the user has not fixed."""
        options, data = self.options, self.data
        yield from self.task.dimensions(data, options)
        # After the noise: many inputs together with a flexible density would overfit a small table.
        if options.encoding == "auto" and self._first_encoding() != MIXED and data.encoder(PIECEWISE).bins:
            yield SearchDimension("encoding", (PIECEWISE,))
        if options.whiten == "auto" and len(data.split.training) >= FEW_ROWS:
            whitening = self._whitening()
            if whitening is not None and whitening.variances.min() < WELL_HIDDEN:
                yield SearchDimension("whitened", (True,))
        if self._base().temperature is not None and options.temperature is None:
            yield SearchDimension("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


def _trials(dimensions: list[SearchDimension]) -> int:
    """Trials that a search plans: the first candidate, and the other values of each dimension."""
    return sum(len(dimension.others) for dimension in dimensions) + 1 if dimensions else 0


def trial(data: TrainingData, options: TrainOptions, reporter: Reporter, device: str = "cpu") -> Attempt:
    """One trial of the candidate that `search` starts from; its loss compares tables with other columns.

    Raises:
        FitError: The fit became non-finite.
    """
    running = _Search(data, options, reporter, device, Snapshots())
    attempt, outcome = running.fit(running._base(), TRIAL)
    if outcome is None:
        raise FitError(str(running.failure))
    return attempt


def search(
    data: TrainingData,
    options: TrainOptions,
    reporter: Reporter,
    device: str = "cpu",
    snapshots: Snapshots | None = None,
    began: float | None = None,
    to_finish: TimeToFinish | None = None,
) -> SearchResult:
    """Fit candidates and keep the best. A candidate whose fit becomes non-finite is reported and passed over.

    Args:
        data: The table.
        options: Validated options; options with a given value are not searched.
        reporter: Gets the progress.
        device: Device of the fits.
        snapshots: Snapshots of an interrupted search to resume; this search adds its own.
        began: When the user began to wait, in monotonic seconds: ``--budget`` counts from there. By default now.
        to_finish: What follows the search within the budget; by default nothing is kept back for it.

    Raises:
        FitError: Every fit became non-finite.
        KeyboardInterrupt: The search was interrupted before a fit was scored. Later it returns the best fit so far.
    """
    return _Search(data, options, reporter, device, snapshots or Snapshots(), began, to_finish).run()
