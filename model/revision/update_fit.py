"""The fit of an update: to new rows, with the old posterior as the start and as the prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.data.splits import FEWEST_ROWS_TO_CALIBRATE, Split, split_rows
from murho.model.errors import OptionError
from murho.model.fitting.cross_fit_rows import Rows
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_types import Fit, FitOptions, default_batch_size
from murho.model.likelihoods.homoscedastic import HomoscedasticNoise, noise_of, rho_of
from murho.model.networks.named_tensors import NOISE_RHO, noise_tensors
from murho.model.networks.posterior_prior import PosteriorPrior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.revision.revisions import LabelledRows, Revision
    from murho.model.training.candidates import Reporter

__all__ = [
    "FEWEST_ROWS_TO_HOLD_OUT",
    "LEARNING_RATE",
    "UpdateOptions",
    "fit_to_new_rows",
    "noise_of_all_rows",
    "split_new_rows",
    "temperature_of",
]

FEWEST_ROWS_TO_HOLD_OUT = FEWEST_ROWS_TO_CALIBRATE
"""With fewer new rows than this, all rows are learned from, and a learned noise and the calibration stay unchanged."""

STEPS = 2000
"""Steps of an update. They are fewer than in a training, because the fit starts from the old posterior."""
FEWEST_EPOCHS = 20
ROWS_TIMES_DRAWS = 256
MOST_DRAWS = 8
"""A step with a small minibatch takes several draws per row, up to 256 rows times draws and up to eight draws. It takes
no longer than a step with a large minibatch, and the scales of the weights are less noisy."""
LEARNING_RATE = 5e-3
"""Half of a training's learning rate: the weights move by a few of their own sigma at most."""


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """Options of an update.

    Attributes:
        epochs: Most epochs; by default as many as make 2000 steps.
        learning_rate: First learning rate.
        seed: Seed of the split, the minibatches and the draws; by default the checkpoint's seed.
    """

    epochs: int | None = None
    learning_rate: float = LEARNING_RATE
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise OptionError(f"--epochs must be at least 1, not {self.epochs}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0.0):
            raise OptionError(f"--learning-rate must be a positive number, not {self.learning_rate!r}")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise OptionError(f"--seed must lie between 0 and 2^63 - 1, not {self.seed}")


def split_new_rows(count: int, seed: int, members: int) -> Split:
    """Split new rows as a training does; with fewer than 50 rows none is held out and none calibrates."""
    if count < FEWEST_ROWS_TO_HOLD_OUT:
        everything = np.arange(count)
        return Split(everything, everything, everything[:0])
    return split_rows(count, seed, members)


def temperature_of(spec: ModelSpec, held_out: bool) -> float:
    """Factor of the KL: that of the training, so that old and new rows have the same weight.

    It is 1 if no row is held out: only held-out rows can show that a factor below 1 helps, and with such a factor each
    of a handful of new rows would count as many.
    """
    return spec.temperature if held_out else 1.0


def fit_to_new_rows(
    revision: Revision,
    rows: LabelledRows,
    split: Split,
    options: UpdateOptions,
    *,
    seed: int,
    reporter: Reporter,
    device: str = "cpu",
) -> Fit:
    """Fit to new rows from a version's parameters, with its posterior as the prior at full weight from the first step.

    Held-out rows decide which parameters are kept. Without them all epochs are run, and a learned noise stays fixed: it
    has no prior, so a handful of rows alone would determine it.
    """
    old, spec = revision.posterior, revision.spec
    architecture, target = old.architecture, torch.device(device)
    held_out = len(split.calibration) > 0
    features, targets = torch.from_numpy(rows.encoded), rows.standardised(old)
    folds = None if split.folds is None else torch.from_numpy(split.folds)

    def part(numbers: np.ndarray) -> Rows:
        return Rows(features[numbers], targets[numbers], None if folds is None else folds[:, numbers])

    training = part(split.training)
    batch_size = default_batch_size(len(training))
    epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // math.ceil(len(training) / batch_size))
    initial = dict(revision.tensors)
    kind, sigma = spec.likelihood.kind, spec.likelihood.sigma
    if isinstance(old.likelihood, HomoscedasticNoise) and not held_out:
        noise = noise_of(initial.pop(NOISE_RHO))
        kind, sigma = "fixed", float(noise.square().mean().sqrt())
    reporter.begin(f"update of version {old.version}")
    try:
        return fit(
            training,
            part(split.validation),
            FitOptions(
                beta_nll=False,
                prior=PosteriorPrior.of(revision.tensors, architecture.shapes(), target),
                noise=kind,
                noise_sigma=sigma,
                noise_components=spec.likelihood.components,
                limits=spec.target.standard_limits(),
                hidden=architecture.hidden,
                activation=architecture.activation,
                skip=architecture.skip,
                members=architecture.members,
                draws_per_step=int(np.clip(ROWS_TIMES_DRAWS // min(len(training), batch_size), 1, MOST_DRAWS)),
                learning_rate=options.learning_rate,
                batch_size=batch_size,
                epochs=epochs,
                early_stop=held_out,
                warm_up_steps=0,
                temperature=temperature_of(spec, held_out),
                seed=seed,
            ),
            initial=initial,
            device=target,
            progress=reporter,
        )
    finally:
        reporter.end()


def noise_of_all_rows(
    old: Mapping[str, Tensor], outcome: Fit, rows_before: int, rows_learned: int
) -> dict[str, Tensor]:
    """The learned noise parameters after an update; empty if the observation model has none.

    A learned noise has no prior that could carry what the earlier rows taught. So its variance is the mean of the old
    variance and the one fitted to the new rows, weighted by the numbers of rows. A noise that the fit kept fixed stays.
    """
    if NOISE_RHO not in old:
        return {}
    fitted = noise_tensors(outcome.likelihood).get(NOISE_RHO)
    if fitted is None:
        return {NOISE_RHO: old[NOISE_RHO]}
    before, after = (noise_of(rho.double()).square() for rho in (old[NOISE_RHO], fitted))
    square = torch.lerp(before, after, rows_learned / (rows_before + rows_learned))
    return {NOISE_RHO: rho_of(square.sqrt()).float()}
