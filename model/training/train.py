"""`train`, from a table to the content of a checkpoint: split, search over fits, judge, calibrate, describe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from murho.model.bbb.network import learned_tensors
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.encoding.feature_distribution import FeatureDistribution, QuantileScores
from murho.model.encoding.imputation import impute_columns
from murho.model.encoding.outliers import Distances
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.evaluation.held_out_totals import calibrate_totals
from murho.model.evaluation.judged_rows import JudgedRows
from murho.model.runtime import at_most_threads
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, json_cells
from murho.model.tables.splits import HeldOut
from murho.model.training.candidates import SHARE_OF_SEARCH, Attempt, Reporter, SearchResult, Stage
from murho.model.training.context import Training, split_table
from murho.model.training.extrapolation import extrapolation_trial, with_extrapolation_prior
from murho.model.training.idle_features import note_of_unread
from murho.model.training.options import TrainOptions
from murho.model.training.prepared_table import PreparedTable, prepare_table, rows_for_budget
from murho.model.training.search import search
from murho.model.training.time_column import choose_time_feature, fit_to_newest_rows
from murho.model.training.tree_check import check_trees
from murho.model.training.weight_spread import scale_weights, weight_factor


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


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training.

    Attributes:
        posterior: What a checkpoint holds: the specification and the tensors.
        evidence: What a report shows beside it.
    """

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
) -> Trained:
    """Fit a BBB network to a table.

    Args:
        table: The table, as `model.tables.table_files.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fit.

    Returns:
        What `train_on` returns.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        KeyboardInterrupt: See `train_on`.
    """
    prepared = prepare_table(table, target, options)
    for line in prepared.left_out_lines():
        reporter.say(line)
    return train_on(rows_for_budget(prepared), reporter=reporter, device=device)


ROWS_IN_A_HURRY = 500
"""Most rows that calibrate and score a training which was interrupted after the search: about a second."""


@at_most_threads()
def train_on(prepared: PreparedTable, *, reporter: Reporter, device: str = "cpu") -> Trained:
    """Fit a BBB network to a prepared table.

    Args:
        prepared: The table; the user knows which columns are left out.
        reporter: Gets the progress.
        device: Device of the fit.

    Returns:
        The content of a checkpoint. After a KeyboardInterrupt it holds the best parameters so far and is marked as
        interrupted. Interrupted during the calibration, it is calibrated on fewer rows.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        KeyboardInterrupt: Interrupted before the first fit was scored, or again while calibrating in a hurry.
    """
    for line in prepared.notes:
        reporter.say(line)
    training = choose_time_feature(split_table(prepared, reporter, device))
    result = search(training)
    try:
        for line in _choices(training, result):
            reporter.say(line)
        return _finish(training, result)
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: calibrating on at most {ROWS_IN_A_HURRY} rows, then saving; Ctrl-C once more ends without a "
            "checkpoint"
        )
        return _finish(training, replace(result, interrupted=True), ROWS_IN_A_HURRY)


def _choices(training: Training, result: SearchResult) -> Iterator[str]:
    """Return what the search has chosen, for people."""
    candidate = result.best.candidate
    yield f"chose {candidate}"
    if unread := candidate.inputs.unread_by_all:
        yield note_of_unread(unread, len(training.schema.features))
    if result.interrupted:
        yield f"interrupted: kept the best parameters so far (epoch {result.fit.best_epoch})"


def _finish(training: Training, result: SearchResult, most_rows: int | None = None) -> Trained:
    """Judge, calibrate and describe the outcome of a search, on at most so many rows; None: all that are held out."""
    fits, split, candidate = len(result.attempts), training.split, result.best.candidate
    training.reporter.stage(
        Stage("calibrating and scoring on held-out rows", fits, fits, done=SHARE_OF_SEARCH, share=0.0)
    )
    encoded, targets = training.encode(candidate.inputs), training.targets
    groups = _at_most(most_rows, split.held_out_groups(result.fit.network.architecture.members))
    units, grouped = (None, False) if split.units is None else (split.units.of_rows, split.units.grouped)
    posterior, spread, beyond_range = _read_out(training, result, groups)
    calibrated = calibrate_held_out(
        posterior,
        encoded,
        targets,
        groups,
        calibrating=range(len(groups)) if split.folds is not None else range(1, len(groups)),
        weights=training.weights,
        units=units,
        even=grouped,
        forward=split.forward,
    )
    totals = calibrate_totals(
        posterior,
        encoded,
        targets,
        groups,
        calibrated.conformal,
        units=units if grouped else None,
        in_time=split.forward,
    )
    unseen = split.validation is not split.training
    if split.forward and unseen and not result.interrupted:
        newest = fit_to_newest_rows(training, candidate, result.fit)
        posterior = Posterior(posterior.spec, beyond_range(learned_tensors(newest.network, newest.likelihood)))
    facts, metrics = _describe(training, result, spread), {**calibrated.metrics, "held_out": unseen}
    checked = training.schema.target.classes is None and training.weights is None and most_rows is None
    if checked and (trees := check_trees(metrics, training.columns, targets, split)):
        metrics["trees"] = trees
        if training.options.quick:
            training.reporter.say(
                "boosted trees predict held-out rows better than this first look: train without --quick"
            )
    spec = posterior.spec.stamp(calibration=calibrated.conformal, totals=totals, metrics=metrics, training=facts)
    evidence = Evidence(
        training.columns, targets, training.row_numbers, calibrated.held_out, result.attempts, result.best
    )
    return Trained(posterior.with_spec(spec), evidence)


