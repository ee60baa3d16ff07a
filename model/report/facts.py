"""The facts of a report, as plain JSON: assembled after a training, stored beside the checkpoint, and read again.

They hold summaries, curves and histograms, some tens of kilobytes whatever the size of the table, and no row of it.
`report_facts` is for whoever shows them, such as the page of the service. Rows of the user's table, the points of the
scatter and those that surprised the model most (`shown_rows`), are data of the one who trains: they are in the page and
its pictures alone, never in the stored facts, and ``--no-report-rows`` leaves them out.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import CheckpointError
from murho.model.evaluation.classes import JudgedClasses
from murho.model.evaluation.importance import mean_shares, permutation_importance, screened_features
from murho.model.evaluation.numbers import COVERAGES, JudgedNumbers
from murho.model.evaluation.rows import BAND, JudgedRows, category_features, category_parts, scores_of_part
from murho.model.files import JSON, parse_json, read_bounded
from murho.model.predictive.prediction import PredictOptions
from murho.model.report.charts import MOST_BARS
from murho.model.tables.cells import format_date
from murho.model.tables.schema import Columns, Feature, FeatureKind, is_missing, select_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.arrays import Doubles, Ints, Places
    from murho.model.bbb.fit import Epoch
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.training.revisions import LabelledRows, Revised
    from murho.model.training.train import Evidence, Trained

FORMAT = 3
"""Version of the layout of the facts; those of another one are not read."""
FACTS_PATH = PurePosixPath("report/facts.json")
"""Where the facts lie in the directory of a version."""
MOST_BYTES = 8 * 2**20
"""The largest file of facts that is read: several requests may read one at once."""
BINS = 20
MOST_CATEGORIES = 12
MOST_EPOCHS = 150
"""Most epochs of a curve that are kept, evenly spaced: as many as a chart can show."""
ROWS_OF_DOUBT = 1_000
ROWS_OF_IMPORTANCE, DRAWS_OF_IMPORTANCE = 200, 64
PREDICTIONS_OF_IMPORTANCE = 4_000
"""Rows times shuffles times features whose importance is judged, about a second: `murho importance` takes more."""
BINS_OF_AGREEMENT = 15
QUANTILES = (0.05, 0.5, 0.95)
MOST_POINTS, MOST_SURPRISING = 1_000, 10
SEED = 0
"""Of the choice of rows where there are too many."""


def facts_of_spec(spec: ModelSpec) -> JSON:
    """What a checkpoint without a stored report tells: no held-out rows, no curves, no distributions.

    Args:
        spec: The specification.

    Returns:
        The keys of all facts of a report, None where there is nothing to tell: ``format``, ``created`` and ``murho``;
        ``source``, the file of labelled rows that they are of, None if these are the held-out rows of the training;
        ``target``, ``table`` and ``training``; ``scores``, as ``model.json`` has them; ``held_out``, what
        `murho evaluate` tells (`model.evaluation.rows.JudgedRows.in_full`) and, of numbers, the ``agreement`` of
        predictions with what was observed; ``doubt``, the epistemic share of the uncertainty along each feature;
        ``importance`` (`model.evaluation.importance`); and ``revision``, what an update or a pruning changed
        (`facts_of_revision`).
    """
    return _plain(
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
            "revision": None,
        }
    )


def facts_of_training(trained: Trained) -> JSON:
    """The facts of a training that has just ended."""
    spec, evidence = trained.spec, trained.evidence
    made = {
        "target": _target(spec, evidence.targets),
        "table": _table(spec, evidence.columns),
        "training": _training(spec, evidence),
        **_told_by(trained.posterior, evidence.columns, evidence.held_out),
    }
    return facts_of_spec(spec) | _plain(made)


def facts_of_data(
    posterior: Posterior, stored: Mapping[str, Any], columns: Columns, judged: JudgedRows, source: str
) -> JSON:
    """The facts of a checkpoint, with those of labelled rows in place of those of the held-out rows.

    Args:
        posterior: The posterior.
        stored: Facts of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each.
        judged: The rows, judged.
        source: Name of their file.
    """
    made = {"source": source, "scores": judged.report()}
    return dict(stored) | _plain(made | _told_by(posterior, columns, judged))


def facts_of_revision(revised: Revised, rows: LabelledRows | None, before: Mapping[str, Any]) -> JSON:
    """The facts of an updated or pruned version.

    Args:
        revised: The version.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from (`report_facts`).

    Returns:
        The facts of a report. Target, table and candidates are those of the training; the curves go on with the fit of
        an update. Held-out rows and doubt are those of the labelled rows. Where an update held none out, the scores are
        those of the version before; a pruning without rows has neither scores nor held-out rows: those of the whole
        network are not true of it. ``revision`` has ``kind``, what ``model.json`` says of it, and the full ``scores``
        of both versions on the labelled rows.
    """
    spec, judged, fits = revised.posterior.spec, revised.judged, before["training"]["curves"] or []
    made = facts_of_spec(spec)
    made["training"] = {
        **before["training"],
        "calibration_rows": made["training"]["calibration_rows"],
        "totals": made["training"]["totals"],
        "curves": [*fits, *([_curve(revised.kind, revised.history)] if revised.history else [])] or None,
    }
    made["target"], made["table"] = before["target"], before["table"] | {"rows": spec.rows_learned}
    scores = None
    if rows is not None:
        made |= _told_by(revised.posterior, rows.columns, judged)
        made |= {} if judged is None else {"scores": revised.after}
        scores = {"before": revised.before, "after": revised.after}
    return _plain(made | {"revision": {"kind": revised.kind, **revised.facts, "scores": scores}})


def stored_facts(read: Callable[[str, int], bytes]) -> JSON | None:
    """The facts that a version keeps beside its checkpoint; None where there are none that this Murho reads.

    No checksum covers them: who shows them must not rely on their form.

    Args:
        read: Reads a file of the version, by its path and the most bytes that it may have.
    """
    try:
        stored = parse_json(read(str(FACTS_PATH), MOST_BYTES))
    except (CheckpointError, OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and stored.get("format") == FORMAT else None


def report_facts(directory: Path, spec: ModelSpec | None = None) -> JSON:
    """The facts of a version, for whoever shows them: the stored ones, else `facts_of_spec` (``--no-report``).

    Args:
        directory: ``NAME/VERSION``.
        spec: Its specification, if it is at hand; else ``model.json`` is read where it is needed.

    Raises:
        CheckpointError: There are no facts, and the checkpoint can't be read either.
    """
    from murho.model.checkpoint.checkpoint import read_stored

    stored = stored_facts(lambda file, most: read_bounded(directory / file, most))
    return stored or facts_of_spec(spec or read_stored(directory).spec)


def _plain(facts: Mapping[str, Any]) -> JSON:
    """Facts with numbers that JSON has, rounded to six digits: a chart shows no more."""
    return {key: _rounded(value) for key, value in facts.items()}


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return _plain(value)
        case list() | tuple():
            return [_rounded(part) for part in value]
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else None
        case other:
            return other


def _target(spec: ModelSpec, targets: Doubles | None) -> JSON:
    """Name, unit and classes of the target and, with its values ``[n]`` (of classes indices), their distribution."""
    target = spec.schema.target
    facts: JSON = {"name": target.name, "unit": target.unit}
    if target.classes is not None:
        facts["classes"] = list(target.classes)
        if targets is not None:
            facts["counts"] = np.bincount(targets.astype(np.int64), minlength=len(target.classes)).tolist()
    elif targets is not None:
        facts |= {"min": float(targets.min()), "max": float(targets.max()), "counts": _counts(targets)}
    return facts


def _counts(values: Doubles) -> list[int]:
    """Numbers of values in equal bins from the least to the largest one; empty without a value."""
    counts: list[int] = np.histogram(values, BINS)[0].tolist()
    return counts if len(values) else []


def _table(spec: ModelSpec, columns: Columns | None) -> JSON:
    """The columns of a table.

    Args:
        spec: The specification of the checkpoint.
        columns: Canonical columns of the rows, ``[n]`` each; None: only what the specification tells.

    Returns:
        ``rows`` that were learned from, ``left_out_rows``, ``left_out`` (column → reason), and
        ``features``, each as `Feature.describe`, with ``missing_share``, and ``counts`` of its bins or categories.
    """
    training, with_categories = spec.training, category_features(spec.schema)
    features = []
    for feature in spec.schema.features:
        facts = feature.describe()
        if columns is not None:
            column = columns[feature.name]
            missing = is_missing(column)
            if feature in with_categories:
                counts = [len(rows) for _, rows in category_parts(feature, column)[:MOST_CATEGORIES]]
            else:
                counts = _counts(column[~missing].astype(np.float64))
            facts |= {"missing_share": float(missing.mean()), "counts": counts}
        features.append(facts)
    return {
        "rows": training.get("rows"),
        "left_out_rows": training.get("left_out_rows", 0),
        "left_out": dict(spec.schema.left_out),
        "features": features,
    }


def _training(spec: ModelSpec, evidence: Evidence | None) -> JSON:
    """How the checkpoint was made; ``candidates`` are those of ``model.json``.

    Args:
        spec: Its specification.
        evidence: What the training knows besides, for the ``curves`` of the kept fit and, if it continued the full
            fit, of that one before it; None: there are none.
    """
    training, fits = spec.training, []
    if evidence is not None:
        chosen = evidence.chosen
        full = [of for of in evidence.attempts if of.stage == "full" and of is not chosen]
        fits = [*(full[-1:] if chosen.stage == "settling" else []), chosen]
    candidates = training.get("candidates", [])
    return {
        "seconds": training.get("seconds"),
        "interrupted": training.get("interrupted", False),
        "members": spec.architecture.members,
        "hidden": list(spec.architecture.hidden),
        "noise": spec.likelihood.kind,
        "transform": spec.target.transform.kind,
        "encoding": next((candidate["encoding"] for candidate in candidates if candidate.get("chosen")), None),
        "prior": training.get("options", {}).get("prior"),
        "temperature": spec.temperature,
        "seed": spec.default_seed,
        "calibration_rows": None if spec.calibration is None else spec.calibration.rows,
        "totals": None if spec.totals is None else spec.totals.to_json(),
        "candidates": candidates,
        "curves": [_curve(fit.stage, fit.history) for fit in fits if fit.history] or None,
    }


def _curve(stage: str, history: Sequence[Epoch]) -> JSON:
    """``stage`` of a fit, and the lists ``epoch, free_energy, nll, kl, validation`` (None before the first one).

    All are in nats per row of standardised targets.
    """
    places = np.unique(np.linspace(0, len(history) - 1, min(MOST_EPOCHS, len(history))).round().astype(int))
    epochs = [history[place] for place in places]
    return {
        "stage": stage,
        "epoch": [epoch.number for epoch in epochs],
        "free_energy": [epoch.free_energy for epoch in epochs],
        "nll": [epoch.negative_log_likelihood for epoch in epochs],
        "kl": [epoch.kl for epoch in epochs],
        "validation": [epoch.validation for epoch in epochs],
    }


def _told_by(posterior: Posterior, columns: Columns, judged: JudgedRows | None) -> JSON:
    """What rows tell of the predictions, where they were judged, of doubt and of the importance of features.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[N]`` each.
        judged: Some of them, judged; None: there are none.
    """
    held_out = None
    if judged is not None:
        held_out = judged.in_full(posterior.schema, select_rows(columns, judged.rows))
        if isinstance(judged, JudgedNumbers):
            held_out["agreement"] = _agreement(judged)
    return {
        "held_out": held_out,
        "doubt": _doubt(posterior, columns),
        "importance": _importance(posterior, columns),
    }


def _agreement(judged: JudgedNumbers) -> list[JSON]:
    """Parts of ten rows or more, by the predicted mean: what was predicted in each, and what was observed."""
    lower, upper = _band(judged)
    told = {"predicted": judged.mean, "lower": lower, "upper": upper}
    found = []
    for part in np.array_split(np.argsort(judged.mean), max(1, min(BINS_OF_AGREEMENT, len(judged) // 10))):
        observed = np.quantile(judged.targets[part], QUANTILES).tolist()
        found.append(
            scores_of_part(told, part, judged.counts) | dict(zip(("low", "observed", "high"), observed, strict=True))
        )
    return found


def _band(judged: JudgedNumbers) -> tuple[Doubles, Doubles]:
    """Ends of the 90 % bands that answers give, ``[n]`` each, the target's unit."""
    place = 2 * COVERAGES.index(BAND)
    lower, upper = judged.mean + judged.served.ends[:, place : place + 2].T
    return lower, upper


