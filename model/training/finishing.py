"""From the outcome of a search to the content of a checkpoint: calibrated and scored on held-out rows.

With ``--time`` a last fit comes between. A member that judges a block in time has not learned from that block, nor from
any row after it. The members that serve should know the newest rows. So, after the choice and the calibration, every
member goes on from its kept parameters, for few steps and at the chosen temperature, on as many of the newest rows as
it saw of the oldest when it was judged (`model.tables.splits.Split.newest`). No row is left to say when to stop.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.fit import fit
from murho.model.bbb.fit_types import FitOptions, default_batch_size
from murho.model.bbb.network import learned_tensors, without_unread
from murho.model.bbb.rows import Rows, select_rows
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.errors import FitError
from murho.model.evaluation.held_out import SAMPLES, calibrate_held_out
from murho.model.predictive.compiled_engine import engine_worth
from murho.model.tables.cells import format_date
from murho.model.tables.schema import FeatureKind
from murho.model.training.candidates import SHARE_OF_SEARCH, Stage
from murho.model.training.extrapolation import extrapolation_trial, with_extrapolation_prior
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.bbb.fit_types import Fit
    from murho.model.bbb.rows import TrainingData
    from murho.model.evaluation.rows import JudgedRows
    from murho.model.tables.schema import Columns, Schema
    from murho.model.tables.splits import HeldOut
    from murho.model.training.candidates import Attempt, Candidate, Reporter, SearchResult
    from murho.model.training.options import TrainOptions
    from murho.model.training.rows import LearnableRows

__all__ = [
    "Evidence",
    "Trained",
    "finish",
    "fit_to_newest_rows",
]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Rows and fits of a training; in memory alone, never part of ``model.json``.

    Attributes:
        columns: Canonical columns of the features, ``[N]`` each, of the rows with a target.
        targets: ``[N]``, the target's unit.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        held_out: The held-out rows, judged.
        attempts: All fits of the search, in order.
        chosen: The fit that was kept, one of the attempts.
    """

    columns: Columns
    targets: NDArray[np.float64]
    row_numbers: NDArray[np.int64]
    held_out: JudgedRows
    attempts: tuple[Attempt, ...]
    chosen: Attempt


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


ANSWERS_OF_A_JUDGED_ROW = 4
"""Judging a row and computing its bands takes about as long as so many answers."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training, as `model.checkpoint.checkpoint.write_checkpoint` takes it.

    Attributes:
        tensors: mu, rho and noise parameters by name.
        posterior: The posterior with these tensors.
        evidence: What a report shows beside them.
    """

    tensors: dict[str, torch.Tensor]
    posterior: Posterior
    evidence: Evidence

    @property
    def spec(self) -> ModelSpec:
        """The content of ``model.json``."""
        return self.posterior.spec


