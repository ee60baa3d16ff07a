"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.cells import format_date
from murho.model.data.row_weights import row_weights
from murho.model.data.schema import MOST_CATEGORIES, FeatureKind
from murho.model.data.schema_inference import columns_from_table, make_schema, plan_columns, target_from_table
from murho.model.data.splits import split_rows
from murho.model.distributions.wide_component import WideRule
from murho.model.encoding.training_range import BeyondRule
from murho.model.engines.selection import engine_worth
from murho.model.evaluation.cross_calibration import SAMPLES, calibrate_and_score
from murho.model.fitting.training_data import TrainingData, select_rows
from murho.model.networks.named_tensors import learned_tensors
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.posterior.spec_parts import LikelihoodSpec
from murho.model.training.extrapolation_prior import extrapolation_slope, with_extrapolation_prior
from murho.model.training.fingerprint import make_fingerprint
from murho.model.training.search import search
from murho.model.training.snapshots import Snapshots
from murho.model.training.target_limits import target_limits

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from murho.model.data.schema import Columns, Schema
    from murho.model.training.candidates import Reporter, SearchResult
    from murho.model.training.options import TrainOptions

__all__ = ["Trained", "train"]

ROWS_IN_A_HURRY = 500
"""Most rows that calibrate and score a training which was interrupted after the search: about a second."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training, as `model.posterior.checkpoint.write_checkpoint` takes it.

    Attributes:
        tensors: mu, rho and noise parameters by name.
        posterior: The posterior with these tensors.
    """

    tensors: dict[str, torch.Tensor]
    posterior: Posterior

    @property
    def spec(self) -> ModelSpec:
        """The content of ``model.json``."""
        return self.posterior.spec


def train(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
    snapshots: Snapshots | None = None,
) -> Trained:
    """Fit a BBB network to a table.

    Args:
        table: The table, as `model.data.tables.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fit.
        snapshots: Keeps the state of the training, to resume it after an interruption; by default nothing is kept.

    Returns:
        The content of a checkpoint. After a KeyboardInterrupt it holds the best parameters so far and is marked as
        interrupted. Interrupted during the calibration, it is calibrated on fewer rows.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        OptionError: The snapshot that should be resumed is from another table or from other options.
        CheckpointError: The snapshot that should be resumed is damaged.
        KeyboardInterrupt: Interrupted before the first fit was scored, or again while calibrating in a hurry.
    """
    began = time.monotonic()
    snapshots = snapshots or Snapshots()
    weights = None
    if options.weight is not None:
        weights = row_weights(table, options.weight, target=target)
        table = table.drop_columns([options.weight])
    plan = plan_columns(
        table,
        target,
        ignore=[name for name in options.ignore if name != options.weight],
        overrides={name: given for name, given in options.columns.items() if name != options.weight},
    )
    for column, reason in plan.left_out.items():
        reporter.say(f"left out column {column!r}: {reason}")
    targets = target_from_table(table, target)
    limits = target_limits(targets, target, options, reporter.say)
    labelled = np.flatnonzero(~np.isnan(targets))
    left_out_rows = len(targets) - len(labelled)
    if left_out_rows:
        reporter.say(f"left out {left_out_rows} of {len(targets)} rows: {target!r} is missing")
    if weights is not None:
        weightless = int((weights[labelled] == 0.0).sum())
        if weightless:
            reporter.say(f"left out {weightless} of {len(targets)} rows: their weight {options.weight!r} is 0")
        labelled = labelled[weights[labelled] > 0.0]
        left_out_rows += weightless
        weights = weights[labelled]
    table, targets = table.take(labelled), targets[labelled]
    columns = columns_from_table(table, plan)
    split = split_rows(len(targets), options.seed, options.members)
    reporter.say(split.describe())
    training_columns = select_rows(columns, split.training)
    schema = make_schema(plan, training_columns)
    for feature in schema.features:
        if len(feature.categories) == MOST_CATEGORIES:
            reporter.say(
                f"column {feature.name!r}: its {MOST_CATEGORIES} most frequent categories are told apart; rarer ones, "
                "if any, are one"
            )
    if weights is not None:
        weights = weights / weights[split.training].mean()
    data = TrainingData(schema, columns, targets, split, weights, limits)
    snapshots.begin(make_fingerprint(columns, targets, target, options, device, weights), reporter.say)
    result = search(data, options, reporter, device, snapshots)
    finished = partial(_finished, data, options=options, left_out_rows=left_out_rows, began=began - snapshots.carried)
    try:
        reporter.say(f"chose {result.candidate}")
        if result.interrupted:
            reporter.say(f"interrupted: kept the best parameters so far (epoch {result.fit.best_epoch})")
            _say_how_to_go_on(snapshots, reporter)
        return finished(result)
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: calibrating on at most {ROWS_IN_A_HURRY} rows, then saving; Ctrl-C once more ends without a "
            "checkpoint"
        )
        if not result.interrupted:
            _say_how_to_go_on(snapshots, reporter)
        return finished(replace(result, interrupted=True), hurried=True)


