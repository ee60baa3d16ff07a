"""`CandidateFits`: the fits of a search with their scores on held-out rows, the best so far, and idle features.

On a small table the losses of two trials differ by chance, by as much as most choices matter. Both trials are judged on
the same rows, and a row that is hard for one is hard for the other. So the difference is taken row by row, and its
standard error is that of a mean of N differences. The search takes the simpler of two choices unless the other one is
better by more than one standard error (the "one standard error rule" of Breiman et al. 1984, section 3.4.3, for pairs).

Idle features are those whose shuffling does not make held-out answers worse: among few rows and many features a network
fits targets to features that say nothing. After the first trial each feature is shuffled among the held-out rows, as
for permutation importance (Breiman 2001, "Random forests"), and the answers are scored again. For a member, a feature
is idle unless this makes answers worse by more than half a standard error, over the rows that this member learns from:
no member is chosen by the rows that it judges. So members may differ in what they read.

A trial without idle features is kept if it is better by more than one standard error and by 0.05 nats; then it is
judged in turn. A feature that trials do not need may still help longer fits, which are more exact: where features are
few for the rows, too little is gained, and they stay. When nothing is gained any more, the same is tried with features
that make answers worse by less than one standard error. What is left of the idle features then goes with the targets of
these very rows by chance, and flatters their scores. So at last members do without all that make answers worse by less
than 1.5 standard errors, unless this is worse by more than one.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.bbb.fit import WorkModel, fit
from murho.model.bbb.fit_types import FitOptions, default_batch_size
from murho.model.bbb.rows import held_out_row_scores
from murho.model.errors import FitError
from murho.model.runtime import give_back, interrupts_held_back
from murho.model.tables.splits import folds_of
from murho.model.training.candidates import SETTLING, TRIAL, Attempt, epochs_of, stage_title, warm_up_share
from murho.model.training.tasks import is_simpler, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from murho.model.bbb.fit_types import Fit
    from murho.model.bbb.rows import Rows, RowScorer, TrainingData
    from murho.model.training.candidates import Candidate, Reporter, SearchBudget, StagePlan
    from murho.model.training.options import TrainOptions

__all__ = [
    "NARROW",
    "BestSoFar",
    "CandidateFits",
    "harm_of_shuffling",
    "idle_by_member",
    "is_better",
    "mean_and_error",
    "note_of_unread",
    "paired_difference",
    "row_differences",
    "without_idle_features",
]


NARROW = 0.05
"""Difference of two losses of trials, nats, below which later choices or longer fits may reverse the order."""


def paired_difference(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Loss of one fit less the loss of another, and its standard error, in nats: the mean of `row_differences`.

    Args:
        first: Scores of every row under the first fit, as `row_differences` takes them.
        second: The same under the second fit, for the same rows.
    """
    return mean_and_error(row_differences(first, second))


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """The mean over N independent rows, ``[N]``, and its standard error; the error of one row is infinite."""
    error = float(values.std(correction=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


def row_differences(first: Tensor, second: Tensor) -> Tensor:
    """Loss of one fit less the loss of another for every row, ``[N]``, nats.

    The loss of a row is ``(nll + crps / c) / 2``, where c is the mean CRPS of both fits: to first order, means of it
    differ as `model.training.candidates.Attempt.loss` does.

    Args:
        first: NLL and CRPS of every row under the first fit, ``[2, N]``, as
            `model.bbb.rows.held_out_row_scores` returns them; of classes the log loss alone, ``[1, N]``.
        second: The same under the second fit, for the same rows.
    """
    differences = first - second
    if len(first) == 1:
        return differences[0]
    return 0.5 * (differences[0] + differences[1] / (0.5 * (first[1] + second[1]).mean()))


def is_better(challenger: Tensor, incumbent: Tensor, *, simpler: bool) -> bool:
    """Whether a challenger replaces the incumbent.

    Args:
        challenger: NLL and CRPS of every row, ``[2, N]``, or the log loss alone, ``[1, N]``.
        incumbent: The same under the incumbent.
        simpler: Whether the challenger is the simpler of the two. It then wins unless it is worse by more than one
            standard error. Otherwise it wins only if it is better by more than one.
    """
    difference, error = paired_difference(challenger, incumbent)
    return difference <= error if simpler else difference < -error


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


SETTLING_RATE = 0.3
"""First learning rate of the settling fit, as a share of the usual one."""
SECOND_SEED = 10
"""Added to the seed for the settling fit; a fit uses its seed and the next few."""


class CandidateFits:
    """Fits candidates to one table, one after the other, within the plan and the budget of a search.

    Attributes:
        data: The table.
        options: Options of the training.
        plan: The fits that are planned; each fit takes its share of what is left.
        budget: What the fits may take, and have taken.
        attempts: All fits so far, in order, with those that failed.
        interrupted: Whether the user has interrupted the last fit that gave scores.
        failure: Why the last fit that failed did; None: none has.
    """

    def __init__(
        self,
        data: TrainingData,
        options: TrainOptions,
        plan: StagePlan,
        budget: SearchBudget,
        reporter: Reporter,
        device: str,
    ) -> None:
        """Begin without a fit.

        Args:
            data: The table.
            options: Options of the training.
            plan: The fits that are planned.
            budget: What the fits may take.
            reporter: Gets the progress.
            device: Device of the fits.
        """
        self.data, self.options, self.plan, self.budget = data, options, plan, budget
        self.attempts: list[Attempt] = []
        self.interrupted = False
        self.failure: FitError | None = None
        self._reporter, self._device = reporter, device
        self._task = task_of(data.schema.target)

    @property
    def levels_noise(self) -> bool:
        """Whether early in a fit noisy rows count less than the likelihood says (`model.training.tasks.Task`)."""
        return self._task.levels_noise

    def fit(
        self, candidate: Candidate, stage: str, initial: Mapping[str, Tensor] | None = None
    ) -> tuple[Attempt, Fit | None]:
        """Fit and score one candidate, within its share of the budget left.

        Args:
            candidate: The candidate.
            stage: ``trial``, ``full`` or ``settling``.
            initial: Tensors to start from, in a settling fit.

        Returns:
            The attempt and the fit; the fit is None if it failed.
        """
        began = time.monotonic()
        training, validation = self.data.rows(candidate.inputs, candidate.transform)
        budget = self.budget.of_fit(self.plan.time_of(stage), self.plan.time_left, began)
        title = f"{stage_title(stage)}{candidate}"
        self._reporter.stage(self.plan.begin(stage, len(self.attempts) + 1, title))
        fit_options = self._fit_options(candidate, stage, len(training), budget)
        outcome: Fit | None = None
        self._reporter.begin(title)
        try:
            try:
                outcome = fit(
                    training,
                    validation,
                    fit_options,
                    initial=initial,
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
            self.budget.spend(budget, attempt.seconds)  # how far it came is not known
            self._reporter.say(f"{title}: passed over: {error}")
        else:
            scoring = WorkModel(outcome.network.architecture, self._device.partition(":")[0])
            work = outcome.work + scoring.score(len(validation), outcome.likelihood.means)
            candidate = replace(candidate, temperature=outcome.temperature)
            nll, *crps = (float(scores.mean()) for scores in rows)
            attempt = Attempt(candidate, stage, nll, crps[0] if crps else None, seconds, rows, outcome.history)
            self.budget.spend(work, seconds, max(0.0, seconds - outcome.history[-1].seconds))
            self._reporter.scored(attempt)
            self.interrupted = held_back.came or outcome.stopped == "interrupted"
        self.attempts.append(attempt)
        give_back()
        return attempt, outcome

    def judging(self, candidate: Candidate, outcome: Fit, validation: Rows) -> tuple[Tensor, RowScorer]:
        """Targets of the validation rows, ``[N]``, and what scores a fit of the candidate on them."""
        data = self.data
        targets = torch.from_numpy(data.targets[data.split.validation])
        spread = float(validation.mean((targets - validation.mean(targets)).square()).sqrt())
        return targets, self._task.scorer(outcome.likelihood, data.standardisation(candidate.transform), spread)

    def row_scores(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row: NLL and CRPS ``[2, N]``, or the log loss alone ``[1, N]``."""
        targets, scorer = self.judging(candidate, outcome, validation)
        scores = held_out_row_scores(outcome.network, validation, targets, scorer, seed=self.options.seed)
        return scores[: self._task.scores_in_loss]

    def _fit_options(self, candidate: Candidate, stage: str, rows: int, budget: float) -> FitOptions:
        """The options of a fit, from the number of its training rows, N, and its budget."""
        options, settling = self.options, stage == SETTLING
        standardisation = self.data.standardisation(candidate.transform)
        batch_size = options.batch_size or default_batch_size(rows)
        minibatches = math.ceil(rows / batch_size)
        epochs = epochs_of(stage, minibatches, options.epochs)
        members = folds_of(options.members) if stage == TRIAL and not self.plan.few else options.members
        return FitOptions(
            prior=options.make_prior(),
            noise=candidate.noise,
            noise_sigma=None if options.noise_sigma is None else options.noise_sigma / standardisation.scale,
            noise_components=options.noise_components,
            classes=self._task.class_count,
            standardisation=standardisation,
            hidden=candidate.hidden,
            activation=options.activation,
            skip=options.skip and bool(candidate.hidden),
            members=members,
            reads=self.data.reads(candidate.inputs, members),
            kl_weights=options.kl_weights,
            draws_per_step=options.draws_per_step,
            learning_rate=options.learning_rate * (SETTLING_RATE if settling else 1.0),
            batch_size=batch_size,
            epochs=epochs,
            warm_up_steps=0 if settling else round(warm_up_share(rows) * epochs * minibatches),
            temperature=1.0 if candidate.temperature is None else candidate.temperature,
            temperature_path=candidate.temperature is None,
            beta_nll=not settling,
            patience=options.patience,
            seed=options.seed + (SECOND_SEED if settling else 0),
            budget=budget,
            budget_by_clock=self.budget.by_clock,
        )


def _finite(rows: Tensor) -> Tensor:
    if not math.isfinite(float(rows.sum())):
        raise FitError("the predictions of the fit are not finite; use a smaller --learning-rate")
    return rows


ROWS_A_FEATURE = 50
"""Rows for each feature from which no feature is looked at: then idle ones cost little, and trials take time."""
LEAST_HARM = (0.5, 1.0)
"""Harm of shuffling below which a feature is idle: first the lower one. The first trial among many idle features has
hardly learned some that act together, and at 1 these were lost."""
LAST_HARM = 1.5
"""Harm below which a feature is idle at last, if others have been left out."""
FEWEST_SHUFFLES, MOST_SHUFFLES = 2, 10
"""Shuffles of a feature: their mean has less of the noise of a single shuffle."""
SHUFFLES = 300
"""Most shuffles in all, as long as each feature has one."""
CLEAR = 2.0
"""Harm from which a feature is not shuffled any more."""
SHOWN_NAMES = 10
"""Names of features in a note."""


def without_idle_features(fits: CandidateFits, best: BestSoFar) -> Candidate:
    """Try the best candidate so far without its idle features, if features are many, as long as this makes it better.

    Args:
        fits: Makes the fits.
        best: Has a trial; gets the better ones.

    Returns:
        The best candidate.
    """
    if len(fits.data.split.training) < ROWS_A_FEATURE * len(fits.data.schema.features):
        elimination = _Elimination(fits, best)
        for least in LEAST_HARM:
            while elimination.leave_out(least, lambda difference, error: difference < -max(error, NARROW)):
                pass
        if best.attempt.candidate.unread:
            elimination.leave_out(LAST_HARM, lambda difference, error: difference <= error)
    return best.attempt.candidate


class _Elimination:
    """Trials of the best candidate so far without further features; each best one is judged once."""

    def __init__(self, fits: CandidateFits, best: BestSoFar) -> None:
        self._fits, self._best = fits, best
        self._judged: Attempt | None = None
        self._harm: dict[str, Tensor] = {}

    def leave_out(self, least: float, is_kept: Callable[[float, float], bool]) -> bool:
        """Try the best candidate without the features of too little harm; returns whether the trial is kept.

        Args:
            least: Harm of a feature that stays, standard errors.
            is_kept: Whether a trial is kept whose loss differs from the best one's by so much, with a standard error.
        """
        fits, best = self._fits, self._best
        if best.fit is None or fits.interrupted or fits.budget.late:
            return False
        incumbent = best.attempt
        if self._judged is not incumbent:
            self._judged, self._harm = incumbent, harm_of_shuffling(fits, incumbent, best.fit)
        _, rows = fits.data.rows(incumbent.candidate.inputs, incumbent.candidate.transform)
        idle = idle_by_member(self._harm, rows, fits.options.members, least)
        candidate = _without(fits, incumbent.candidate, idle)
        if candidate.unread in {attempt.candidate.unread for attempt in fits.attempts}:
            return False
        fits.plan.add(TRIAL)
        attempt, outcome = fits.fit(candidate, TRIAL)
        if outcome is None or attempt.rows is None or incumbent.rows is None:
            return False
        kept = is_kept(*paired_difference(attempt.rows, incumbent.rows))
        if kept:
            best.replace(attempt, outcome)
        return kept


def harm_of_shuffling(fits: CandidateFits, attempt: Attempt, outcome: Fit) -> dict[str, Tensor]:
    """How much worse the answers of a fit are for each held-out row, ``[N]``, where a feature is shuffled, by its name.

    Each feature's own inputs are shuffled together. Those for the distance to the training rows stay as they are, so
    that a shuffled row does not count as unlike the others.

    Args:
        fits: Has made the fit.
        attempt: Its candidate and scores.
        outcome: The fit.
    """
    began = time.monotonic()
    candidate, data = attempt.candidate, fits.data
    _, rows = data.rows(candidate.inputs, candidate.transform)
    columns = {
        name: where for name, where in data.encoder(candidate.inputs).columns_of.items() if where.stop > where.start
    }
    scores = fits.row_scores(candidate, outcome, rows)
    most = max(1, min(MOST_SHUFFLES, SHUFFLES // len(columns)))
    generator = torch.Generator().manual_seed(fits.options.seed)
    harm: dict[str, Tensor] = {}
    scorings = 1
    for name, where in columns.items():
        shuffled = torch.zeros_like(scores)
        for number in range(1, most + 1):
            features = rows.features.clone()
            features[:, where] = features[torch.randperm(len(rows), generator=generator)][:, where]
            shuffled += fits.row_scores(candidate, outcome, replace(rows, features=features))
            scorings += 1
            harm[name] = row_differences(shuffled / number, scores)
            if number >= FEWEST_SHUFFLES and _in_errors(harm[name]) > CLEAR:
                break
    scoring = WorkModel(outcome.network.architecture).score(len(rows), outcome.likelihood.means)
    fits.budget.spend(scorings * scoring, time.monotonic() - began)
    return harm


def idle_by_member(harm: Mapping[str, Tensor], rows: Rows, members: int, least: float) -> list[set[str]]:
    """The features that are idle for each member, by the rows that it learns from.

    Args:
        harm: What `harm_of_shuffling` returned.
        rows: The held-out rows, N.
        members: M.
        least: Harm of a feature that is not idle, standard errors of the mean over the rows.

    Returns:
        M sets of names; an empty one for a member that learns from no held-out row.
    """
    seen = rows.seen_by(members)
    counts = seen.counts if len(seen.counts) == members else seen.counts * members
    found = []
    for numbers, count in zip(seen.rows.expand(members, -1), counts, strict=True):
        own = numbers[:count]
        idle = {name for name, of_rows in harm.items() if count > 1 and _in_errors(of_rows[own]) <= least}
        found.append(idle)
    return found


def note_of_unread(unread: Sequence[str], features: int) -> str:
    """What to tell people about features that answers do not depend on.

    Args:
        unread: Their names.
        features: How many features the table has.
    """
    shown = ", ".join(map(repr, unread[:SHOWN_NAMES])) + (", …" if len(unread) > SHOWN_NAMES else "")
    return (
        f"answers do not depend on {len(unread)} of {features} features, which told nothing on held-out rows: {shown} "
        "(--idle-features keep: they do)"
    )


def _without(fits: CandidateFits, candidate: Candidate, idle: Sequence[set[str]]) -> Candidate:
    """The candidate whose members do without further features; a member that would read none stays as it was."""
    names = [feature.name for feature in fits.data.schema.features]
    unread = []
    for member, found in enumerate(idle):
        before = set(candidate.unread[member]) if candidate.unread else set()
        gone = before if found | before >= set(names) else found | before
        unread.append(tuple(name for name in names if name in gone))
    return replace(candidate, unread=tuple(unread) if any(unread) else ())


def _in_errors(values: Tensor) -> float:
    """The mean over rows in standard errors of it; 0 where all are 0."""
    mean, error = mean_and_error(values)
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0
