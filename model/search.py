"""Which transform, observation model, encoding and temperature: chosen on rows that the fit has not seen.

One choice after the other is tried by short fits; two full fits with the choices made follow, each with half of the
members. What rows held out like best of all of them, and of the two side by side, is kept. What the user has fixed is
not searched.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from model.candidates import Candidate, Found, Tried
from model.clock import Clock
from model.errors import FitError
from model.fitting import FitOptions
from model.resuming import fit_or_resume
from model.snapshots import Snapshots
from model.splits import FOLDS, folds_of
from model.stacking import stacked
from model.validation import held_out_scores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from model.candidates import Reporter
    from model.fitting import Fit
    from model.options import TrainOptions
    from model.preparation import Preparation
    from model.validation import Rows

__all__ = ["default_budget", "search"]

HIDDEN = (64, 64)
STEPS = 5_000
FEWEST_EPOCHS = 40
FEW_ROWS = 1_000
"""Below it the prior weighs much a row, and prunes units before they have learned unless its factor rises slowly."""
WARM_UP_SHARE, WARM_UP_SHARE_OF_FEW = 0.2, 0.7
"""Share of a fit over which the KL's factor rises. From many rows a fit learns by heart as long as it is small."""
TRIAL_EFFORT = 0.25
"""Steps of a trial as a share of those of a full fit. A trial has one member for each fold of the rows."""
TEMPERATURES = (1.0, 0.3, 0.1, 0.03)
"""1 is the posterior of the exact free energy; below it the data weigh more than they would if the model were true."""
MUCH_BETTER = 0.1
"""By how much a loss must fall from trial to full fit for the next one to be colder, nats."""
FEWEST_ROWS_FOR_A_MIXTURE = 200
PATIENCE = 2.0
"""How many times longer than told a search may take where other programs have the processor."""
SECOND_SEED = 10
"""What is added to the seed of the second full fit; a fit uses its seed and the next few."""


def default_budget(rows: int) -> float:
    """Seconds that a search may take unless told otherwise.

    50 up to 1,000 rows, 330 from 10,000 to 50,000, in proportion to the rows beyond, 900 at most; of processor time,
    see `model.clock`.
    """
    small = 50.0 + 280.0 * min(1.0, max(0.0, (rows - 1_000) / 9_000))
    return min(900.0, small * max(1.0, rows / 50_000))


def warm_up_share(rows: int) -> float:
    """Over which share of its steps a fit of so many rows lets the KL's factor rise."""
    return WARM_UP_SHARE_OF_FEW if rows < FEW_ROWS else WARM_UP_SHARE


@dataclass(frozen=True, slots=True)
class _Lever:
    """A field of a candidate, and the values to try beside the one that it has.

    Attributes:
        name: The field.
        others: The values.
        otherwise: Values to try instead, once the first of the others has gained nothing.
    """

    name: str
    others: tuple[Any, ...]
    otherwise: tuple[Any, ...] = ()


def _next_temperature(temperature: float, trial: float, full: float) -> float:
    """For the second full fit, from the losses of the best trial and of the first full fit at that temperature.

    One that is no better has learned its rows by heart: the prior should weigh more. Where it is much better, trials of
    a quarter of its steps had only begun to learn, and the prior that was best for them should weigh less.
    """
    warmer = [value for value in TEMPERATURES if value > temperature]
    colder = [value for value in TEMPERATURES if value < temperature]
    if full >= trial and warmer:
        return warmer[-1]
    if full < trial - MUCH_BETTER and colder:
        return colder[0]
    return temperature