def _doubt(posterior: Posterior, columns: Columns) -> JSON:
    """The epistemic share of the variance, or entropy, of what the posterior answers for some rows.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each; at most 1,000 of them are used.

    Returns:
        ``of``, ``variance`` or ``entropy``; ``rows`` used; the ``share`` of all of them; and ``features``: for each
        ``name``, ``unit``, and ``bins`` in order, each with ``from`` and ``to`` or ``category`` (None: missing),
        ``rows`` and ``share``.
    """
    count = len(next(iter(columns.values())))
    chosen = np.sort(np.random.default_rng(SEED).choice(count, min(count, ROWS_OF_DOUBT), replace=False))
    columns = select_rows(columns, chosen)
    answer: Any = posterior.predict(columns, PredictOptions(percentiles=()))
    of_classes = posterior.schema.target.classes is not None
    epistemic, total = (
        (answer.epistemic_entropy, answer.entropy) if of_classes else (answer.epistemic_std**2, answer.std**2)
    )

    def share(rows: Any) -> float:
        whole = total[rows].sum()
        return float(epistemic[rows].sum() / whole) if whole > 0.0 else 0.0

    return {
        "of": "entropy" if of_classes else "variance",
        "rows": len(chosen),
        "share": share(slice(None)),
        "features": [
            {
                "name": feature.name,
                "unit": feature.unit,
                "bins": [
                    {**part, "rows": len(rows), "share": share(rows)}
                    for part, rows in _parts(feature, columns[feature.name])
                ],
            }
            for feature in posterior.schema.features
        ],
    }


