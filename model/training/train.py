"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score.

Whether the column of ``--time`` is a feature is judged on later rows. A network that reads the time learns level and
trend of each past stretch. If the noise is correlated from row to row it learns its path by heart, and goes on from its
end in a straight line: worse than not knowing the time. If there is a trend or a season, the time is worth much. So two
trial fits, with and without the column, are judged forward in time.

With ``--time`` a last fit comes after the search. A member that judges a block in time has not learned from that block,
nor from any row after it. The members that serve should know the newest rows. So, after the choice and the calibration,
every member goes on from its kept parameters, for few steps and at the chosen temperature, on as many of the newest
rows as it saw of the oldest when it was judged (`model.tables.splits.Split.newest`). No row is left to say when to
stop.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.fit import Fit, default_batch_size, fit
from murho.model.bbb.network import learned_tensors
from murho.model.bbb.rows import Rows
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.encoding.feature_distribution import FeatureDistribution, QuantileScores
from murho.model.encoding.imputation import imputed_columns
from murho.model.encoding.unlike import Distances
from murho.model.errors import FitError
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.evaluation.totals import calibrate_totals
from murho.model.runtime import at_most_threads
from murho.model.seeds import seed_for
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, json_cells
from murho.model.training.candidates import SHARE_OF_SEARCH, Attempt, Candidate, Reporter, SearchResult, Stage
from murho.model.training.extrapolation import extrapolation_trial, with_extrapolation_prior
from murho.model.training.idle_features import note_of_unread
from murho.model.training.prepared_table import PreparedTable, prepare_table, rows_for_budget
from murho.model.training.rows import TrainingData, learnable_rows
from murho.model.training.search import fit_options, search, trial
from murho.model.training.tasks import likelihood_spec
from murho.model.training.tree_check import check_trees
from murho.model.training.weight_spread import scale_weights, weight_factor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.evaluation.rows import JudgedRows
    from murho.model.tables.splits import HeldOut
    from murho.model.training.options import TrainOptions


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
        table: The table, as `model.tables.files.read_table` returns it.
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
    began = time.monotonic()
    prepared = prepare_table(table, target, options)
    for line in prepared.left_out_lines():
        reporter.say(line)
    return train_on(rows_for_budget(prepared), reporter=reporter, device=device, began=began)


SHARE_TO_FINISH = 0.2
"""Share of a budget by the clock that calibration and report take on a sample of the rows."""
ROWS_IN_A_HURRY = 500
"""Most rows that calibrate and score a training which was interrupted after the search: about a second."""


@at_most_threads()
def train_on(prepared: PreparedTable, *, reporter: Reporter, began: float, device: str = "cpu") -> Trained:
    """Fit a BBB network to a prepared table.

    Args:
        prepared: The table; the user knows which columns are left out.
        reporter: Gets the progress.
        began: When the user began to wait, in monotonic seconds, for ``--budget``.
        device: Device of the fit.

    Returns:
        The content of a checkpoint. After a KeyboardInterrupt it holds the best parameters so far and is marked as
        interrupted. Interrupted during the calibration, it is calibrated on fewer rows.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        KeyboardInterrupt: Interrupted before the first fit was scored, or again while calibrating in a hurry.
    """
    options = prepared.options
    for line in prepared.notes:
        reporter.say(line)
    data = learnable_rows(prepared, reporter.say)
    if options.time is not None:
        data = choose_time_feature(data, options.time, options, reporter, device)
    kept_back = SHARE_TO_FINISH * options.budget if options.budget and prepared.rows is not None else 0.0
    result = search(data, options, reporter, device, began, kept_back)
    try:
        reporter.say(f"chose {result.best.candidate}")
        unread = result.best.candidate.inputs.unread_by_all
        if unread:
            reporter.say(note_of_unread(unread, len(data.schema.features)))
        if result.interrupted:
            reporter.say(f"interrupted: kept the best parameters so far (epoch {result.fit.best_epoch})")
        return _finished(data, result, options, began, reporter, device, None)
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: calibrating on at most {ROWS_IN_A_HURRY} rows, then saving; Ctrl-C once more ends without a "
            "checkpoint"
        )
        result = replace(result, interrupted=True)
        return _finished(data, result, options, began, reporter, device, ROWS_IN_A_HURRY)


