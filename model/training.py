"""From a table to a checkpoint's content: split, encode, fit, choose, calibrate, judge."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from model.cells import format_date
from model.encoding import Encoder
from model.errors import TableError
from model.fitting import Epoch, Fit, FitOptions, fit
from model.held_out import calibrate_and_judge
from model.kinds import columns_from_table, make_schema, plan_columns, target_from_table
from model.posterior import Posterior
from model.priors import prior_to_json
from model.schema import FeatureKind
from model.splits import split_rows
from model.validation import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from model.options import TrainOptions
    from model.schema import Columns, Schema

__all__ = ["Reporter", "Trained", "train"]

SMALL_NETWORK, LARGER_NETWORK, ROWS_FOR_A_LARGER_NETWORK = (50,), (64, 64), 2_000
STEPS = 5_000
WARM_UP_SHARE = 0.7
"""Share of a fit over which the KL's factor rises to 1: with a short one the prior prunes units before they learn."""
FEWEST_EPOCHS = 40


class Reporter(Protocol):
    """Is told how a training goes."""

    def say(self, message: str) -> None:
        """A line for people."""
        ...

    def begin(self, title: str) -> None:
        """A fit begins."""
        ...

    def epoch(self, epoch: Epoch) -> None:
        """One more epoch of it is done."""
        ...

    def end(self) -> None:
        """It is done."""
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """What `model.checkpoint.write_checkpoint` writes.

    Attributes:
        facts: ``model.json``.
        tensors: mu, rho and noise parameters by name.
        posterior: The same, ready to answer.
    """

    facts: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    posterior: Posterior


def train(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
) -> Trained:
    """Fits a BBB network to a table.

    Args:
        table: As `model.tables.read_table` reads it.
        target: The predicted column.
        options: Validated options.
        reporter: Is told of the progress.
        device: Where to fit.

    Returns:
        The content of a checkpoint. After a KeyboardInterrupt during the fit it holds the best parameters so
        far and is marked as interrupted.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: The fit became non-finite.
    """
    began = time.monotonic()
    plan = plan_columns(table, target, ignore=options.ignore, overrides=options.overrides())
    for column, reason in plan.left_out.items():
        reporter.say(f"left out column {column!r}: {reason}")
    targets = target_from_table(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    left_out_rows = len(targets) - len(labelled)
    if left_out_rows:
        reporter.say(f"left out {left_out_rows} of {len(targets)} rows: {target!r} is missing")
    table, targets = table.take(labelled), targets[labelled]
    columns = columns_from_table(table, plan)
    split = split_rows(len(targets), options.seed, options.members)
    reporter.say(split.describe())

    training_columns = _rows_of(columns, split.training)
    schema = make_schema(plan, training_columns)
    encoding = "standard" if options.encoding == "auto" else options.encoding
    encoder = Encoder.fit(schema, training_columns, encoding=encoding)
    encoded = encoder.encode(columns)
    location, scale = float(targets[split.training].mean()), float(targets[split.training].std())
    if not (math.isfinite(scale) and scale > 0.0):
        raise TableError(
            f"target {target!r} has the same value in all {len(split.training)} training rows; nothing can be learned"
        )

    def part(rows: NDArray[np.int64]) -> Rows:
        standardised = ((targets[rows] - location) / scale).astype(np.float32)
        folds = None if split.folds is None else torch.from_numpy(split.folds[rows])
        return Rows(torch.from_numpy(encoded[rows]), torch.from_numpy(standardised), folds)

    training, validation = part(split.training), part(split.validation)
    chosen, kind, others = _fit_candidates(training, validation, options, scale, reporter, device)
    if chosen.stopped == "interrupted":
        reporter.say(f"interrupted: kept the best parameters so far (epoch {chosen.best_epoch})")

    tensors = {name: tensor.detach() for name, tensor in chosen.network.named_tensors().items()}
    tensors |= {
        f"noise.{name}": parameter.detach() for name, parameter in chosen.likelihood.named_parameters()
    }
    architecture = chosen.network.architecture
    facts: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "murho": version("murho"),
        "architecture": {
            "inputs": architecture.inputs,
            "hidden": list(architecture.hidden),
            "outputs": architecture.outputs,
            "activation": architecture.activation,
            "members": architecture.members,
            "skip": architecture.skip,
        },
        "prior": prior_to_json(options.make_prior()),
        "likelihood": {
            "kind": kind,
            "sigma": _standardised(options.noise_sigma, scale) if kind == "fixed" else None,
        },
        "target": {
            "name": schema.target.name,
            "unit": schema.target.unit,
            "location": location,
            "scale": scale,
        },
        "schema": schema.to_json(),
        "encoding": encoder.to_json(),
        "calibration": None,
        "default_seed": options.seed,
        "training": {
            "rows": len(split.training),
            "validation_rows": len(split.validation),
            "calibration_rows": len(split.calibration),
            "left_out_rows": left_out_rows,
            "epochs": chosen.epochs,
            "best_epoch": chosen.best_epoch,
            "stopped": chosen.stopped,
            "interrupted": chosen.stopped == "interrupted",
            "validation_nll": chosen.validation + math.log(scale),
            "candidates": others,
            "options": options.model_dump(mode="json"),
            "example": _example(schema, training_columns),
        },
        "metrics": {},
    }
    groups = split.held_out()
    calibrating = range(len(groups)) if split.folds is not None else range(1, len(groups))
    conformal, facts["metrics"] = calibrate_and_judge(
        Posterior(facts, tensors), encoded, targets, groups, calibrating=calibrating
    )
    facts["calibration"] = None if conformal is None else conformal.to_json()
    facts["training"]["seconds"] = round(time.monotonic() - began, 3)
    return Trained(facts, tensors, Posterior(facts, tensors))


