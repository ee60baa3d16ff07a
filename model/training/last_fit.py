"""The last fit of a training with ``--time``: members that were judged on later rows learn from these, too.

A member that judges a block in time has not learned from that block, nor from any row after it. The members that serve
should know the newest rows. So, after the choice and the calibration, every member goes on from its kept parameters,
for few steps and at the chosen temperature, on as many of the newest rows as it saw of the oldest when it was judged
(`model.data.splits.Split.newest`). No row is left to say when to stop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from murho.model.errors import FitError
from murho.model.fitting.cross_fit_rows import Rows
from murho.model.fitting.fit import fit
from murho.model.fitting.fit_types import FitOptions, default_batch_size
from murho.model.networks.named_tensors import learned_tensors

if TYPE_CHECKING:
    from murho.model.fitting.fit_types import Fit
    from murho.model.fitting.training_data import TrainingData
    from murho.model.training.candidates import Candidate, Reporter
    from murho.model.training.options import TrainOptions

__all__ = ["fit_to_newest_rows"]

STEPS = 500
LEARNING_RATE = 0.1
"""First learning rate, as a share of the usual one: weights move to what the newest rows add, and not anywhere else."""
SHOWN = 256
LAST_SEED = 20
"""Added to the seed of the training."""


def fit_to_newest_rows(
    data: TrainingData, candidate: Candidate, kept: Fit, options: TrainOptions, reporter: Reporter, device: str
) -> Fit:
    """Continue a fit on the newest rows, without early stopping.

    Args:
        data: The table.
        candidate: The choices of the search.
        kept: The fit whose members were judged.
        options: Options of the training.
        reporter: Gets the progress.
        device: Device of the fit.

    Returns:
        The continued fit, or ``kept`` if the continued one became non-finite.
    """
    rows = data.learned_rows(candidate.inputs, candidate.transform)
    standardisation = data.standardisation(candidate.transform)
    architecture = kept.network.architecture
    batch_size = options.batch_size or default_batch_size(len(rows))
    fit_options = FitOptions(
        prior=options.make_prior(),
        noise=candidate.noise,
        noise_sigma=None if options.noise_sigma is None else options.noise_sigma / standardisation.scale,
        noise_components=options.noise_components,
        classes=None if data.schema.target.classes is None else len(data.schema.target.classes),
        standardisation=standardisation,
        hidden=architecture.hidden,
        activation=architecture.activation,
        skip=architecture.skip,
        members=architecture.members,
        reads=data.reads(candidate.inputs, architecture.members),
        kl_weights=options.kl_weights,
        draws_per_step=options.draws_per_step,
        learning_rate=options.learning_rate * LEARNING_RATE,
        batch_size=batch_size,
        epochs=min(options.epochs or STEPS, max(1, round(STEPS / math.ceil(len(rows) / batch_size)))),
        early_stop=False,
        warm_up_steps=0,
        temperature=kept.temperature,
        validation_draws=1,
        beta_nll=False,
        seed=options.seed + LAST_SEED,
    )
    title = "on the newest rows"
    shown = slice(max(0, len(rows) - SHOWN), len(rows))  # scores of these are progress to look at, and decide nothing
    reporter.begin(title)
    try:
        return fit(
            rows,
            Rows(rows.features[shown], rows.targets[shown]),
            fit_options,
            initial=learned_tensors(kept.network, kept.likelihood),
            device=torch.device(device),
            progress=reporter,
        )
    except FitError as error:
        reporter.say(f"{title}: passed over: {error}")
        return kept
    finally:
        reporter.end()
