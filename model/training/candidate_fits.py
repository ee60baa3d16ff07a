"""`CandidateFits`: the fits of a search with their scores on held-out rows, and the best so far."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from murho.model.bbb.fit import FitOptions, WorkModel, default_batch_size, fit
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.encoding.encoder import MIXED
from murho.model.errors import FitError
from murho.model.runtime import give_back, interrupts_held_back
from murho.model.tables.splits import folds_of
from murho.model.training.candidates import SETTLING, TRIAL, Attempt, epochs_of, stage_title, warm_up_share
from murho.model.training.scoring import DRAWS, extrapolated, is_better, judge_scores
from murho.model.training.tasks import is_simpler, task_of

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.fit import Fit
    from murho.model.bbb.likelihood import Likelihood
    from murho.model.bbb.rows import Rows
    from murho.model.training.candidates import Candidate, Reporter, SearchPlan
    from murho.model.training.options import TrainOptions
    from murho.model.training.rows import TrainingData

__all__ = [
    "BestSoFar",
    "CandidateFits",
    "fit_options",
]


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
        failure: Why the last fit that failed did; None: none has.
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
        self.failure: FitError | None = None
        self._reporter, self._device = reporter, device
        self.task = task_of(data.schema.target)

    def fit(self, candidate: Candidate, stage: str, start: Fit | None = None) -> tuple[Attempt, Fit | None]:
        """Fit and score one candidate, within its share of the budget left.

        Args:
            candidate: The candidate.
            stage: ``trial``, ``full`` or ``settling``.
            start: The fit from whose parameters a settling fit goes on; it is not changed.

        Returns:
            The attempt and the fit; the fit is None if it failed.
        """
        began = time.monotonic()
        training, validation = self.data.rows(candidate.inputs, candidate.transform)
        title = f"{stage_title(stage)}{candidate}"
        part, budget = self.plan.begin(stage, len(self.attempts) + 1, title, began)
        self._reporter.stage(part)
        if start is None:
            network, likelihood = self._initial(candidate, stage)
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
            self.plan.spend(budget, attempt.seconds)  # how far it came is not known
            self._reporter.say(f"{title}: passed over: {error}")
        else:
            work = outcome.work + self.work_of_scoring(outcome, len(validation))
            candidate = replace(candidate, temperature=outcome.temperature)
            nll, *crps = (float(scores.mean()) for scores in rows)
            attempt = Attempt(candidate, stage, nll, crps[0] if crps else None, seconds, rows, outcome.history)
            self.plan.spend(work, seconds, max(0.0, seconds - outcome.history[-1].seconds))
            self._reporter.scored(attempt)
            self.interrupted = held_back.came or outcome.stopped == "interrupted"
        self.attempts.append(attempt)
        give_back()
        return attempt, outcome

    def judge_scores(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row under each judge and under all, ``[J + 1, 2, N]`` (`judge_scores`)."""
        data = self.data
        targets = torch.from_numpy(data.targets[data.split.validation])
        spread = float(validation.mean((targets - validation.mean(targets)).square()).sqrt())
        scorer = self.task.scorer(outcome.likelihood, data.standardisation(candidate.transform), spread)
        return judge_scores(outcome.network, validation, targets, scorer, seed=self.options.seed)

    def row_scores(self, candidate: Candidate, outcome: Fit, validation: Rows) -> Tensor:
        """Scores of every validation row: NLL and CRPS ``[2, N]``, or the log loss alone ``[1, N]``."""
        scores = self.judge_scores(candidate, outcome, validation)
        return extrapolated(scores, outcome.network, validation)[: self.task.scores_in_loss]

    def work_of_scoring(self, outcome: Fit, rows: int) -> float:
        """Reference seconds of `row_scores`."""
        work = WorkModel(outcome.network.architecture, self._device.partition(":")[0])
        return work.score(rows, DRAWS, outcome.likelihood.means)

    def _initial(self, candidate: Candidate, stage: str) -> tuple[BayesianNetwork, Likelihood]:
        """The network and the observation model of a candidate, before a fit."""
        data, options = self.data, self.options
        members = folds_of(options.members) if stage == TRIAL and not self.plan.few else options.members
        standardisation = data.standardisation(candidate.transform)
        likelihood = self.task.likelihood_spec(candidate.noise, data, options, standardisation.scale).make(members)
        likelihood.learn_target(standardisation)
        architecture = Architecture(
            inputs=data.encoder(candidate.inputs).width,
            hidden=candidate.hidden,
            outputs=likelihood.outputs,
            activation=options.activation,
            members=members,
            skip=options.skip and bool(candidate.hidden),
        )
        start, reads = torch.Generator().manual_seed(options.seed), data.reads(candidate.inputs, members)
        alike = reads is None or candidate.encoding != MIXED
        return BayesianNetwork(architecture, start, likelihood.initial_outputs, reads, alike=alike), likelihood

    def _options_of(self, candidate: Candidate, stage: str, rows: int, budget: float) -> FitOptions:
        """The options of a fit, from the number of its training rows, N, and its budget."""
        options, settling = self.options, stage == SETTLING
        minibatches = math.ceil(rows / (options.batch_size or default_batch_size(rows)))
        epochs = epochs_of(stage, minibatches, options.epochs)
        return fit_options(
            options,
            rows,
            rate=SETTLING_RATE if settling else 1.0,
            epochs=epochs,
            warm_up_steps=0 if settling else round(warm_up_share(rows) * epochs * minibatches),
            temperature=candidate.temperature,
            patience=options.patience,
            seed=options.seed + (SECOND_SEED if settling else 0),
            budget=budget,
            budget_by_clock=self.plan.by_clock,
        )


def _finite(rows: Tensor) -> Tensor:
    if not math.isfinite(float(rows.sum())):
        raise FitError("the predictions of the fit are not finite; use a smaller --learning-rate")
    return rows
