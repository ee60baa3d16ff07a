"""The facts of a report, as plain JSON: assembled after a training, stored beside the checkpoint, and read again.

They hold summaries, curves and histograms, some tens of kilobytes whatever the size of the table, and no row of it.
`report_facts` is for whoever shows them, such as the page of the service.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from murho.model.evaluation.importance_screen import screened_features
from murho.model.evaluation.permutation_importance import permutation_importance
from murho.model.report.doubt_facts import doubt_facts, weight_facts
from murho.model.report.held_out_facts import held_out_facts
from murho.model.report.importance_chart import MOST_FEATURES
from murho.model.report.table_facts import table_facts, target_facts
from murho.model.report.training_facts import training_facts
from murho.model.runtime.checkpoint_files import parse_json, read_bounded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from murho.model.data.schema import Columns
    from murho.model.evaluation.class_held_out import HeldOutClasses
    from murho.model.evaluation.held_out_rows import HeldOutRows
    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.posterior.posterior import Posterior
    from murho.model.training.train import Trained

__all__ = [
    "FACTS_PATH",
    "FORMAT",
    "facts_of_data",
    "facts_of_spec",
    "facts_of_training",
    "report_facts",
    "stored_facts",
]

SCORES = (
    *("n", "rmse", "mae", "r2", "nll", "crps"),
    *("accuracy", "log_loss", "brier", "auc", "ece", "sets"),
    *("raw", "calibrated"),
)
"""Scores of labelled rows that a report shows: those of numbers, those of classes, and what both have."""
FORMAT = 1
"""Version of the layout of the facts; those of another one are not read."""
ROWS_OF_IMPORTANCE, DRAWS_OF_IMPORTANCE = 200, 64
PREDICTIONS_OF_IMPORTANCE = 4_000
"""Rows times shuffles times features whose importance is judged, about a second: `murho importance` takes more."""
FACTS_PATH = PurePosixPath("report/facts.json")
"""Where the facts lie in the directory of a version."""
MOST_BYTES = 8 * 2**20
"""The largest file of facts that is read: several requests may read one at once."""


def facts_of_spec(spec: ModelSpec, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """What a checkpoint without a stored report tells: no held-out rows, no curves, no distributions.

    Args:
        spec: The specification.
        tensors: Its tensors on the CPU, for the ``weights``; None: without.
    """
    return plain(
        {
            "format": FORMAT,
            "created": spec.created,
            "murho": spec.murho,
            "rows_are": "held out",
            "target": target_facts(spec, None),
            "table": table_facts(spec, None),
            "training": training_facts(spec, None),
            "scores": dict(spec.metrics),
            "held_out": None,
            "doubt": None,
            "importance": None,
            "weights": None if tensors is None else weight_facts(spec, tensors),
        }
    )


def facts_of_training(trained: Trained) -> dict[str, Any]:
    """The facts of a training that has just ended."""
    spec, evidence = trained.spec, trained.evidence
    learned = {name: column[evidence.learned] for name, column in evidence.columns.items()}
    of_held_out = {name: column[evidence.held_out.rows] for name, column in evidence.columns.items()}
    return facts_of_spec(spec, trained.tensors) | plain(
        {
            "target": target_facts(spec, evidence.targets),
            "table": table_facts(spec, learned),
            "training": training_facts(spec, evidence),
            "held_out": held_out_facts(evidence.held_out, spec.schema, of_held_out),
            "doubt": doubt_facts(trained.posterior, learned),
            "importance": _importance(trained.posterior, learned),
        }
    )


def facts_of_data(
    posterior: Posterior,
    stored: Mapping[str, Any],
    columns: Columns,
    rows: HeldOutRows | HeldOutClasses,
    scores: Mapping[str, Any],
) -> dict[str, Any]:
    """The facts of a checkpoint, with those of labelled rows in place of those of the held-out rows.

    Args:
        posterior: The posterior.
        stored: Facts of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each.
        rows: Predictions for them.
        scores: Their scores, as `model.evaluation.evaluate.evaluate_in_full` reports them.
    """
    return dict(stored) | plain(
        {
            "rows_are": "given",
            "target": target_facts(posterior.spec, rows.targets),
            "scores": {key: scores[key] for key in SCORES if key in scores},
            "held_out": held_out_facts(rows, posterior.schema, columns),
            "doubt": doubt_facts(posterior, columns),
            "importance": _importance(posterior, columns),
        }
    )


def _importance(posterior: Posterior, columns: Columns) -> dict[str, Any] | None:
    """Permutation importance for the answers, of few rows and features; None where there is one row alone.

    ``of_features`` is the number of all features: more than those that are judged, where a screen has chosen these.
    """
    count, of_features = len(next(iter(columns.values()))), len(posterior.schema.features)
    if count < 2:
        return None
    rows = min(count, ROWS_OF_IMPORTANCE)
    features = screened_features(posterior, columns, MOST_FEATURES)
    found = permutation_importance(
        posterior,
        columns,
        repeats=2 if 2 * rows * len(features) <= PREDICTIONS_OF_IMPORTANCE else 1,
        most_rows=rows,
        samples=DRAWS_OF_IMPORTANCE,
        features=features,
    )
    return found | {"of_features": of_features}


def stored_facts(directory: Path) -> dict[str, Any] | None:
    """The facts that a version keeps beside its checkpoint; None where there are none that this Murho reads.

    No checksum covers them: who shows them must not rely on their form.

    Args:
        directory: ``NAME/VERSION``.
    """
    try:
        stored = parse_json(read_bounded(directory / FACTS_PATH, MOST_BYTES))
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and stored.get("format") == FORMAT else None


def report_facts(directory: Path, spec: ModelSpec | None = None) -> dict[str, Any]:
    """The facts of a version, for whoever shows them.

    Args:
        directory: ``NAME/VERSION``.
        spec: Its specification, if it is at hand; else ``model.json`` is read where it is needed.

    Returns:
        The stored facts. Where there are none that this version of Murho reads (``--no-report``),
        those that ``model.json`` tells: then ``held_out``, ``doubt`` and ``training.curves`` are None. The
        keys are the same: ``format, created, murho, rows_are, target, table, training, scores, held_out, doubt,
        importance, weights``; and ``revision`` where an update or a pruning made the version
        (`model.report.revision_facts`).

    Raises:
        CheckpointError: There are no facts, and the checkpoint can't be read either.
    """
    stored = stored_facts(directory)
    if stored is not None:
        return stored
    if spec is not None:
        return facts_of_spec(spec)
    from murho.model.posterior.checkpoint import read_stored

    checkpoint = read_stored(directory)
    return facts_of_spec(checkpoint.spec, checkpoint.tensors)


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with numbers that JSON has, rounded to six digits: a chart shows no more."""
    return {key: _plain_value(value) for key, value in facts.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain_value(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
