"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.cells import format_date
from murho.model.data.schema import MOST_CATEGORIES, FeatureKind
from murho.model.data.schema_inference import columns_from_table, make_schema, plan_columns, target_from_table
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
from murho.model.training.fold_advice import advise
from murho.model.training.holding_out import hold_out, left_out_groups
from murho.model.training.last_fit import fit_to_newest_rows
from murho.model.training.search import search
from murho.model.training.snapshots import Snapshots
from murho.model.training.time_feature import choose_time_feature

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from murho.model.data.schema import Columns, Schema
    from murho.model.encoding.encoder import Encoder
    from murho.model.fitting.fit_types import Fit
    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions

__all__ = ["Trained", "train"]


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
        The content of a checkpoint. After a KeyboardInterrupt during the fit it holds the best parameters so far and is
        marked as interrupted.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        OptionError: The snapshot that should be resumed is from another table or from other options.
        CheckpointError: The snapshot that should be resumed is damaged.
    """
    began = time.monotonic()
    snapshots = snapshots or Snapshots()
    plan = plan_columns(
        table, target, ignore=options.ignore, groups=left_out_groups(options), overrides=options.columns
    )
    for column, reason in plan.left_out.items():
        reporter.say(f"left out column {column!r}: {reason}")
    targets = target_from_table(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    left_out_rows = len(targets) - len(labelled)
    if left_out_rows:
        reporter.say(f"left out {left_out_rows} of {len(targets)} rows: {target!r} is missing")
    table, targets = table.take(labelled), targets[labelled]
    columns = columns_from_table(table, plan)
    holding_out = hold_out(table, target, columns, options, labelled + 1)
    split = holding_out.split
    for note in (*holding_out.notes, split.describe()):
        reporter.say(note)
    advice = [] if options.group or options.time else advise(table, plan, columns, targets, split, options.seed)
    for piece in advice:
        reporter.say(f"advice: {piece.message}")
    training_columns = select_rows(columns, split.learned)
    schema = make_schema(plan, training_columns, holding_out.ahead)
    for feature in schema.features:
        if len(feature.categories) == MOST_CATEGORIES:
            reporter.say(
                f"column {feature.name!r}: its {MOST_CATEGORIES} most frequent categories are told apart; rarer ones, "
                "if any, are one"
            )
    data = TrainingData(schema, columns, targets, split)
    snapshots.begin(
        make_fingerprint({**columns, **holding_out.columns}, targets, target, options, device), reporter.say
    )
    if options.time is not None:
        data = choose_time_feature(data, options.time, options, reporter, device)
        schema = data.schema
    result = search(data, options, reporter, device, snapshots)
    chosen, candidate = result.fit, result.candidate
    reporter.say(f"chose {candidate}")
    if result.interrupted:
        reporter.say(f"interrupted: kept the best parameters so far (epoch {chosen.best_epoch})")
        if snapshots.resumable:
            reporter.say("--resume goes on from the last snapshot, and writes a further version")
    standardisation = data.standardisation(candidate.transform)

    architecture = chosen.network.architecture
    encoder = data.encoder(candidate.encoding, whitened=candidate.whitened)
    slope = extrapolation_slope(len(schema.features))
    tensors = _tensors(chosen, encoder, slope)
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=LikelihoodSpec(
            **chosen.likelihood.to_json(),
            wide=None if candidate.noise == "fixed" else WideRule.after(len(split.learned)),
        ),
        target=standardisation,
        schema=schema,
        encoder=encoder,
        beyond=BeyondRule(slope),
        default_seed=options.seed,
    )
    groups = split.held_out(architecture.members)
    calibrating = range(len(groups)) if split.folds is not None else range(1, len(groups))
    engine = engine_worth(len(targets), SAMPLES)
    conformal, metrics = calibrate_and_score(
        Posterior(spec, tensors, engine=engine),
        data.encoded(candidate.encoding, whitened=candidate.whitened),
        targets,
        groups,
        calibrating=calibrating,
        units=split.units,
        narrow=not split.forward,
    )
    if split.forward and split.validation is not split.training and not result.interrupted:
        served = fit_to_newest_rows(data, candidate, chosen, options, reporter, device)
        tensors = _tensors(served, encoder, slope)
    facts = {
        "rows": len(split.learned),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        "left_out_rows": left_out_rows,
        "advice": [piece.to_json() for piece in advice],
        "epochs": chosen.epochs,
        "best_epoch": chosen.best_epoch,
        "stopped": chosen.stopped,
        "interrupted": result.interrupted,
        "temperature": candidate.temperature,
        "candidates": [attempt.to_json() for attempt in result.attempts],
        "options": options.model_dump(mode="json"),
        "example": _example(schema, training_columns),
        "seconds": round(snapshots.carried + time.monotonic() - began, 3),
    }
    spec = spec.made_now(calibration=conformal, metrics=metrics, training=facts)
    return Trained(tensors, Posterior(spec, tensors, engine=engine))


def _tensors(chosen: Fit, encoder: Encoder, slope: float) -> dict[str, torch.Tensor]:
    """The tensors of a fit, with the prior beyond the range."""
    return with_extrapolation_prior(
        learned_tensors(chosen.network, chosen.likelihood),
        chosen.network.architecture,
        encoder.zero_in_training,
        slope,
        means=chosen.likelihood.means,
    )


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
