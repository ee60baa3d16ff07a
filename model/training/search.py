"""Which transform, observation model, encoding and temperature: chosen on rows that the fit has not seen.

One choice after the other is tried by short fits with a member for each fold; one that was made by a narrow margin is
made again once the later ones are known. A full fit with all members follows, and a shorter one that goes on from
there; the better one is kept, by what it would score with all members, see
`model.distributions.ensemble_extrapolation`. What the user has fixed is not searched.

From `FEW_ROWS` rows on the KL's factor, the temperature, rises along each fit: members first learn much by heart, and
are then held back more and more. The best parameters on the way are kept, and settle at their temperature. A smaller
table takes too many steps to follow: temperatures are tried like all else, and the shorter fit takes a neighbouring
one.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.data.splits import folds_of
from murho.model.errors import FitError
from murho.model.fitting.cross_fit_rows import held_out_scores
from murho.model.fitting.fit import FitOptions
from murho.model.networks.named_tensors import learned_tensors
from murho.model.runtime.time_budget import Clock
from murho.model.training.candidates import Candidate, Found, Tried
from murho.model.training.resuming import fit_or_resume
from murho.model.training.search_space import TEMPERATURES, Lever, next_temperature
from murho.model.training.snapshots import Snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from murho.model.encoding.whitening import Whitening
    from murho.model.fitting.cross_fit_rows import Rows
    from murho.model.fitting.fit import Fit
    from murho.model.fitting.training_data import Preparation
    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions

__all__ = ["default_budget", "search"]

HIDDEN = (64, 64)
STEPS = 5_000
FEWEST_EPOCHS = 40
FEW_ROWS = 1_000
WARM_UP_SHARE, WARM_UP_SHARE_OF_FEW = 0.2, 0.7
"""Share of a fit over which the KL's factor rises to a temperature that is fixed. Among few rows the prior weighs much,
and prunes units before they have learned unless its factor rises slowly."""
TRIAL, FULL, SETTLING = "trial", "full", "settling"
STEPS_OF_STAGE = {TRIAL: 0.25, FULL: 1.0, SETTLING: 0.25}
"""Shares of `STEPS`."""
TIME_OF_STAGE = {TRIAL: 0.15, FULL: 1.0, SETTLING: 0.25}
"""Time relative to that of a full fit. A trial has half as many members, which take more than half of the time."""
SETTLING_RATE = 0.3
"""First learning rate of a fit that settles, as a share of the usual one."""
FEWEST_ROWS_FOR_A_MIXTURE = 200
WELL_HIDDEN = 0.01
"""Variance of a direction among standardised numbers below which whitening is worth a trial: others are seen anyway."""
NARROW = 0.05
"""Difference of two losses, nats, that later choices may turn round."""
PATIENCE = 2.0
"""How many times longer than told a search may take where other programs have the processor."""
SECOND_SEED = 10
"""What is added to the seed of the fit that settles; a fit uses its seed and the next few."""


def default_budget(rows: int) -> float:
    """Seconds that a search may take unless told otherwise.

    48 up to 1,000 rows, 290 from 10,000 to 50,000, in proportion to the rows beyond, 900 at most; of processor time,
    see `model.runtime.time_budget`. Judging and calibration come on top, up to a minute.
    """
    small = 48.0 + 242.0 * min(1.0, max(0.0, (rows - 1_000) / 9_000))
    return min(900.0, small * max(1.0, rows / 50_000))


def warm_up_share(rows: int) -> float:
    """Over which share of its steps a fit of so many rows lets the KL's factor rise."""
    return WARM_UP_SHARE_OF_FEW if rows < FEW_ROWS else WARM_UP_SHARE


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
        self.time_left = 1.0
        self.narrow: dict[str, Candidate] = {}
        self.interrupted = False
        self.best: Tried
        self.best_fit: Fit | None = None
        self.failure: FitError | None = None

    def fit(
        self, candidate: Candidate, stage: str, initial: Mapping[str, Tensor] | None = None
    ) -> tuple[Tried, Fit | None]:
        """Fits and judges one; it may take its share of the time left. None: the fit failed."""
        name = f"{candidate!r}, {stage}"
        began = time.monotonic() - self.snapshots.spent(name)
        options, preparation = self.options, self.preparation
        training, validation = preparation.rows(
            candidate.encoding, candidate.transform, whitened=candidate.whitened
        )
        standardised = preparation.standardised(candidate.transform)
        batch_size = options.batch_size or int(np.clip(len(training) // 8, 32, 512))
        minibatches = math.ceil(len(training) / batch_size)
        epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
        epochs = max(1, round(STEPS_OF_STAGE[stage] * epochs))
        left = self.budget - self.clock.seconds() + self.snapshots.spent(name)
        share = TIME_OF_STAGE[stage]
        budget = max(0.1, left) * share / max(share, self.time_left)
        self.time_left -= share
        settling = initial is not None
        fit_options = FitOptions(
            prior=options.make_prior(),
            noise=candidate.noise,
            noise_sigma=None if options.noise_sigma is None else options.noise_sigma / standardised.scale,
            noise_components=options.noise_components,
            hidden=candidate.hidden,
            activation=options.activation,
            skip=options.skip and bool(candidate.hidden),
            members=folds_of(options.members) if stage == TRIAL else options.members,
            kl_weights=options.kl_weights,
            draws_per_step=options.draws_per_step,
            optimiser=options.optimiser,
            learning_rate=options.learning_rate * (SETTLING_RATE if settling else 1.0),
            batch_size=batch_size,
            epochs=epochs,
            warm_up_steps=0 if settling else round(warm_up_share(len(training)) * epochs * minibatches),
            temperature=1.0 if candidate.temperature is None else candidate.temperature,
            rising=candidate.temperature is None,
            levelled=not settling,
            patience=options.patience,
            seed=options.seed + (SECOND_SEED if settling else 0),
            budget=budget,
            patience_of_budget=self.patience,
        )

        title = "" if stage == FULL else f"{stage}: "
        outcome: Fit | None = None
        try:
            judged = fit_or_resume(
                self.snapshots,
                name,
                training,
                validation,
                fit_options,
                lambda outcome: self.judge(candidate, outcome, validation),
                title=f"{title}{candidate}",
                initial=initial,
                reporter=self.reporter,
                device=torch.device(self.device),
            )
        except FitError as error:
            self.failure = error
            tried = Tried(candidate, stage, math.inf, math.inf, time.monotonic() - began)
            self.reporter.say(f"{title}{candidate}: passed over: {error}")
        else:
            outcome = judged.fit
            candidate = replace(candidate, temperature=outcome.temperature)
            tried = Tried(candidate, stage, judged.nll, judged.crps, judged.seconds)
            self.reporter.say(
                f"{title}{candidate}: validation NLL {tried.nll:.3f} nats, CRPS {tried.crps:.4g} "
                f"({tried.seconds:.1f} s)"
            )
            self.interrupted = outcome.stopped == "interrupted"
        self.tried.append(tried)
        return tried, outcome

    def judge(self, candidate: Candidate, outcome: Fit, validation: Rows) -> tuple[float, float]:
        """NLL and CRPS on the rows held out."""
        preparation = self.preparation
        targets = torch.from_numpy(preparation.targets[preparation.split.validation])
        standardised, seed = preparation.standardised(candidate.transform), self.options.seed
        return held_out_scores(
            outcome.network, outcome.likelihood, validation, targets, standardised, seed=seed
        )

    def run(self) -> Found:
        """Trials, then the full fit; an interruption ends the search."""
        chosen = self._base()
        levers = list(self._levers())
        trials = sum(len(lever.others) for lever in levers) + 1 if levers else 0
        stages = [TRIAL] * trials + [FULL] + [SETTLING] * (self.options.temperature is None)
        self.time_left = sum(TIME_OF_STAGE[stage] for stage in stages)
        if levers:
            self._keep(*self.fit(chosen, TRIAL))
            for lever in levers:
                chosen = self._pull(lever, chosen)
            # A narrow margin among few rows is chance.
            if chosen.temperature is None:
                chosen = self._reconsider(chosen)
        if not self.interrupted:
            self._fit_in_full(chosen)
        if self.best_fit is None:
            raise FitError(f"{self.failure}{self.snapshots.advice(self.options.learning_rate)}")
        return Found(self.best.candidate, self.best_fit, tuple(self.tried), self.interrupted)

    def _pull(self, lever: Lever, chosen: Candidate) -> Candidate:
        """Tries the values of one lever; what is chosen then."""
        values = list(lever.others)
        while values and not self.interrupted:
            value, before = values.pop(0), self.best.loss
            tried, outcome = self.fit(replace(chosen, **{lever.name: value}), TRIAL)
            self._keep(tried, outcome)
            if abs(tried.loss - before) < NARROW:
                given_up = getattr(chosen, lever.name) if tried.loss < before else value
                self.narrow[lever.name] = replace(chosen, **{lever.name: given_up})
            if tried.loss >= before and lever.otherwise:
                values = list(lever.otherwise) if value == lever.others[0] else []
        return self._chosen(rising=chosen.temperature is None)

    def _reconsider(self, chosen: Candidate) -> Candidate:
        """Tries again what was given up by a narrow margin, with what was chosen after it; what is chosen then."""
        for name, then in self.narrow.items():
            now = replace(chosen, **{name: getattr(then, name)})
            if now not in (then, chosen) and not self.interrupted:
                self.time_left += TIME_OF_STAGE[TRIAL]
                self._keep(*self.fit(now, TRIAL))
                chosen = self._chosen(rising=True)
        return chosen

    def _chosen(self, *, rising: bool) -> Candidate:
        """The best so far, at its temperature or at one that rises."""
        return replace(self.best.candidate, temperature=None) if rising else self.best.candidate

    def _keep(self, tried: Tried, outcome: Fit | None) -> None:
        """The better of it and what there is."""
        if self.best_fit is None or (outcome is not None and tried.loss < self.best.loss):
            self.best, self.best_fit = tried, outcome

    def _fit_in_full(self, chosen: Candidate) -> None:
        """The fit with all members, in place of any trial, and what it settles to if that is better."""
        trial = self.best.loss if self.tried else None
        tried, outcome = self.fit(chosen, FULL)
        if outcome is None or self.interrupted:
            self._keep(tried, outcome)
            return
        self.best, self.best_fit = tried, outcome
        if self.options.temperature is None:
            temperature = outcome.temperature
            if chosen.temperature is not None and trial is not None:
                temperature = next_temperature(temperature, trial, tried.loss)
            start = learned_tensors(outcome.network, outcome.likelihood)
            self._keep(*self.fit(replace(tried.candidate, temperature=temperature), SETTLING, start))

    def _base(self) -> Candidate:
        """Where the search starts."""
        options = self.options
        rising = len(self.preparation.split.training) >= FEW_ROWS
        return Candidate(
            noise="heteroscedastic" if options.noise == "auto" else options.noise,
            transform="none" if options.transform == "auto" else options.transform,
            encoding="standard" if options.encoding == "auto" else options.encoding,
            whitened=options.whiten == "yes" and self._whitening() is not None,
            hidden=HIDDEN if options.hidden is None else options.hidden,
            temperature=options.temperature or (None if rising else TEMPERATURES[1]),
        )

    def _whitening(self) -> Whitening | None:
        """The directions that there are, whatever the encoding."""
        return self.preparation.encoder("standard", whitened=True).whitening

    def _levers(self) -> Iterator[Lever]:
        """What is still open."""
        options, preparation = self.options, self.preparation
        # Noise that is known in the target's unit is not the same at all logarithms.
        if options.transform == "auto" and options.noise != "fixed" and preparation.fits("log"):
            yield Lever("transform", ("log",))
        if options.noise == "auto":
            few = len(preparation.split.training) < FEWEST_ROWS_FOR_A_MIXTURE
            yield Lever("noise", ("homoscedastic",) if few else ("mixture",))
        # After the noise: many inputs and a flexible density together would learn a small table by heart.
        bins = preparation.encoder("piecewise").width - preparation.encoder("standard").width
        if options.encoding == "auto" and bins:
            yield Lever("encoding", ("piecewise",))
        if options.whiten == "auto" and len(preparation.split.training) >= FEW_ROWS:
            whitening = self._whitening()
            if whitening is not None and whitening.variances.min() < WELL_HIDDEN:
                yield Lever("whitened", (True,))
        if self._base().temperature is not None and options.temperature is None:
            yield Lever("temperature", TEMPERATURES[2:], otherwise=TEMPERATURES[:1])


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