def _rows_of(columns: Columns, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    return {name: column[rows] for name, column in columns.items()}


def _standardised(sigma: float | None, scale: float) -> float | None:
    return None if sigma is None else sigma / scale


def _fit_candidates(
    training: Rows, validation: Rows, options: TrainOptions, scale: float, reporter: Reporter, device: str
) -> tuple[Fit, str, dict[str, float]]:
    """Fits every observation model asked for; the lowest validation NLL of the mixture wins."""
    kinds = ["homoscedastic", "heteroscedastic"] if options.noise == "auto" else [options.noise]
    batch_size = options.batch_size or int(np.clip(len(training) // 8, 32, 512))
    minibatches = math.ceil(len(training) / batch_size)
    by_size = SMALL_NETWORK if len(training) < ROWS_FOR_A_LARGER_NETWORK else LARGER_NETWORK
    hidden: tuple[int, ...] = by_size if options.hidden is None else options.hidden
    widths = " and ".join(str(width) for width in hidden)
    reporter.say(
        f"network: hidden layers {widths or 'none'}, {options.activation}; {minibatches} minibatches an epoch"
    )
    epochs = options.epochs or max(FEWEST_EPOCHS, STEPS // minibatches)
    fits: dict[str, Fit] = {}
    for kind in kinds:
        reporter.begin(f"{kind} noise")
        fits[kind] = fit(
            training,
            validation,
            FitOptions(
                prior=options.make_prior(),
                noise=kind,
                noise_sigma=_standardised(options.noise_sigma, scale),
                hidden=hidden,
                activation=options.activation,
                skip=options.skip and bool(hidden),
                members=options.members,
                kl_weights=options.kl_weights,
                draws_per_step=options.draws_per_step,
                optimiser=options.optimiser,
                learning_rate=options.learning_rate,
                batch_size=batch_size,
                epochs=epochs,
                warm_up_steps=round(WARM_UP_SHARE * epochs * minibatches),
                patience=options.patience,
                seed=options.seed,
                budget=None if options.budget is None else options.budget / len(kinds),
            ),
            device=torch.device(device),
            progress=reporter,
        )
        reporter.end()
        if fits[kind].stopped == "interrupted":
            break
    values = {kind: outcome.validation + math.log(scale) for kind, outcome in fits.items()}
    best = min(values, key=values.__getitem__)
    if len(values) > 1:
        compared = ", ".join(f"{kind} {value:.3f}" for kind, value in values.items())
        reporter.say(f"chose {best} noise by validation NLL ({compared} nats per row)")
    return fits[best], best, values


def _example(schema: Schema, columns: Columns) -> dict[str, Any]:
    """The first training row without a missing cell (or the first), as a JSON record that may be sent."""
    complete = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for column in columns.values():
        complete &= (
            np.array([value is not None for value in column]) if column.dtype == object else ~np.isnan(column)
        )
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