class _Search:
    def __init__(
        self,
        preparation: Preparation,
        options: TrainOptions,
        reporter: Reporter,
        device: str,
        snapshots: Snapshots,
    ) -> None:
        self.preparation, self.options, self.reporter, self.device = preparation, options, reporter, device
        self.snapshots = snapshots
        self.tried: list[Tried] = []
        # A budget that somebody has set is one of the clock on the wall.
        self.patience = 1.0 if options.budget else PATIENCE
        self.budget = options.budget or default_budget(len(preparation.split.training))
        self.clock = Clock(snapshots.carried, patience=self.patience)
        self.effort_left = 1.0
        self.interrupted = False
        self.best: Tried
        self.best_fit: Fit | None = None
        self.latest: Fit | None = None
        self.full: list[Fit] = []
        self.failure: FitError | None = None
        # Two judges for each row need ten members, two for each fold.
        self.parts = 2 if options.members % (2 * FOLDS) == 0 else 1

    def fit(self, candidate: Candidate, effort: float, seed: int) -> Tried:
        """Fits and judges one; it may take its share of the time left."""
        name = f"{candidate!r}, effort {effort:g}, seed {seed}"
        began = time.monotonic() - self.snapshots.spent(name)
        options, preparation = self.options, self.preparation
        training, validation = preparation.rows(candidate.encoding, candidate.transform)
        standardised = preparation.standardised(candidate.transform)
        batch_size = options.batch_size or int(np.clip(len(training) // 8, 32, 512))
        minibatches = math.ceil(len(training) / batch_size)
        epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
        epochs = max(1, round(effort * epochs))
        left = self.budget - self.clock.seconds() + self.snapshots.spent(name)
        budget = max(0.1, left) * effort / max(effort, self.effort_left)
        self.effort_left -= effort
        fit_options = FitOptions(
            prior=options.make_prior(),
            noise=candidate.noise,
            noise_sigma=None if options.noise_sigma is None else options.noise_sigma / standardised.scale,
            noise_components=options.noise_components,
            hidden=candidate.hidden,
            activation=options.activation,
            skip=options.skip and bool(candidate.hidden),
            members=options.members // self.parts if effort == 1.0 else folds_of(options.members),
            kl_weights=options.kl_weights,
            draws_per_step=options.draws_per_step,
            optimiser=options.optimiser,
            learning_rate=options.learning_rate,
            batch_size=batch_size,
            epochs=epochs,
            warm_up_steps=round(warm_up_share(len(training)) * epochs * minibatches),
            temperature=candidate.temperature,
            patience=options.patience,
            seed=seed,
            budget=budget,
            patience_of_budget=self.patience,
        )

        outcome: Fit | None = None
        try:
            judged = fit_or_resume(
                self.snapshots,
                name,
                training,
                validation,
                fit_options,
                lambda outcome: self.judge(candidate, outcome, validation),
                title=("" if effort == 1.0 else "trial: ") + str(candidate),
                reporter=self.reporter,
                device=torch.device(self.device),
            )
        except FitError as error:
            self.failure = error
            tried = Tried(candidate, effort, math.inf, math.inf, time.monotonic() - began)
            self.reporter.say(f"{candidate}: passed over: {error}")
        else:
            outcome = judged.fit
            tried = Tried(candidate, effort, judged.nll, judged.crps, judged.seconds)
            self.reporter.say(
                f"{candidate}: validation NLL {tried.nll:.3f} nats, CRPS {tried.crps:.4g} ({tried.seconds:.1f} s)"
            )
            self.interrupted = outcome.stopped == "interrupted"
            if effort == 1.0:
                self.full.append(outcome)
        self.latest = outcome
        self._compare(tried, outcome)
        return tried

    def judge(self, candidate: Candidate, outcome: Fit, validation: Rows) -> tuple[float, float]:
        """NLL and CRPS on the rows held out."""
        preparation = self.preparation
        targets = torch.from_numpy(preparation.targets[preparation.split.validation])
        standardised, seed = preparation.standardised(candidate.transform), self.options.seed
        return held_out_scores(
            outcome.network, outcome.likelihood, validation, targets, standardised, seed=seed
        )

    def _compare(self, tried: Tried, outcome: Fit | None) -> None:
        self.tried.append(tried)
        if len(self.tried) == 1 or tried.loss < self.best.loss:
            self.best, self.best_fit = tried, outcome

    def run(self) -> Found:
        """Trials, then full fits; an interruption ends the search. The best of all fits is kept."""
        chosen, seed = self._base(), self.options.seed
        levers = list(self._levers())
        trials = sum(len(lever.others) for lever in levers) + 1 if levers else 0
        full_fits = 1.0 if self.parts == 1 and self.options.temperature is not None else 2.0
        twin = TRIAL_EFFORT if self.parts == 2 and levers else 0.0
        self.effort_left = full_fits + TRIAL_EFFORT * trials + twin
        if levers:
            self.fit(chosen, TRIAL_EFFORT, seed)
            for lever in levers:
                values = list(lever.others)
                while values and not self.interrupted:
                    value, before = values.pop(0), self.best.loss
                    tried = self.fit(replace(chosen, **{lever.name: value}), TRIAL_EFFORT, seed)
                    if tried.loss >= before and lever.otherwise:
                        values = list(lever.otherwise) if value == lever.others[0] else []
                chosen = self.best.candidate
        if not self.interrupted:
            self._fit_in_full(chosen)
        if not self.interrupted and self.parts == 2 and self.best.effort == TRIAL_EFFORT:
            self._give_a_twin()
        if self.best_fit is None:
            raise FitError(f"{self.failure}{self.snapshots.advice(self.options.learning_rate)}")
        return Found(self.best.candidate, self.best_fit, tuple(self.tried), self.interrupted)

    def _fit_in_full(self, chosen: Candidate) -> None:
        """Two full fits and what they make side by side; or one, where the members can't be shared out."""
        seed, trial = self.options.seed, self.best if self.tried else None
        first = self.fit(chosen, 1.0, seed)
        second = chosen
        if self.options.temperature is None and trial is not None:
            second = replace(
                chosen, temperature=_next_temperature(chosen.temperature, trial.loss, first.loss)
            )
        if not self.interrupted and (second.temperature > chosen.temperature or self.parts == 2):
            self.fit(second, 1.0, seed + SECOND_SEED)
        if self.parts == 2 and len(self.full) == 2:
            self._put_side_by_side(second, self.full, 2.0)

    def _give_a_twin(self) -> None:
        """The same again with another seed, of a trial that no full fit has surpassed: then two judge each row."""
        candidate, fits = self.best.candidate, [self.best_fit]
        self.fit(candidate, TRIAL_EFFORT, self.options.seed + SECOND_SEED)
        self._put_side_by_side(candidate, [*fits, self.latest], 2 * TRIAL_EFFORT)

    def _put_side_by_side(self, candidate: Candidate, fits: Sequence[Fit | None], effort: float) -> None:
        """Judges two fits as one; unless one has failed or was interrupted."""
        parts = [part for part in fits if part is not None]
        if len(parts) < len(fits) or self.interrupted:
            return
        began = time.monotonic()
        both = stacked(parts)
        _, validation = self.preparation.rows(candidate.encoding, candidate.transform)
        nll, crps = self.judge(candidate, both, validation)
        self.reporter.say(f"both together: validation NLL {nll:.3f} nats, CRPS {crps:.4g}")
        self._compare(Tried(candidate, effort, nll, crps, time.monotonic() - began), both)

    def _base(self) -> Candidate:
        """Where the search starts."""
        options = self.options
        return Candidate(
            noise="heteroscedastic" if options.noise == "auto" else options.noise,
            transform="none" if options.transform == "auto" else options.transform,
            encoding="standard" if options.encoding == "auto" else options.encoding,
            hidden=HIDDEN if options.hidden is None else options.hidden,
            temperature=TEMPERATURES[1] if options.temperature is None else options.temperature,
        )

    def _levers(self) -> Iterator[_Lever]:
        """What is still open."""
        options, preparation = self.options, self.preparation
        # Noise that is known in the target's unit is not the same at all logarithms.
        if options.transform == "auto" and options.noise != "fixed" and preparation.fits("log"):
            yield _Lever("transform", ("log",))
        if options.noise == "auto":
            few = len(preparation.split.training) < FEWEST_ROWS_FOR_A_MIXTURE
            yield _Lever("noise", ("homoscedastic",) if few else ("mixture",))
        # After the noise: many inputs and a flexible density together would learn a small table by heart.
        bins = preparation.encoder("piecewise").width - preparation.encoder("standard").width
        if options.encoding == "auto" and bins:
            yield _Lever("encoding", ("piecewise",))
        if options.temperature is None:
            yield _Lever("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


def search(
    preparation: Preparation,
    options: TrainOptions,
    reporter: Reporter,
    device: str = "cpu",
    snapshots: Snapshots | None = None,
) -> Found:
    """Fits candidates and keeps the best; one whose fit becomes non-finite is passed over, and that is said.

    Args:
        preparation: The table.
        options: Validated options; what they fix is not searched.
        reporter: Is told of the progress.
        device: Where to fit.
        snapshots: What an interrupted search has left, and where this one leaves its own.

    Raises:
        FitError: Every fit became non-finite.
    """
    return _Search(preparation, options, reporter, device, snapshots or Snapshots()).run()