def choose_time_feature(
    data: TrainingData, time: str, options: TrainOptions, reporter: Reporter, device: str
) -> TrainingData:
    """Leave the time out of the features if later rows are then predicted better.

    Args:
        data: The table, split forward in time.
        time: The column of ``--time``.
        options: Options of the training.
        reporter: Gets the progress.
        device: Device of the fits.

    Returns:
        ``data``, or the same without the column. It is ``data`` where nothing can be compared: if the column is no
        feature or the only one, or if no row is judged forward.
    """
    others = tuple(feature for feature in data.schema.features if feature.name != time)
    if not others or len(others) == len(data.schema.features) or data.split.validation is data.split.training:
        return data
    reason = "later rows are predicted better without it"
    schema = Schema(others, data.schema.target, {**data.schema.left_out, time: reason})
    without = replace(
        data, schema=schema, columns={name: column for name, column in data.columns.items() if name != time}
    )
    try:
        losses = []
        for title, tried in ((f"with {time!r}", data), (f"without {time!r}", without)):
            reporter.say(f"a trial {title} as a feature, judged on later rows:")
            losses.append(trial(tried, options, reporter, device).loss)
    except FitError:
        return data
    if losses[1] >= losses[0]:
        return data
    reporter.say(f"left out column {time!r}: {reason}")
    return without