def finish(
    rows: LearnableRows,
    result: SearchResult,
    options: TrainOptions,
    *,
    began: float,
    reporter: Reporter,
    device: str,
    most_rows: int | None = None,
) -> Trained:
    """Calibrate, score and describe the outcome of a search.

    Args:
        rows: The table as the search had it.
        result: Outcome of the search; it is not changed.
        options: Validated options.
        began: When the training began, in monotonic seconds.
        reporter: Gets the progress.
        device: Device of the fits.
        most_rows: Most rows to calibrate and score on; None: all that are held out.
    """
    chosen, candidate = result.fit, result.candidate
    fits = len(result.attempts)
    reporter.stage(Stage("calibrating and scoring on held-out rows", fits, fits, done=SHARE_OF_SEARCH, share=0.0))
    data = rows.data
    schema, split, targets = data.schema, data.split, data.targets
    task = task_of(schema.target)
    architecture = chosen.network.architecture
    encoder, learned = data.encoder(candidate.inputs), targets[split.learned]
    reads = data.reads(candidate.inputs, architecture.members)
    tensors = without_unread(learned_tensors(chosen.network, chosen.likelihood), architecture, reads)
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=task.likelihood_spec(chosen.likelihood, data),
        target=data.standardisation(candidate.transform),
        schema=schema,
        encoder=encoder,
        target_range=None if schema.target.classes else (float(learned.min()), float(learned.max())),
        default_seed=options.seed,
    )
    learned_columns = select_rows(data.columns, split.learned)
    extrapolation = extrapolation_trial(Posterior(spec, tensors, engine="torch"), learned_columns)
    beyond_range = partial(
        with_extrapolation_prior,
        architecture=architecture,
        slopes=extrapolation.slopes,
        means=chosen.likelihood.means,
    )
    tensors = beyond_range(tensors)
    spec = replace(spec, encoder=replace(encoder, continuations=extrapolation.continuations))
    groups = _at_most(most_rows, split.held_out(architecture.members))
    # Of a sample for a short budget few rows are judged: loading compiled code would take longer, and 110 MiB.
    judged = sum(len(group.rows) for group in groups)
    engine = engine_worth(min(len(targets), ANSWERS_OF_A_JUDGED_ROW * judged), SAMPLES)
    calibrated = calibrate_held_out(
        Posterior(spec, tensors, engine=engine),
        data.encoded(candidate.inputs),
        targets,
        groups,
        calibrating=range(len(groups)) if split.folds is not None else range(1, len(groups)),
        weights=data.weights,
        units=None if split.units is None else split.units.of_rows,
        even=split.units is not None and split.units.grouped,
        narrow=not split.forward,
    )
    if split.forward and split.validation is not split.training and not result.interrupted:
        served = fit_to_newest_rows(data, candidate, chosen, options, reporter, device)
        tensors = beyond_range(without_unread(learned_tensors(served.network, served.likelihood), architecture, reads))
    training = {
        "rows": len(split.learned),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        "left_out_rows": rows.left_out,
        **_facts_of_search(result),
        "options": options.model_dump(mode="json"),
        "example": _example(schema, learned_columns),
        "targets": task.distribution(learned),
        "seconds": round(time.monotonic() - began, 3),
    }
    if result.full_search is not None:
        training["full_search"] = result.full_search.to_json()
    spec = spec.made_now(calibration=calibrated.conformal, metrics=calibrated.metrics, training=training)
    evidence = Evidence(data.columns, targets, rows.row_numbers, calibrated.held_out, result.attempts, result.best)
    return Trained(tensors, Posterior(spec, tensors, engine=engine), evidence)


def _at_most(rows: int | None, groups: Sequence[HeldOut]) -> list[HeldOut]:
    """The groups of held-out rows, each cut to its share if they have more than so many rows."""
    if rows is None or rows >= sum(len(group.rows) for group in groups):
        return list(groups)
    most = max(1, rows // len(groups))
    return [replace(group, rows=group.rows[:most]) for group in groups]


def _facts_of_search(result: SearchResult) -> dict[str, Any]:
    """What ``model.json`` tells of the search and of the fit that was kept."""
    return {
        "epochs": result.fit.epochs,
        "best_epoch": result.fit.best_epoch,
        "stopped": result.fit.stopped,
        "interrupted": result.interrupted,
        "temperature": result.candidate.temperature,
        "candidates": [attempt.to_json() | {"chosen": attempt is result.best} for attempt in result.attempts],
    }


def _example(schema: Schema, columns: Columns) -> dict[str, Any]:
    """The first training row without a missing cell (else the first row), as a JSON record for a request."""
    complete = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for column in columns.values():
        complete &= np.array([value is not None for value in column]) if column.dtype == object else ~np.isnan(column)
    row = int(np.argmax(complete))
    record: dict[str, Any] = {}
    for feature in schema.features:
        value = columns[feature.name][row]
        if feature.kind is FeatureKind.CATEGORICAL:
            record[feature.name] = value
        elif np.isnan(value):
            record[feature.name] = None
        elif feature.kind is FeatureKind.BOOLEAN:
            record[feature.name] = bool(value)
        elif feature.kind is FeatureKind.DATE:
            record[feature.name] = format_date(float(value))
        else:
            record[feature.name] = int(value) if float(value).is_integer() else float(value)
    return record
