"""The facts of a report, as plain JSON: the table, the training, held-out rows, doubt, revisions.

The facts of a report, as plain JSON: assembled after a training, stored beside the checkpoint, and read again.

They hold summaries, curves and histograms, some tens of kilobytes whatever the size of the table, and no row of it.
`report_facts` is for whoever shows them, such as the page of the service.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.rows import select_rows
from murho.model.evaluation.importance import permutation_importance, screened_features
from murho.model.predictive.prediction import PredictOptions
from murho.model.report.held_out_facts import class_target_facts, held_out_facts
from murho.model.report.training_charts import MOST_BARS
from murho.model.runtime import parse_json, read_bounded
from murho.model.tables.cells import format_date
from murho.model.tables.columns import is_missing
from murho.model.tables.schema import FeatureKind
from murho.model.training.pruning import HISTOGRAM_EDGES, extrapolation_inputs, held_weights, signal_to_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.fit_types import Epoch
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.evaluation.class_held_out import HeldOutClasses
    from murho.model.evaluation.held_out import HeldOutRows
    from murho.model.predictive.prediction import ClassPrediction, Prediction
    from murho.model.tables.schema import Columns, Feature
    from murho.model.training.candidates import Attempt
    from murho.model.training.finishing import Evidence
    from murho.model.training.pruning import Pruned
    from murho.model.training.revisions import LabelledRows
    from murho.model.training.train import Trained
    from murho.model.training.updating import Updated

__all__ = [
    "FACTS_PATH",
    "FORMAT",
    "PRUNING",
    "UPDATE",
    "curve_points",
    "curves",
    "doubt_facts",
    "facts_of_data",
    "facts_of_pruning",
    "facts_of_spec",
    "facts_of_training",
    "facts_of_update",
    "histogram",
    "report_facts",
    "stored_facts",
    "table_facts",
    "target_facts",
    "training_facts",
    "weight_facts",
]


BINS = 20
MOST_CATEGORIES = 12


def histogram(values: NDArray[np.float64], bins: int = BINS) -> dict[str, list[Any]] | None:
    """Counts in equal bins from the least to the largest value; None without a value.

    Args:
        values: ``[n]``; NaN is left out.
        bins: Number of bins.

    Returns:
        ``edges``, one more than ``counts``.
    """
    present = values[np.isfinite(values)]
    if not len(present):
        return None
    counts, edges = np.histogram(present, bins)
    return {"edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}


def target_facts(spec: ModelSpec, targets: NDArray[np.float64] | None) -> dict[str, Any]:
    """Name and unit of the target and, with its values ``[n]``, their distribution."""
    target = spec.schema.target
    if target.classes is not None:
        return class_target_facts(spec, targets)
    facts: dict[str, Any] = {"name": target.name, "unit": target.unit}
    if targets is None:
        return facts
    summary = {"min": targets.min(), "median": np.median(targets), "max": targets.max(), "std": targets.std()}
    return facts | {name: float(value) for name, value in summary.items()} | {"histogram": histogram(targets)}


def table_facts(spec: ModelSpec, columns: Columns | None) -> dict[str, Any]:
    """The columns of a table.

    Args:
        spec: The specification of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each; None: only what the specification tells.

    Returns:
        ``rows`` that were learned from, ``left_out_rows``, ``left_out`` (column → reason), ``advice``, and
        ``features``, each as `Feature.describe`, with ``missing_share``, and ``histogram`` or ``counts``.
    """
    training = spec.training
    return {
        "rows": training.get("rows"),
        "left_out_rows": training.get("left_out_rows", 0),
        "left_out": dict(spec.schema.left_out),
        "advice": [piece.get("message", "") for piece in training.get("advice", [])],
        "features": [
            {**feature.describe(), **({} if columns is None else _distribution(feature, columns[feature.name]))}
            for feature in spec.schema.features
        ],
    }


def _distribution(feature: Feature, column: NDArray[Any]) -> dict[str, Any]:
    missing = is_missing(column)
    facts: dict[str, Any] = {"missing_share": float(missing.mean())}
    present = column[~missing]
    if feature.kind is FeatureKind.CATEGORICAL:
        counted = Counter(present.tolist()).most_common()
        facts["counts"] = [{"category": name, "rows": rows} for name, rows in counted[:MOST_CATEGORIES]]
        facts["further_categories"] = max(0, len(counted) - MOST_CATEGORIES)
    elif feature.kind is FeatureKind.BOOLEAN:
        facts["counts"] = [{"category": value, "rows": int((present == value).sum())} for value in (True, False)]
    else:
        made = histogram(present.astype(np.float64))
        if made is not None and feature.kind is FeatureKind.DATE:
            made["edges"] = [format_date(edge) for edge in made["edges"]]
        facts["histogram"] = made
    return facts


MOST_POINTS = 150
"""Most epochs of a curve that are kept, evenly spaced: as many as a chart can show."""


def training_facts(spec: ModelSpec, evidence: Evidence | None) -> dict[str, Any]:
    """How the checkpoint was made.

    Args:
        spec: Its specification.
        evidence: What the training knows besides; None: without curves.

    Returns:
        ``seconds, members, hidden, noise, transform, encoding, prior, temperature, seed, parameters, interrupted``,
        ``candidates`` with ``chosen`` for the kept one, and ``curves`` (`curves`; None without evidence).
    """
    training = spec.training
    candidates = [dict(candidate) for candidate in training.get("candidates", [])]
    kept = _chosen(candidates, training, evidence)
    for number, candidate in enumerate(candidates):
        candidate["chosen"] = number == kept
    sizes = (math.prod(shape) for name, shape in spec.architecture.shapes().items() if name.endswith(".mu"))
    return {
        "seconds": training.get("seconds"),
        "interrupted": training.get("interrupted", False),
        "members": spec.architecture.members,
        "hidden": list(spec.architecture.hidden),
        "parameters": 2 * sum(sizes),
        "noise": spec.likelihood.kind,
        "transform": spec.target.transform.kind,
        "encoding": candidates[kept]["encoding"] if kept is not None else None,
        "prior": training.get("options", {}).get("prior"),
        "temperature": spec.temperature,
        "seed": spec.default_seed,
        "validation_rows": training.get("validation_rows"),
        "calibration_rows": training.get("calibration_rows"),
        "candidates": candidates,
        "curves": None if evidence is None else curves(evidence.attempts, evidence.chosen),
    }


def _chosen(candidates: Sequence[Any], training: Any, evidence: Evidence | None) -> int | None:
    """Number of the kept candidate; without evidence the last one of its temperature."""
    if evidence is not None:
        return next((n for n, attempt in enumerate(evidence.attempts) if attempt is evidence.chosen), None)
    fitting = [n for n, candidate in enumerate(candidates) if candidate["temperature"] == training.get("temperature")]
    return fitting[-1] if fitting else None


def curves(attempts: Sequence[Attempt], chosen: Attempt) -> list[dict[str, Any]]:
    """The epochs of the kept fit and, if it continued the full fit, of that one before it.

    Returns:
        One entry a fit: ``stage``, and the lists ``epoch, free_energy, nll, kl, validation``, all in nats per row of
        standardised targets; ``validation`` is None before the first one.
    """
    before = [attempt for attempt in attempts if attempt.stage == "full" and attempt is not chosen and attempt.history]
    fits = [*(before[-1:] if chosen.stage == "settling" else []), chosen]
    return [{"stage": attempt.stage, **curve_points(attempt.history)} for attempt in fits if attempt.history]


def curve_points(history: Sequence[Epoch]) -> dict[str, list[Any]]:
    """The curves of one fit, as `curves` lists them, from all its epochs."""
    places = np.unique(np.linspace(0, len(history) - 1, min(MOST_POINTS, len(history))).round().astype(int))
    epochs = [history[place] for place in places]
    return {
        "epoch": [epoch.number for epoch in epochs],
        "free_energy": [_short(epoch.free_energy) for epoch in epochs],
        "nll": [_short(epoch.negative_log_likelihood) for epoch in epochs],
        "kl": [_short(epoch.kl) for epoch in epochs],
        "validation": [_short(epoch.validation) for epoch in epochs],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


MOST_ROWS = 1_000
DOUBT_BINS = 10
MOST_DOUBT_CATEGORIES = 10


def doubt_facts(posterior: Posterior, columns: Columns, *, seed: int = 0) -> dict[str, Any]:
    """The epistemic share of the variance of what the posterior answers for some rows.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each; at most 1,000 of them are used.
        seed: Seed of the choice of rows.

    Returns:
        ``rows`` used, the ``share`` of all of them, and ``features``: for each ``name``, ``kind``, ``unit``, and
        ``bins`` in order, each with ``from`` and ``to`` or ``category`` (None: missing), ``rows``, ``share``,
        ``epistemic_std`` and ``std`` (root mean squares, the target's unit), or of a classifier ``epistemic_entropy``
        and ``entropy`` (means, nats). ``of`` says of what the share is: ``variance`` or ``entropy``.
    """
    count = len(next(iter(columns.values())))
    if count > MOST_ROWS:
        columns = select_rows(columns, np.sort(np.random.default_rng(seed).choice(count, MOST_ROWS, replace=False)))
    answer = posterior.predict(columns, PredictOptions(percentiles=()))
    of_classes = posterior.schema.target.classes is not None
    squares = _entropies(answer) if of_classes else _variances(answer)
    return {
        "of": "entropy" if of_classes else "variance",
        "rows": len(squares),
        "share": _share(squares),
        "features": [
            {
                "name": feature.name,
                "kind": str(feature.kind),
                "unit": feature.unit,
                "bins": [
                    {
                        **place,
                        "rows": len(rows),
                        "share": _share(squares[rows]),
                        **_means(squares[rows], of_classes=of_classes),
                    }
                    for place, rows in _bins(feature, columns[feature.name])
                ],
            }
            for feature in posterior.schema.features
        ],
    }


def _variances(answer: Prediction) -> NDArray[np.float64]:
    """Epistemic and whole variance of every row, ``[n, 2]``."""
    epistemic, aleatoric = answer.epistemic_std, answer.aleatoric_std
    if epistemic is None or aleatoric is None:
        raise ValueError("an answer with draws has both parts of the standard deviation")
    return np.stack((epistemic**2, epistemic**2 + aleatoric**2), axis=1)


def _entropies(answer: ClassPrediction) -> NDArray[np.float64]:
    """Epistemic and whole entropy of every row, ``[n, 2]``."""
    if answer.entropy is None or answer.epistemic_entropy is None:
        raise ValueError("an answer with draws has both parts of the entropy")
    return np.stack((answer.epistemic_entropy, answer.entropy), axis=1)


def _means(parts: NDArray[np.float64], *, of_classes: bool) -> dict[str, float]:
    epistemic, total = (float(mean) for mean in parts.mean(axis=0))
    if of_classes:
        return {"epistemic_entropy": epistemic, "entropy": total}
    return {"epistemic_std": epistemic**0.5, "std": total**0.5}


def _share(squares: NDArray[np.float64]) -> float:
    epistemic, total = squares.sum(axis=0)
    return float(epistemic / total) if total > 0.0 else 0.0


def _bins(feature: Feature, column: NDArray[Any]) -> list[tuple[dict[str, Any], NDArray[np.int64]]]:
    """Bins of a feature with their rows: tenths of the rows, or categories; missing cells come last."""
    missing = is_missing(column)
    found: list[tuple[dict[str, Any], NDArray[np.int64]]] = []
    present = np.flatnonzero(~missing)
    if feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN):
        cells = [bool(cell) if feature.kind is FeatureKind.BOOLEAN else cell for cell in column[present]]
        numbers: dict[Any, list[int]] = {}
        for row, cell in zip(present.tolist(), cells, strict=True):
            numbers.setdefault(cell, []).append(row)
        largest = sorted(numbers.items(), key=lambda item: -len(item[1]))[:MOST_DOUBT_CATEGORIES]
        found = [({"category": cell}, np.array(rows)) for cell, rows in largest]
    elif len(present):
        values = column[present].astype(np.float64)
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, DOUBT_BINS + 1)))
        places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
        for place in np.unique(places):
            inside = values[places == place]
            ends = [_shown(feature, end) for end in (inside.min(), inside.max())]
            found.append(({"from": ends[0], "to": ends[1]}, present[places == place]))
    if missing.any():
        found.append(({"category": None}, np.flatnonzero(missing)))
    return found


def _shown(feature: Feature, value: float) -> float | str:
    return format_date(float(value)) if feature.kind is FeatureKind.DATE else float(value)


def weight_facts(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The signal-to-noise ratios ``|mu| / sigma`` of the weights (`model.training.pruning`).

    Args:
        spec: The specification of the checkpoint.
        tensors: Its tensors by name, on the CPU.

    Returns:
        ``edges`` of the bins and ``counts`` in them; ``below_one``, the share of weights with a ratio below 1; and
        ``held``, the number of weights that are not counted: of inputs that are zero for every training row, and of
        inputs that their member does not read.
    """
    names = [f"layers.{index}.weight" for index in range(len(spec.architecture.layers))]
    inputs = extrapolation_inputs(spec.encoder)
    held = torch.cat([part.flatten() for part in held_weights(tensors, spec.architecture, inputs)])
    ratios = torch.cat([signal_to_noise(tensors[f"{n}.mu"], tensors[f"{n}.rho"]).flatten() for n in names])
    free = ratios[~held].numpy()
    logs = np.clip(np.log10(np.maximum(free, 1e-30)), HISTOGRAM_EDGES[0], HISTOGRAM_EDGES[-1])
    return {
        "edges": [float(f"{edge:.4g}") for edge in 10.0**HISTOGRAM_EDGES],
        "counts": np.histogram(logs, HISTOGRAM_EDGES)[0].tolist(),
        "below_one": float(np.mean(free < 1.0)) if len(free) else 0.0,
        "held": int(held.sum()),
    }


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
    features = screened_features(posterior, columns, MOST_BARS)
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
        (`model.report.facts`).

    Raises:
        CheckpointError: There are no facts, and the checkpoint can't be read either.
    """
    stored = stored_facts(directory)
    if stored is not None:
        return stored
    if spec is not None:
        return facts_of_spec(spec)
    from murho.model.checkpoint.checkpoint import read_stored

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


UPDATE, PRUNING = "update", "pruning"


def facts_of_update(updated: Updated, rows: LabelledRows, before: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an updated version.

    Args:
        updated: The outcome.
        rows: The new rows.
        before: The facts of the version that it was made from (`model.report.facts.report_facts`).

    Returns:
        The facts of a report. Table, target and candidates are those of the training. The curves go on with the fit of
        the update. Held-out rows and doubt are those of the new rows; without held-out ones, the scores are those of
        the version before. ``revision`` has ``kind``, what ``model.json`` says of the update, and the full ``scores``
        of both versions on the new rows.
    """
    spec = updated.revision.spec
    record = spec.records["update"]
    fit = {"stage": UPDATE, **curve_points(updated.history)} if updated.history else None
    curves = [*(before["training"]["curves"] or []), *([] if fit is None else [fit])]
    return facts_of_spec(spec, updated.revision.tensors) | plain(
        {
            **_unchanged(before),
            "table": {**before["table"], "rows": record["total_rows"]},
            "training": {**before["training"], "curves": curves or None, "calibration_rows": _calibrated(spec)},
            **_judged(updated.revision.posterior, rows, updated.judged if updated.held_out else None),
            **({"scores": updated.after} if updated.held_out else {}),
            "revision": {"kind": UPDATE, **record, "scores": {"before": updated.before, "after": updated.after}},
        }
    )


def facts_of_pruning(pruned: Pruned, rows: LabelledRows | None, before: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a pruned version.

    Args:
        pruned: The outcome.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from (`model.report.facts.report_facts`).

    Returns:
        The facts of a report, as `facts_of_update` has them. Without rows there are neither scores nor held-out rows:
        those of the whole network are not true of this one. ``revision`` has the histogram of the weights.
    """
    spec = pruned.revision.spec
    record = spec.records["pruning"]
    judged = {"held_out": None, "doubt": None}
    if rows is not None:
        judged = _judged(pruned.revision.posterior, rows, pruned.judged)
    scores = None if pruned.before is None else {"before": pruned.before, "after": pruned.after}
    return facts_of_spec(spec) | plain(
        {**_unchanged(before), **judged, "revision": {"kind": PRUNING, **record, "scores": scores}}
    )


def _calibrated(spec: ModelSpec) -> int | None:
    return None if spec.calibration is None else spec.calibration.rows


def _unchanged(before: Mapping[str, Any]) -> dict[str, Any]:
    return {key: before[key] for key in ("target", "table", "training")}


def _judged(posterior: Posterior, rows: LabelledRows, judged: HeldOutRows | HeldOutClasses | None) -> dict[str, Any]:
    """What labelled rows say: of the predictions, where they were judged, and of doubt."""
    held_out = None
    if judged is not None:
        held_out = held_out_facts(judged, posterior.schema, select_rows(rows.columns, judged.rows))
    return {"held_out": held_out, "doubt": doubt_facts(posterior, rows.columns)}