def _finished(
    data: TrainingData,
    result: SearchResult,
    options: TrainOptions,
    began: float,
    reporter: Reporter,
    device: str,
    most_rows: int | None,
) -> Trained:
    """Calibrate, score and describe the outcome of a search, on at most so many rows; None: all that are held out."""
    chosen, candidate = result.fit, result.best.candidate
    fits = len(result.attempts)
    reporter.stage(Stage("calibrating and scoring on held-out rows", fits, fits, done=SHARE_OF_SEARCH, share=0.0))
    split, targets = data.split, data.targets
    classes, target = data.schema.target.classes, data.standardisation(candidate.transform)
    architecture = chosen.network.architecture
    encoder, encoded = data.encoder(candidate.inputs), data.encoded(candidate.inputs)
    learned_targets = targets[split.learned]
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=likelihood_spec(candidate.noise, candidate.transform, data, options),
        target=target,
        schema=data.schema,
        encoder=encoder,
        default_seed=options.seed,
    )
    learned = learned_tensors(chosen.network, chosen.likelihood)
    groups = _at_most(most_rows, split.held_out(architecture.members))
    units, grouped = (None, False) if split.units is None else (split.units.of_rows, split.units.grouped)
    spread = 1.0
    if classes is None and options.temperature is None and not (grouped or split.forward):
        spread = weight_factor(Posterior(spec, learned, engine="torch"), encoded, targets, groups, data.weights)
        learned = scale_weights(learned, spread)
    slopes: Mapping[int, float] = dict.fromkeys(encoder.zero_in_training, 0.0)

    def beyond_range(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return with_extrapolation_prior(tensors, architecture, slopes, means=chosen.likelihood.means)

    if encoder.textbook:
        slopes = {}
    else:
        # The fit leaves such weights near their random start: the trial does without them.
        extrapolation = extrapolation_trial(
            Posterior(spec, beyond_range(learned), engine="torch"),
            data.learned_columns,
            data.spread(candidate.transform),
        )
        slopes = extrapolation.slopes
        spec = replace(spec, encoder=replace(encoder, continuations=extrapolation.continuations))
    # Compiled code, which the fits have loaded: a report asks for more answers than the calibration.
    posterior = Posterior(spec, beyond_range(learned))
    calibrated = calibrate_held_out(
        posterior,
        encoded,
        targets,
        groups,
        calibrating=range(len(groups)) if split.folds is not None else range(1, len(groups)),
        weights=data.weights,
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
    if split.forward and split.validation is not split.training and not result.interrupted:
        served = fit_to_newest_rows(data, candidate, chosen, options, reporter, device)
        posterior = Posterior(spec, beyond_range(learned_tensors(served.network, served.likelihood)))
    training = {
        "rows": len(split.learned),
        "validation_rows": len(split.validation),
        "calibration_rows": len(split.calibration),
        "left_out_rows": data.left_out,
        "epochs": chosen.epochs,
        "best_epoch": chosen.best_epoch,
        "stopped": chosen.stopped,
        "interrupted": result.interrupted,
        "temperature": candidate.temperature,
        "weight_spread": spread,
        "candidates": [attempt.to_json() | {"chosen": attempt is result.best} for attempt in result.attempts],
        "options": options.model_dump(mode="json"),
        "example": _example(data.schema, encoder.distribution),
        "targets": _distribution(learned_targets, classes),
        "seconds": round(time.monotonic() - began, 3),
    }
    metrics = {**calibrated.metrics, "held_out": split.validation is not split.training}
    checked = classes is None and data.weights is None and most_rows is None
    if checked and (trees := check_trees(metrics, data.columns, targets, split)):
        metrics["trees"] = trees
        if options.quick:
            reporter.say("boosted trees predict held-out rows better than this first look: train without --quick")
    spec = spec.made_now(calibration=calibrated.conformal, totals=totals, metrics=metrics, training=training)
    evidence = Evidence(data.columns, targets, data.row_numbers, calibrated.held_out, result.attempts, result.best)
    return Trained(posterior.described(spec), evidence)


def _at_most(rows: int | None, groups: Sequence[HeldOut]) -> list[HeldOut]:
    """The groups of held-out rows, each cut to its share of so many rows; None: whole."""
    if rows is None:
        return list(groups)
    most = max(1, rows // len(groups))
    return [replace(group, rows=group.rows[:most]) for group in groups]


def _distribution(targets: NDArray[np.float64], classes: tuple[str, ...] | None) -> dict[str, Any] | None:
    """Quantiles of the training targets, or rows of each class, for those who show a prediction beside them."""
    if classes is not None:
        counts = np.bincount(targets.astype(np.int64), minlength=len(classes))
        return {"classes": dict(zip(classes, counts.tolist(), strict=True))}
    scores = QuantileScores.fit(targets)
    return None if scores is None else scores.to_json()


STEPS = 500
LEARNING_RATE = 0.1
"""First learning rate, as a share of the usual one: weights move to what the newest rows add, and not anywhere else."""
SHOWN = 256


def fit_to_newest_rows(
    data: TrainingData, candidate: Candidate, kept: Fit, options: TrainOptions, reporter: Reporter, device: str
) -> Fit:
    """Continue a fit on the newest rows, without early stopping.

    Args:
        data: The table.
        candidate: The choices of the search.
        kept: The fit whose members were judged; it is not changed.
        options: Options of the training.
        reporter: Gets the progress.
        device: Device of the fit.

    Returns:
        The continued fit, or ``kept`` if the continued one became non-finite.
    """
    rows = data.newest_rows(candidate.inputs, candidate.transform)
    minibatches = math.ceil(len(rows) / (options.batch_size or default_batch_size(len(rows))))
    title = "on the newest rows"
    network, likelihood = copy.deepcopy((kept.network, kept.likelihood))
    reporter.begin(title)
    try:
        return fit(
            network,
            likelihood,
            options.make_prior(),
            rows,
            Rows(rows.features[-SHOWN:], rows.targets[-SHOWN:]),  # progress to look at: it decides nothing
            fit_options(
                options,
                len(rows),
                rate=LEARNING_RATE,
                epochs=min(options.epochs or STEPS, max(1, round(STEPS / minibatches))),
                patience=None,
                warm_up_steps=0,
                temperature=kept.temperature,
                seed=seed_for(options.seed, "newest rows"),
            ),
            device=torch.device(device),
            progress=reporter,
        )
    except FitError as error:
        reporter.say(f"{title}: passed over: {error}")
        return kept
    finally:
        reporter.end()


def _example(schema: Schema, distribution: FeatureDistribution | None) -> dict[str, Any] | None:
    """A made-up row as a JSON record for a request: of some drawn from the fitted distribution, the most ordinary one.

    None if the rows were too few for a distribution.
    """
    if distribution is None:
        return None
    features = tuple(replace(feature, missing=False, imputed=True) for feature in schema.features)
    nothing = {
        each.name: np.array([None], object) if each.kind is FeatureKind.CATEGORICAL else np.array([np.nan])
        for each in features
    }
    drawn = imputed_columns(distribution, replace(schema, features=features), nothing)
    row = int(Distances.of(distribution, drawn).whole.max(axis=0).argmin())
    return {each.name: _cell(each, drawn[each.name][row], distribution) for each in features}


def _cell(feature: Feature, value: Any, distribution: FeatureDistribution) -> Any:
    """A drawn value as people would write it: of three digits, or whole where the training rows' are."""
    if feature.kind is FeatureKind.CATEGORICAL or value != value:
        return None if value != value else value
    if feature.kind is FeatureKind.BOOLEAN:
        return bool(value)
    knots = distribution.numbers[feature.name].values
    whole = bool(np.all(knots == np.floor(knots)))
    shown = float(np.clip(round(value) if whole else float(f"{value:.3g}"), knots[0], knots[-1]))
    return json_cells(feature, np.array([shown]))[0]
