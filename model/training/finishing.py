"""From the outcome of a search to the content of a checkpoint: calibrated and scored on held-out rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.cells import format_date
from murho.model.data.schema import FeatureKind
from murho.model.engines.selection import engine_worth
from murho.model.evaluation.cross_calibration import SAMPLES
from murho.model.fitting.training_data import select_rows
from murho.model.networks.named_tensors import learned_tensors
from murho.model.networks.read_inputs import without_unread
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.training.candidates import Stage
from murho.model.training.evidence import Evidence
from murho.model.training.extrapolation_prior import with_extrapolation_prior
from murho.model.training.extrapolation_trial import extrapolation_trial
from murho.model.training.last_fit import fit_to_newest_rows
from murho.model.training.stages import SHARE_OF_SEARCH
from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from murho.model.data.schema import Columns, Schema
    from murho.model.data.splits import HeldOut
    from murho.model.training.candidates import Reporter, SearchResult
    from murho.model.training.learnable_rows import LearnableRows
    from murho.model.training.options import TrainOptions

__all__ = ["Trained", "finish"]

ANSWERS_OF_A_JUDGED_ROW = 4
"""Judging a row and computing its bands takes about as long as so many answers."""


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
    encoder = data.encoder(candidate.inputs)
    reads = data.reads(candidate.inputs, architecture.members)
    tensors = without_unread(learned_tensors(chosen.network, chosen.likelihood), architecture, reads)
    spec = ModelSpec(
        architecture=architecture,
        prior=options.make_prior(),
        likelihood=task.likelihood_spec(chosen.likelihood, data),
        target=data.standardisation(candidate.transform),
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
    groups = _at_most(most_rows, split.held_out(architecture.members))
    # Of a sample for a short budget few rows are judged: loading compiled code would take longer, and 110 MiB.
    judged = sum(len(group.rows) for group in groups)
    engine = engine_worth(min(len(targets), ANSWERS_OF_A_JUDGED_ROW * judged), SAMPLES)
    calibrated = task.calibrate(
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
        "advice": [piece.to_json() for piece in rows.advice],
        **_facts_of_search(result),
        "options": options.model_dump(mode="json"),
        "example": _example(schema, learned_columns),
        "targets": task.distribution(targets[split.learned]),
        "seconds": round(time.monotonic() - began, 3),
    }
    if result.full_search is not None:
        training["full_search"] = result.full_search.to_json()
    spec = spec.made_now(calibration=calibrated.conformal, metrics=calibrated.metrics, training=training)
    evidence = Evidence(
        data.columns, targets, rows.row_numbers, split.learned, calibrated.held_out, result.attempts, result.best
    )
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
        "candidates": [attempt.to_json() for attempt in result.attempts],
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