def _parts(feature: Feature, column: NDArray[Any]) -> list[tuple[JSON, Places]]:
    """Rows by the largest categories of a feature, or in tenths by its values; missing cells come last."""
    if feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN):
        parts = category_parts(feature, column)[:MOST_CATEGORIES]
        return sorted(parts, key=lambda part: part[0] == {"category": None})
    missing, written = is_missing(column), format_date if feature.kind is FeatureKind.DATE else float
    present, gone = np.flatnonzero(~missing), np.flatnonzero(missing)
    values = column[present].astype(np.float64)
    # Rows of the same value are in the same part.
    edges = np.unique(np.quantile(values, np.linspace(0.1, 0.9, 9))) if len(values) else values
    places = np.searchsorted(edges, values, side="right")
    masks = [places == place for place in np.unique(places)]
    found: list[tuple[JSON, Places]] = [
        ({"from": written(values[mask].min()), "to": written(values[mask].max())}, present[mask]) for mask in masks
    ]
    return [*found, *([({"category": None}, gone)] if len(gone) else [])]


def _importance(posterior: Posterior, columns: Columns) -> JSON | None:
    """Permutation importance for the answers, of few rows and features; None where there is one row alone.

    ``of_features`` is the number of all features: more than those that are judged, where a screen has chosen these.
    ``shares`` are `mean_shares`, of all features.
    """
    count, of_features = len(next(iter(columns.values()))), len(posterior.schema.features)
    if count < 2:
        return None
    rows, features = min(count, ROWS_OF_IMPORTANCE), screened_features(posterior, columns, MOST_BARS)
    found = permutation_importance(
        posterior,
        columns,
        repeats=2 if 2 * rows * len(features) <= PREDICTIONS_OF_IMPORTANCE else 1,
        most_rows=rows,
        samples=DRAWS_OF_IMPORTANCE,
        features=features,
    )
    shares = mean_shares(posterior, columns, samples=DRAWS_OF_IMPORTANCE)
    return found | {"of_features": of_features, "shares": shares}


