"""The fit of an update: to new rows, with the old posterior as the start and as the prior."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.data.splits import MOST_HELD_OUT, Split, folds_of
from murho.model.data.units import single_rows
from murho.model.fitting.cross_fit_rows import Rows
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_types import Fit, FitOptions, default_batch_size
from murho.model.networks.posterior_prior import PosteriorPrior
from murho.model.networks.read_inputs import inputs_read
from murho.model.revision.update_options import LEARNING_RATE, UpdateOptions

if TYPE_CHECKING:
    from murho.model.data.units import Units
    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.revision.revisions import LabelledRows, Revision
    from murho.model.training.candidates import Reporter

__all__ = [
    "FEWEST_ROWS_TO_HOLD_OUT",
    "LEARNING_RATE",
    "UpdateOptions",
    "fit_to_new_rows",
    "split_new_rows",
    "temperature_of",
]

FEWEST_ROWS_TO_HOLD_OUT = 10
"""With fewer new rows than this, all members learn from all rows, and the calibration stays unchanged."""
ROWS_FOR_ONE_HELD_OUT = 7
"""A single member learns from all but one of so many rows; the others calibrate."""
ROWS_TO_JUDGE_A_TEMPERATURE = 25
"""New rows that tell half of what there is to know of the training's temperature."""

STEPS = 2000
"""Steps of an update. They are fewer than in a training, because the fit starts from the old posterior."""
FEWEST_EPOCHS = 20
ROWS_TIMES_DRAWS = 256
MOST_DRAWS = 8
"""A step with a small minibatch takes several draws per row, up to 256 rows times draws and up to eight draws. It takes
no longer than a step with a large minibatch, and the scales of the weights are less noisy."""


def split_new_rows(count: int, seed: int, members: int, units: Units | None = None) -> Split:
    """Split new units so that each is held out from some members, or one in seven from the only one.

    Several members are cross-fitted, as in a training. In every block of F rows, one is in each of the F folds. So a
    further row leaves the folds of the others as they are. Below 10 rows, or two for each fold, none is held out.
    """
    units = units or single_rows(count)
    folds = folds_of(members) if members > 1 else ROWS_FOR_ONE_HELD_OUT
    if count < max(FEWEST_ROWS_TO_HOLD_OUT, 2 * folds if members > 1 else 0):
        everything = np.arange(count)
        return Split(everything, everything, everything[:0])
    # Units in the order of their first rows, so that a further row changes no other's number.
    _, first, of_rows = np.unique(units.of_rows, return_index=True, return_inverse=True)
    numbers = first.argsort().argsort()[of_rows.reshape(-1)]
    partitions = 2 if members % (2 * folds) == 0 else 1
    of_units = np.empty((partitions, units.count), dtype=np.int64)
    for partition in range(partitions):
        generator = np.random.Generator(np.random.PCG64([seed, partition]))
        blocks = [generator.permutation(folds) for _ in range(math.ceil(units.count / folds))]
        of_units[partition] = np.concatenate(blocks)[: units.count]
    rows, fold_of_rows = np.arange(count), of_units[:, numbers]
    if members == 1:
        learned, held_out = rows[fold_of_rows[0] > 0], rows[fold_of_rows[0] == 0]
        return Split(learned, learned, held_out[:MOST_HELD_OUT], units=units)
    judged = np.random.Generator(np.random.PCG64(seed)).permutation(count)[:MOST_HELD_OUT]
    return Split(rows, judged, judged, fold_of_rows, units=units)


def temperature_of(spec: ModelSpec, rows: int) -> float:
    """Factor of the KL in an update with n new rows: from 1 for few rows to the training's, by the same ratio a step.

    The training's temperature t gives old and new rows the same weight. But rows show that a factor below 1 helps only
    where they are many: with it, each of a handful of rows would count as several. So the factor is ``t^w`` with
    ``w = n^2 / (n^2 + 25^2)``.
    """
    share = rows**2 / (rows**2 + ROWS_TO_JUDGE_A_TEMPERATURE**2)
    return float(spec.temperature**share)


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

    All epochs are run, and the last parameters are kept, with a learning rate that has fallen to nothing: held-out rows
    that decide when to stop would make the outcome of a few rows more depend on chance. A learned noise of a single
    value has no prior in the weights; it remembers the earlier rows by their number.
    """
    old, spec = revision.posterior, revision.spec
    architecture, target = old.architecture, torch.device(device)
    features, targets = torch.from_numpy(rows.encoded), rows.standardised(old)
    folds = None if split.folds is None else torch.from_numpy(split.folds)

    def part(numbers: np.ndarray) -> Rows:
        return Rows(features[numbers], targets[numbers], None if folds is None else folds[:, numbers])

    training = part(split.training)
    batch_size = default_batch_size(len(training))
    epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // math.ceil(len(training) / batch_size))
    reporter.begin(f"update of version {old.version}")
    try:
        return fit(
            training,
            part(split.validation),
            FitOptions(
                beta_nll=False,
                prior=PosteriorPrior.of(revision.tensors, architecture.shapes(), target),
                noise=spec.likelihood.kind,
                noise_sigma=spec.likelihood.sigma,
                noise_components=spec.likelihood.components,
                classes=None if spec.likelihood.shares is None else len(spec.likelihood.shares.values),
                rows_before=spec.rows_learned,
                standardisation=spec.target,
                hidden=architecture.hidden,
                activation=architecture.activation,
                skip=architecture.skip,
                members=architecture.members,
                reads=inputs_read(revision.tensors),
                draws_per_step=int(np.clip(ROWS_TIMES_DRAWS // min(len(training), batch_size), 1, MOST_DRAWS)),
                learning_rate=options.learning_rate,
                batch_size=batch_size,
                epochs=epochs,
                early_stop=False,
                warm_up_steps=0,
                temperature=temperature_of(spec, len(rows)),
                seed=seed,
            ),
            initial=revision.tensors,
            device=target,
            progress=reporter,
        )
    finally:
        reporter.end()
