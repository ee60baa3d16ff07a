"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.arrow_values import rows_of
from murho.model.data.cells import format_date
from murho.model.data.feature import MOST_CATEGORIES
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import make_schema
from murho.model.encoding.distribution_fit import FEWEST_ROWS
from murho.model.engines.selection import engine_worth
from murho.model.evaluation.cross_calibration import SAMPLES
from murho.model.fitting.training_data import TrainingData, select_rows
from murho.model.networks.named_tensors import learned_tensors
from murho.model.networks.read_inputs import without_unread
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.training.candidates import Stage
from murho.model.training.evidence import Evidence
from murho.model.training.extrapolation_prior import with_extrapolation_prior
from murho.model.training.extrapolation_trial import extrapolation_trial
from murho.model.training.fingerprint import make_fingerprint
from murho.model.training.fold_advice import advise
from murho.model.training.holding_out import hold_out
from murho.model.training.idle_features import note_of_unread
from murho.model.training.last_fit import fit_to_newest_rows
from murho.model.training.prepared_table import prepare_table
from murho.model.training.row_sample import held_out_within_budget, rows_for_budget
from murho.model.training.search import search
from murho.model.training.snapshots import Snapshots
from murho.model.training.stages import SHARE_OF_SEARCH
from murho.model.training.tasks import task_of
from murho.model.training.time_feature import choose_time_feature
from murho.model.training.time_to_finish import TimeToFinish

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    import torch
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema
    from murho.model.training.candidates import Reporter, SearchResult
    from murho.model.training.options import TrainOptions
    from murho.model.training.prepared_table import PreparedTable

__all__ = ["Trained", "train"]

ANSWERS_OF_A_JUDGED_ROW = 4
"""Judging a row and computing its bands takes about as long as so many answers."""