def _read_out(
    training: Training, result: SearchResult, groups: Sequence[HeldOut]
) -> tuple[Posterior, float, Callable[[Mapping[str, Tensor]], dict[str, Tensor]]]:
    """Return the posterior of the kept fit, the factor of its weights, and what sets their prior beyond the range."""
    chosen, candidate, split, options = result.fit, result.best.candidate, training.split, training.options
    architecture, encoder = chosen.network.architecture, training.encoder(candidate.inputs)
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=training.likelihood_spec(candidate.noise, candidate.transform),
        target=training.standardisation(candidate.transform),
        schema=training.schema,
        encoder=encoder,
        default_seed=options.seed,
    )
    learned, spread = learned_tensors(chosen.network, chosen.likelihood), 1.0
    one_by_one = split.units is None or not split.units.grouped
    if training.schema.target.classes is None and options.temperature is None and one_by_one and not split.forward:
        raw = Posterior(spec, learned, engine="torch")
        spread = weight_factor(raw, training.encode(candidate.inputs), training.targets, groups, training.weights)
        learned = scale_weights(learned, spread)
    beyond_range = partial(with_extrapolation_prior, architecture=architecture, means=chosen.likelihood.means)
    slopes: Mapping[int, float] = {}
    if not encoder.textbook:
        # The fit leaves such weights near their random start: the trial does without them.
        flat = beyond_range(learned, slopes=dict.fromkeys(encoder.zero_in_training, 0.0))
        extrapolation = extrapolation_trial(
            Posterior(spec, flat, engine="torch"), training.learned_columns, training.spread(candidate.transform)
        )
        slopes = extrapolation.slopes
        spec = replace(spec, encoder=replace(encoder, continuations=extrapolation.continuations))
    beyond_range = partial(beyond_range, slopes=slopes)
    # Compiled code, which the fits have loaded: a report asks for more answers than the calibration.
    return Posterior(spec, beyond_range(learned)), spread, beyond_range


def _at_most(rows: int | None, groups: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the groups of held-out rows, each cut to its share of so many rows; None: whole."""
    if rows is None:
        return list(groups)
    most = max(1, rows // len(groups))
    return [replace(group, rows=group.rows[:most]) for group in groups]


def _describe(training: Training, result: SearchResult, spread: float) -> dict[str, Any]:
    """Return the facts of a training, as JSON.

    Args:
        training: The training.
        result: The outcome of its search.
        spread: Factor of the standard deviations of weights (`model.training.weight_spread`).
    """
    fit, candidate, split, schema = result.fit, result.best.candidate, training.split, training.schema
    return {
        "rows": len(split.learned),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        "left_out_rows": training.left_out,
        "epochs": fit.epochs,
        "best_epoch": fit.best_epoch,
        "stopped": fit.stopped,
        "interrupted": result.interrupted,
        "temperature": candidate.temperature,
        "weight_spread": spread,
        "candidates": [attempt.to_json() | {"chosen": attempt is result.best} for attempt in result.attempts],
        "options": training.options.model_dump(mode="json"),
        "example": _example(schema, training.distribution),
        "targets": _distribution(training.targets[split.learned], schema.target.classes),
        "seconds": round(time.monotonic() - training.began, 3),
    }


def _distribution(targets: NDArray[np.float64], classes: tuple[str, ...] | None) -> dict[str, Any] | None:
    """Quantiles of the training targets, or rows of each class, for those who show a prediction beside them."""
    if classes is not None:
        counts = np.bincount(targets.astype(np.int64), minlength=len(classes))
        return {"classes": dict(zip(classes, counts.tolist(), strict=True))}
    scores = QuantileScores.fit(targets)
    return None if scores is None else scores.to_json()


def _example(schema: Schema, distribution: FeatureDistribution | None) -> dict[str, Any] | None:
    """Return a made-up row as a JSON record: the most ordinary one of some drawn from the fitted distribution.

    None if the rows were too few for a distribution.
    """
    if distribution is None:
        return None
    features = tuple(replace(feature, missing=False, imputed=True) for feature in schema.features)
    nothing = {
        each.name: np.array([None], object) if each.kind is FeatureKind.CATEGORICAL else np.array([np.nan])
        for each in features
    }
    drawn = impute_columns(distribution, replace(schema, features=features), nothing)
    row = int(Distances.of(distribution, drawn).whole.max(axis=0).argmin())
    return {each.name: _cell(each, drawn[each.name][row], distribution) for each in features}


def _cell(feature: Feature, value: Any, distribution: FeatureDistribution) -> Any:
    """Return a drawn value as people would write it: of three digits, or whole where the training rows' are."""
    if feature.kind is FeatureKind.CATEGORICAL or value != value:
        return None if value != value else value
    if feature.kind is FeatureKind.BOOLEAN:
        return bool(value)
    knots = distribution.numbers[feature.name].values
    whole = bool(np.all(knots == np.floor(knots)))
    shown = float(np.clip(round(value) if whole else float(f"{value:.3g}"), knots[0], knots[-1]))
    return json_cells(feature, np.array([shown]))[0]