def _say_how_to_go_on(snapshots: Snapshots, reporter: Reporter) -> None:
    if snapshots.resumable:
        reporter.say("the same command with --resume goes on from the last snapshot, and writes a further version")


def _finished(
    data: TrainingData,
    result: SearchResult,
    *,
    options: TrainOptions,
    left_out_rows: int,
    began: float,
    hurried: bool = False,
) -> Trained:
    """The content of a checkpoint from the outcome of a search: calibrated and scored on held-out rows.

    Args:
        data: The table.
        result: Outcome of the search; it is not changed.
        options: Validated options.
        left_out_rows: Number of rows of the table that were left out, for ``model.json``.
        began: When the training began, in monotonic seconds.
        hurried: Whether to calibrate and score on `ROWS_IN_A_HURRY` rows at most.
    """
    chosen, candidate = result.fit, result.candidate
    schema, split, targets = data.schema, data.split, data.targets
    standardisation = data.standardisation(candidate.transform)

    architecture = chosen.network.architecture
    encoder = data.encoder(candidate.encoding, whitened=candidate.whitened)
    slope = extrapolation_slope(len(schema.features))
    tensors = learned_tensors(chosen.network, chosen.likelihood)
    tensors = with_extrapolation_prior(
        tensors, architecture, encoder.zero_in_training, slope, means=chosen.likelihood.means
    )
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=LikelihoodSpec(
            **chosen.likelihood.to_json(),
            wide=None if candidate.noise == "fixed" else WideRule.after(len(split.training)),
        ),
        target=standardisation,
        schema=schema,
        encoder=encoder,
        beyond=BeyondRule(slope),
        default_seed=options.seed,
    )
    groups = split.held_out(architecture.members)
    if hurried:
        most = max(1, ROWS_IN_A_HURRY // len(groups))
        groups = [replace(group, rows=group.rows[:most]) for group in groups]
    calibrating = range(len(groups)) if split.folds is not None else range(1, len(groups))
    engine = engine_worth(len(targets), SAMPLES)
    conformal, metrics = calibrate_and_score(
        Posterior(spec, tensors, engine=engine),
        data.encoded(candidate.encoding, whitened=candidate.whitened),
        targets,
        groups,
        calibrating=calibrating,
        weights=data.weights,
    )
    facts = {
        "rows": len(split.training),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        "left_out_rows": left_out_rows,
        "epochs": chosen.epochs,
        "best_epoch": chosen.best_epoch,
        "stopped": chosen.stopped,
        "interrupted": result.interrupted,
        "temperature": candidate.temperature,
        "candidates": [attempt.to_json() for attempt in result.attempts],
        "options": options.model_dump(mode="json"),
        "example": _example(schema, select_rows(data.columns, split.training)),
        "seconds": round(time.monotonic() - began, 3),
    }
    spec = spec.made_now(calibration=conformal, metrics=metrics, training=facts)
    return Trained(tensors, Posterior(spec, tensors, engine=engine))


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
