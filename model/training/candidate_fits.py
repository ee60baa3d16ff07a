"""Fits of candidates: from a candidate to a network, its fit, and its scores on held-out rows."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from murho.model.bbb.fit import Fit, WorkModel, default_batch_size, fit
from murho.model.bbb.likelihood import ClassLikelihood, Likelihood, NumericLikelihood
from murho.model.bbb.line import start_at_line
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.schedule import FitOptions
from murho.model.encoding.encoder import MIXED
from murho.model.errors import FitError
from murho.model.runtime import interrupts_held_back, trim_heap
from murho.model.seeds import seed_for
from murho.model.tables.splits import folds_of
from murho.model.training.candidates import (
    FULL,
    LONGER,
    SETTLING,
    TRIAL,
    WARM_UP_SHARE,
    WARM_UP_SHARE_OF_FEW,
    Attempt,
    Candidate,
    SearchPlan,
    epochs_of,
    stage_title,
)
from murho.model.training.scoring import DRAWS, ClassScorer, NumberScorer, extrapolate, judge_scores

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.fit_rows import Rows
    from murho.model.training.context import Training
    from murho.model.training.options import TrainOptions

RATE_OF_STAGE = {TRIAL: 1.0, FULL: 1.0, SETTLING: 0.3, LONGER: 0.5}
"""First learning rate of each stage, as a share of the usual one."""


def minibatches_of(options: TrainOptions, rows: int) -> int:
    """Minibatches of an epoch over N training rows, T."""
    return math.ceil(rows / (options.batch_size or default_batch_size(rows)))


def fit_options(options: TrainOptions, rows: int, *, rate: float = 1.0, **others: Any) -> FitOptions:
    """Return the options of a fit, from those of a training.

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
        data: The training.
        options: Its options.
        plan: The fits that are planned; each fit takes its share of what is left.
        attempts: All fits so far, in order, with those that failed.
        interrupted: Whether the user has interrupted the last fit that gave scores.
        newest: That fit, which nobody may have kept yet where an interruption comes next; None: there was none.
        failure: Why the last fit that failed did; None: none has.
        of_numbers: Whether the target is a number. Early in such a fit noisy rows pull as hard as others (``beta`` of
            `model.bbb.likelihood.Likelihood.reweight_mean_gradient`), which is not the gradient of the free energy.
    """

    def __init__(
        self,
        training: Training,
        plan: SearchPlan,
    ) -> None:
        """Begin without a fit.

        Args:
            training: The training.
            plan: The fits that are planned, and what they may take.
        """
        self.data, self.options, self.plan = training, training.options, plan
        self.attempts: list[Attempt] = []
        self.interrupted = False
        self.newest: tuple[Attempt, Fit] | None = None
        self.failure: FitError | None = None
        self._reporter, self._device = training.reporter, training.device
        self.of_numbers = training.schema.target.classes is None

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
            self._reporter.show_scores(attempt)
            self.interrupted = held_back.came or outcome.stopped == "interrupted"
        self.attempts.append(attempt)
        trim_heap()
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
        return extrapolate(scores, outcome.network, validation)

    def work_of_scoring(self, outcome: Fit, rows: int) -> float:
        """Return reference seconds of `row_scores`."""
        work = WorkModel(outcome.network.architecture, self._device.partition(":")[0])
        return work.score(rows, DRAWS, outcome.likelihood.means)

    def _initial(self, candidate: Candidate, stage: str, training: Rows) -> tuple[BayesianNetwork, Likelihood]:
        """Return the network and the observation model of a candidate, before a fit."""
        data, options = self.data, self.options
        members = folds_of(options.members) if stage == TRIAL and not self.plan.few else options.members
        likelihood = data.likelihood_spec(candidate.noise, candidate.transform).make(members)
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
        if data.starts_at_line and self.of_numbers:
            start_at_line(network, likelihood.means, training)
        return network, likelihood

    def _options_of(self, candidate: Candidate, stage: str, rows: int, budget: float) -> FitOptions:
        """Return the options of a fit, from the number of its training rows, N, and its budget."""
        options, goes_on = self.options, stage in (SETTLING, LONGER)
        minibatches = minibatches_of(options, rows)
        epochs = epochs_of(stage, minibatches, options.epochs)
        warm_up = 0.0 if goes_on else WARM_UP_SHARE_OF_FEW if self.plan.few else WARM_UP_SHARE
        return fit_options(
            options,
            rows,
            rate=RATE_OF_STAGE[stage],
            epochs=epochs,
            warm_up_steps=round(warm_up * epochs * minibatches),
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