def shown_rows(judged: JudgedRows, posterior: Posterior, columns: Columns, numbers: Ints) -> JSON:
    """The rows that a report shows.

    Args:
        judged: n rows.
        posterior: The posterior that they were judged by.
        columns: Canonical columns of all rows, ``[N]`` each.
        numbers: Number of each of them in the user's table, from 1, ``[N]``.

    Returns:
        ``points``, each with ``predicted``, ``observed``, ``lower`` and ``upper``; of classes there are none. And
        ``surprising``: the rows furthest out in their predicted distributions, or those whose own class was given the
        least probability. Each has ``row``, ``cells`` (feature → text), ``observed`` and ``predicted``. Of
        numbers it also has the band and ``one_in``: one row in so many should lie as far out. Of classes it has
        ``probability``, of the observed class, and ``certainty``, of the predicted one.
    """
    count, points = len(judged), np.arange(0)
    told: dict[str, NDArray[Any]]
    if isinstance(judged, JudgedClasses):
        names, served, labels = np.array(posterior.schema.target.classes, dtype=object), judged.served, judged.labels
        rarity = served[np.arange(count), labels]
        told = {"observed": names[labels], "predicted": names[served.argmax(axis=1)]}
        told |= {"probability": rarity, "certainty": served.max(axis=1)}
    elif isinstance(judged, JudgedNumbers):
        lower, upper = _band(judged)
        rarity = 2.0 * np.minimum(judged.served.pit, 1.0 - judged.served.pit)
        told = {"observed": judged.targets, "predicted": judged.mean, "lower": lower, "upper": upper}
        told["one_in"] = 1.0 / np.maximum(rarity, 1e-9)
        points = np.sort(np.random.default_rng(SEED).choice(count, min(count, MOST_POINTS), replace=False))

    def records(rows: Ints) -> list[JSON]:
        cells = zip(*(column[rows].tolist() for column in told.values()), strict=True)
        return [dict(zip(told, of_row, strict=True)) for of_row in cells]

    rarest = np.argsort(rarity, kind="stable")[:MOST_SURPRISING]
    return {
        "points": records(points),
        "surprising": [
            record
            | {
                "row": int(numbers[row]),
                "cells": {of.name: _cell(of, columns[of.name][row]) for of in posterior.schema.features},
            }
            for row, record in zip(judged.rows[rarest], records(rarest), strict=True)
        ],
    }


def _cell(feature: Feature, value: Any) -> str:
    if value is None or value != value:
        return "missing"
    match feature.kind:
        case FeatureKind.CATEGORICAL:
            return str(value)
        case FeatureKind.BOOLEAN:
            return "yes" if value else "no"
        case FeatureKind.DATE:
            return format_date(float(value))
        case _:
            return f"{value:.6g}"
