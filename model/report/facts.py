"""The facts of a report, as plain JSON: assembled after a training, stored beside the checkpoint, and read again.

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
from murho.model.evaluation.subgroups import category_parts
from murho.model.files import parse_json, read_bounded
from murho.model.predictive.prediction import ClassPrediction, PredictOptions
from murho.model.report.held_out_facts import GROUPED_KINDS, held_out_facts, part_name
from murho.model.report.training_charts import MOST_BARS, PRUNING, UPDATE
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
    from murho.model.predictive.prediction import Prediction
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
    "curve_points",
    "curves",
    "doubt_facts",
    "facts_of_data",
    "facts_of_pruning",
    "facts_of_spec",
    "facts_of_training",
    "facts_of_update",
    "report_facts",
    "stored_facts",
    "weight_facts",
]

FORMAT = 1
"""Version of the layout of the facts; those of another one are not read."""
FACTS_PATH = PurePosixPath("report/facts.json")
"""Where the facts lie in the directory of a version."""
MOST_BYTES = 8 * 2**20
"""The largest file of facts that is read: several requests may read one at once."""
SCORES = (
    *("n", "rmse", "mae", "r2", "nll", "crps"),
    *("accuracy", "log_loss", "brier", "auc", "ece", "sets"),
    *("raw", "calibrated"),
)
"""Scores of labelled rows that a report shows: those of numbers, those of classes, and what both have."""
BINS = 20
MOST_CATEGORIES = 12
MOST_POINTS = 150
"""Most epochs of a curve that are kept, evenly spaced: as many as a chart can show."""
MOST_ROWS = 1_000
DOUBT_BINS = 10
MOST_DOUBT_CATEGORIES = 10
ROWS_OF_IMPORTANCE, DRAWS_OF_IMPORTANCE = 200, 64
PREDICTIONS_OF_IMPORTANCE = 4_000
"""Rows times shuffles times features whose importance is judged, about a second: `murho importance` takes more."""


def facts_of_spec(spec: ModelSpec, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """What a checkpoint without a stored report tells: no held-out rows, no curves, no distributions.

    Args:
        spec: The specification.
        tensors: Its tensors on the CPU, for the ``weights``; None: without.

    Returns:
        The keys of all facts of a report, None where there is nothing to tell: ``format``, ``created`` and ``murho``;
        ``source``, the file of labelled rows that they are of, None if these are the held-out rows of the training;
        ``target``, ``table`` and ``training``; ``scores``, as ``model.json`` has them, `held_out`
        (`model.report.held_out_facts`), ``doubt`` (`doubt_facts`), ``importance``
        (`model.evaluation.importance`) and ``weights`` (`weight_facts`); and ``revision``, what an update or a
        pruning changed (`facts_of_update`, `facts_of_pruning`).
    """
    return plain(
        {
            "format": FORMAT,
            "created": spec.created,
            "murho": spec.murho,
            "source": None,
            "target": _target(spec, None),
            "table": _table(spec, None),
            "training": _training(spec, None),
            "scores": dict(spec.metrics),
            "held_out": None,
            "doubt": None,
            "importance": None,
            "weights": None if tensors is None else weight_facts(spec, tensors),
            "revision": None,
        }
    )


def facts_of_training(trained: Trained) -> dict[str, Any]:
    """The facts of a training that has just ended."""
    spec, evidence = trained.spec, trained.evidence
    learned = select_rows(evidence.columns, evidence.learned)
    of_held_out = select_rows(evidence.columns, evidence.held_out.rows)
    return facts_of_spec(spec, trained.tensors) | plain(
        {
            "target": _target(spec, evidence.targets),
            "table": _table(spec, learned),
            "training": _training(spec, evidence),
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
    source: str,
) -> dict[str, Any]:
    """The facts of a checkpoint, with those of labelled rows in place of those of the held-out rows.

    Args:
        posterior: The posterior.
        stored: Facts of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each.
        rows: Predictions for them.
        scores: Their scores, as `murho evaluate` reports them.
        source: Name of their file.
    """
    return dict(stored) | plain(
        {
            "source": source,
            "target": _target(posterior.spec, rows.targets),
            "scores": {key: scores[key] for key in SCORES if key in scores},
            "held_out": held_out_facts(rows, posterior.schema, columns),
            "doubt": doubt_facts(posterior, columns),
            "importance": _importance(posterior, columns),
        }
    )


def facts_of_update(updated: Updated, rows: LabelledRows, before: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an updated version.

    Args:
        updated: The outcome.
        rows: The new rows.
        before: The facts of the version that it was made from (`report_facts`).

    Returns:
        The facts of a report. Table, target and candidates are those of the training. The curves go on with the fit of
        the update. Held-out rows and doubt are those of the new rows; without held-out ones, the scores are those of
        the version before. ``revision`` has ``kind``, what ``model.json`` says of the update, and the full ``scores``
        of both versions on the new rows.
    """
    spec = updated.revision.spec
    record = spec.records["update"]
    fit = [{"stage": UPDATE, **curve_points(updated.history)}] if updated.history else []
    training = {
        **before["training"],
        "curves": [*(before["training"]["curves"] or []), *fit] or None,
        "calibration_rows": None if spec.calibration is None else spec.calibration.rows,
    }
    return facts_of_spec(spec, updated.revision.tensors) | plain(
        {
            "target": before["target"],
            "table": {**before["table"], "rows": record["total_rows"]},
            "training": training,
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
        before: The facts of the version that it was made from (`report_facts`).

    Returns:
        The facts of a report, as `facts_of_update` has them. Without rows there are neither scores nor held-out rows:
        those of the whole network are not true of this one. ``revision`` has the histogram of the weights.
    """
    spec = pruned.revision.spec
    scores = None if pruned.before is None else {"before": pruned.before, "after": pruned.after}
    return facts_of_spec(spec) | plain(
        {
            **{key: before[key] for key in ("target", "table", "training")},
            **({} if rows is None else _judged(pruned.revision.posterior, rows, pruned.judged)),
            "revision": {"kind": PRUNING, **spec.records["pruning"], "scores": scores},
        }
    )


def _judged(posterior: Posterior, rows: LabelledRows, judged: HeldOutRows | HeldOutClasses | None) -> dict[str, Any]:
    """What labelled rows say: of the predictions, where they were judged, and of doubt."""
    held_out = None
    if judged is not None:
        held_out = held_out_facts(judged, posterior.schema, select_rows(rows.columns, judged.rows))
    return {"held_out": held_out, "doubt": doubt_facts(posterior, rows.columns)}


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
    """The facts of a version, for whoever shows them: the stored ones, else `facts_of_spec` (``--no-report``).

    Args:
        directory: ``NAME/VERSION``.
        spec: Its specification, if it is at hand; else ``model.json`` is read where it is needed.

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
    return {key: _rounded(value) for key, value in facts.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _target(spec: ModelSpec, targets: NDArray[np.float64] | None) -> dict[str, Any]:
    """Name, unit and classes of the target and, with its values ``[n]`` (of classes indices), their distribution."""
    target = spec.schema.target
    facts: dict[str, Any] = {"name": target.name, "unit": target.unit}
    if target.classes is not None:
        facts["classes"] = list(target.classes)
        if targets is not None:
            facts["counts"] = np.bincount(targets.astype(np.int64), minlength=len(target.classes)).tolist()
    elif targets is not None:
        summary = {"min": targets.min(), "median": np.median(targets), "max": targets.max(), "std": targets.std()}
        facts |= {name: float(value) for name, value in summary.items()} | {"counts": _counts(targets)}
    return facts


def _counts(values: NDArray[np.float64]) -> list[int]:
    """Numbers of values in equal bins from the least to the largest one; empty without a value."""
    counts: list[int] = np.histogram(values, BINS)[0].tolist()
    return counts if len(values) else []


def _table(spec: ModelSpec, columns: Columns | None) -> dict[str, Any]:
    """The columns of a table.

    Args:
        spec: The specification of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each; None: only what the specification tells.

    Returns:
        ``rows`` that were learned from, ``left_out_rows``, ``left_out`` (column → reason), ``advice``, and
        ``features``, each as `Feature.describe`, with ``missing_share``, and ``counts`` of its bins or categories.
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
    present = column[~missing]
    if feature.kind is FeatureKind.CATEGORICAL:
        counts = [rows for _, rows in Counter(present.tolist()).most_common(MOST_CATEGORIES)]
    elif feature.kind is FeatureKind.BOOLEAN:
        counts = [int((present == value).sum()) for value in (True, False)]
    else:
        counts = _counts(present.astype(np.float64))
    return {"missing_share": float(missing.mean()), "counts": counts}


def _training(spec: ModelSpec, evidence: Evidence | None) -> dict[str, Any]:
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
        "free_energy": [epoch.free_energy for epoch in epochs],
        "nll": [epoch.negative_log_likelihood for epoch in epochs],
        "kl": [epoch.kl for epoch in epochs],
        "validation": [epoch.validation for epoch in epochs],
    }


def doubt_facts(posterior: Posterior, columns: Columns, *, seed: int = 0) -> dict[str, Any]:
    """The epistemic share of the variance, or entropy, of what the posterior answers for some rows.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each; at most 1,000 of them are used.
        seed: Seed of the choice of rows.

    Returns:
        ``of``, ``variance`` or ``entropy``; ``rows`` used; the ``share`` of all of them; and ``features``: for each
        ``name``, ``unit``, and ``bins`` in order, each with ``from`` and ``to`` or ``category`` (None: missing),
        ``rows`` and ``share``.
    """
    count = len(next(iter(columns.values())))
    if count > MOST_ROWS:
        columns = select_rows(columns, np.sort(np.random.default_rng(seed).choice(count, MOST_ROWS, replace=False)))
    parts = _uncertainty(posterior.predict(columns, PredictOptions(percentiles=())))

    def share(rows: slice | NDArray[np.int64]) -> float:
        epistemic, total = parts[:, rows].sum(axis=1)
        return float(epistemic / total) if total > 0.0 else 0.0

    return {
        "of": "variance" if posterior.schema.target.classes is None else "entropy",
        "rows": parts.shape[1],
        "share": share(slice(None)),
        "features": [
            {
                "name": feature.name,
                "unit": feature.unit,
                "bins": [
                    {**place, "rows": len(rows), "share": share(rows)}
                    for place, rows in _bins(feature, columns[feature.name])
                ],
            }
            for feature in posterior.schema.features
        ],
    }


def _uncertainty(answer: Prediction | ClassPrediction) -> NDArray[np.float64]:
    """Epistemic and whole variance of every row, of classes its entropy, ``[2, n]``."""
    if isinstance(answer, ClassPrediction):
        if answer.entropy is None or answer.epistemic_entropy is None:
            raise ValueError("an answer with draws has both parts of the entropy")
        return np.stack((answer.epistemic_entropy, answer.entropy))
    if answer.epistemic_std is None or answer.aleatoric_std is None:
        raise ValueError("an answer with draws has both parts of the standard deviation")
    return np.stack((answer.epistemic_std**2, answer.epistemic_std**2 + answer.aleatoric_std**2))


def _bins(feature: Feature, column: NDArray[Any]) -> list[tuple[dict[str, Any], NDArray[np.int64]]]:
    """Bins of a feature with their rows: tenths of the rows, or its largest categories; missing cells come last."""
    if feature.kind in GROUPED_KINDS:
        parts = [(part_name(part), part.rows) for part in category_parts(feature, column)]
        return sorted(parts[:MOST_DOUBT_CATEGORIES], key=lambda part: part[0] == {"category": None})
    missing = is_missing(column)
    present = np.flatnonzero(~missing)
    found: list[tuple[dict[str, Any], NDArray[np.int64]]] = []
    if len(present):
        values = column[present].astype(np.float64)
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, DOUBT_BINS + 1)))
        places = np.searchsorted(edges[1:-1], values, side="right")
        for place in np.unique(places):
            inside = values[places == place]
            ends = [_shown(feature, float(end)) for end in (inside.min(), inside.max())]
            found.append(({"from": ends[0], "to": ends[1]}, present[places == place]))
    if missing.any():
        found.append(({"category": None}, np.flatnonzero(missing)))
    return found


def _shown(feature: Feature, value: float) -> float | str:
    return format_date(value) if feature.kind is FeatureKind.DATE else value


def weight_facts(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The signal-to-noise ratios ``|mu| / sigma`` of the weights (`model.training.pruning`).

    Args:
        spec: The specification of the checkpoint.
        tensors: Its tensors by name, on the CPU.

    Returns:
        ``edges`` of the bins and ``counts`` in them, without held weights: those of inputs that are zero for every
        training row, and of inputs that their member does not read.
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
    }


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