ROWS_IN_A_HURRY = 500
"""Most rows that calibrate and score a training which was interrupted after the search: about a second."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training, as `model.posterior.checkpoint.write_checkpoint` takes it.

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


def train(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
    snapshots: Snapshots | None = None,
    prepared: PreparedTable | None = None,
    began: float | None = None,
) -> Trained:
    """Fit a BBB network to a table.

    Args:
        table: The table, as `model.data.tables.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fit.
        snapshots: Keeps the state of the training, to resume it after an interruption; by default nothing is kept.
        prepared: What `model.training.prepared_table.prepare_table` returned for the table, if the user knows about it.
        began: When the user began to wait, in monotonic seconds, for ``--budget``; by default now.

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
    began = time.monotonic() if began is None else began
    snapshots = snapshots or Snapshots()
    if prepared is None:
        prepared = prepare_table(table, target, options)
        for line in prepared.left_out_lines():
            reporter.say(line)
        prepared = rows_for_budget(prepared, options)
    for line in prepared.notes:
        reporter.say(line)
    table, plan, targets, weights = prepared.table, prepared.plan, prepared.targets, prepared.weights
    task = task_of(plan.target)
    limits = task.limits(targets, target, options, reporter.say)
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
    row_numbers = (labelled if prepared.rows is None else prepared.rows[labelled]) + 1
    table, targets = rows_of(table, labelled), targets[labelled]
    columns = select_rows(prepared.columns, labelled)
    holding_out = hold_out(table, target, columns, options, row_numbers, held_out_within_budget(prepared, options))
    split = holding_out.split
    for note in (*holding_out.notes, split.describe()):
        reporter.say(note)
    ranked = task.class_count is None or task.class_count == 2  # the ranks of more classes mean nothing
    advice = (
        []
        if options.group or options.time or not ranked
        else advise(table, plan, columns, targets, split, options.seed)
    )
    for piece in advice:
        reporter.say(f"advice: {piece.message}")
    training_columns = select_rows(columns, split.learned)
    impute = options.missing == "accept" and len(split.learned) >= FEWEST_ROWS
    schema = make_schema(plan, training_columns, holding_out.ahead, impute=impute)
    for feature in schema.features:
        if len(feature.categories) == MOST_CATEGORIES:
            reporter.say(
                f"column {feature.name!r}: its {MOST_CATEGORIES} most frequent categories are told apart; rarer ones, "
                "if any, are one"
            )
    if weights is not None:
        weights = weights / weights[split.learned].mean()
    data = TrainingData(schema, columns, targets, split, weights, limits)
    canonical = {**columns, **holding_out.columns}
    snapshots.begin(make_fingerprint(canonical, targets, target, options, device, weights), reporter.say)
    if options.time is not None:
        data = choose_time_feature(data, options.time, options, reporter, device)
    to_finish = None
    if options.budget and prepared.rows is not None:
        to_finish = TimeToFinish(options.budget, sum(len(group.rows) for group in split.held_out(options.members)))
    result = search(data, options, reporter, device, snapshots, began, to_finish)
    known = {"left_out_rows": left_out_rows, "advice": [piece.to_json() for piece in advice]}
    finished = partial(
        _finished,
        data,
        options=options,
        known=known,
        row_numbers=row_numbers,
        began=began - snapshots.carried,
        reporter=reporter,
        device=device,
    )
    try:
        reporter.say(f"chose {result.candidate}")
        unread = result.candidate.inputs.unread_by_all
        if unread:
            reporter.say(note_of_unread(unread, len(schema.features)))
        if result.interrupted:
            reporter.say(f"interrupted: kept the best parameters so far (epoch {result.fit.best_epoch})")
            _say_how_to_go_on(snapshots, reporter)
        most = None
        if to_finish is not None:
            spent = time.monotonic() - began + snapshots.carried
            most = to_finish.rows_in_time(spent, result.pace, fewest=ROWS_IN_A_HURRY)
        return finished(result, most_rows=most)
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: calibrating on at most {ROWS_IN_A_HURRY} rows, then saving; Ctrl-C once more ends without a "
            "checkpoint"
        )
        if not result.interrupted:
            _say_how_to_go_on(snapshots, reporter)
        return finished(replace(result, interrupted=True), most_rows=ROWS_IN_A_HURRY)


def _say_how_to_go_on(snapshots: Snapshots, reporter: Reporter) -> None:
    if snapshots.resumable:
        reporter.say("the same command with --resume goes on from the last snapshot, and writes a further version")


def _finished(
    data: TrainingData,
    result: SearchResult,
    *,
    options: TrainOptions,
    known: Mapping[str, Any],
    row_numbers: NDArray[np.int64],
    began: float,
    reporter: Reporter,
    device: str,
    most_rows: int | None = None,
) -> Trained:
    """The content of a checkpoint from the outcome of a search: calibrated and scored on held-out rows.

    Args:
        data: The table.
        result: Outcome of the search; it is not changed.
        options: Validated options.
        known: Facts of the table, for ``model.json``.
        row_numbers: Number of each row in the user's table, from 1, ``[N]``.
        began: When the training began, in monotonic seconds.
        reporter: Gets the progress.
        device: Device of the fits.
        most_rows: Most rows to calibrate and score on; None: all that are held out.
    """
    chosen, candidate = result.fit, result.candidate
    fits = len(result.attempts)
    reporter.stage(Stage("calibrating and scoring on held-out rows", fits, fits, done=SHARE_OF_SEARCH, share=0.0))
    schema, split, targets = data.schema, data.split, data.targets
    task = task_of(schema.target)
    standardisation = data.standardisation(candidate.transform)

    architecture = chosen.network.architecture
    encoder = data.encoder(candidate.inputs)
    reads = data.reads(candidate.inputs, architecture.members)
    tensors = without_unread(learned_tensors(chosen.network, chosen.likelihood), architecture, reads)
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=task.likelihood_spec(chosen.likelihood, data),
        target=standardisation,
        schema=schema,
        encoder=encoder,
        beyond=task.beyond(targets[split.learned]),
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
    groups = split.held_out(architecture.members)
    if most_rows is not None and most_rows < sum(len(group.rows) for group in groups):
        most = max(1, most_rows // len(groups))
        groups = [replace(group, rows=group.rows[:most]) for group in groups]
    calibrating = range(len(groups)) if split.folds is not None else range(1, len(groups))
    # Of a sample for a short budget few rows are judged: loading compiled code would take longer, and 110 MiB.
    judged = sum(len(group.rows) for group in groups)
    engine = engine_worth(min(len(targets), ANSWERS_OF_A_JUDGED_ROW * judged), SAMPLES)
    calibrated = task.calibrate(
        Posterior(spec, tensors, engine=engine),
        data.encoded(candidate.inputs),
        targets,
        groups,
        calibrating=calibrating,
        weights=data.weights,
        units=None if split.units is None else split.units.of_rows,
        even=split.units is not None and split.units.grouped,
        narrow=not split.forward,
    )
    if split.forward and split.validation is not split.training and not result.interrupted:
        served = fit_to_newest_rows(data, candidate, chosen, options, reporter, device)
        tensors = beyond_range(without_unread(learned_tensors(served.network, served.likelihood), architecture, reads))
    facts = {
        "rows": len(split.learned),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        **known,
        "epochs": chosen.epochs,
        "best_epoch": chosen.best_epoch,
        "stopped": chosen.stopped,
        "interrupted": result.interrupted,
        "temperature": candidate.temperature,
        "candidates": [attempt.to_json() for attempt in result.attempts],
        "options": options.model_dump(mode="json"),
        "example": _example(schema, learned_columns),
        "targets": task.distribution(targets[split.learned]),
        "seconds": round(time.monotonic() - began, 3),
    }
    if result.full_search is not None:
        facts["full_search"] = result.full_search.to_json()
    spec = spec.made_now(calibration=calibrated.conformal, metrics=calibrated.metrics, training=facts)
    evidence = Evidence(
        data.columns, targets, row_numbers, split.learned, calibrated.held_out, result.attempts, result.best
    )
    return Trained(tensors, Posterior(spec, tensors, engine=engine), evidence)


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
