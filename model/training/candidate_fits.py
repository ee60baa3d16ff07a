"""`CandidateFits`: the fits of a search, each of one candidate in one stage, and their scores on held-out rows."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from murho.model.data.splits import folds_of
from murho.model.errors import FitError
from murho.model.fitting.cross_fit_rows import held_out_row_scores
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_types import FitOptions, default_batch_size
from murho.model.fitting.work import WorkModel
from murho.model.runtime.free_memory import give_back
from murho.model.runtime.interrupts import interrupts_held_back
from murho.model.training.candidates import Attempt, stage_title
from murho.model.training.stages import SETTLING, TRIAL, epochs_of, warm_up_share
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.fitting.cross_fit_rows import Rows
    from murho.model.fitting.fit_types import Fit
    from murho.model.fitting.row_scorers import RowScorer
    from murho.model.fitting.training_data import TrainingData
    from murho.model.training.candidates import Candidate, Reporter
    from murho.model.training.options import TrainOptions
    from murho.model.training.search_budget import SearchBudget
    from murho.model.training.stages import StagePlan

__all__ = ["CandidateFits"]

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
        """Whether early in a fit noisy rows count less than the likelihood says (`model.training.task.Task`)."""
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
