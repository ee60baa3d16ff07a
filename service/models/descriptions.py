"""What there is to know of a loaded model: in short for the list, in full, and as the page draws it.

All of it comes from `model.json`, but for the order of the features and the charts, which the report tells. What a
checkpoint does not have is null. Histograms come from the quantiles that a checkpoint stores, as it has no training
row: between two stored quantiles the rows count as evenly spread, so the bars of a column with many distinct values are
a good approximation; those of one with few are exact.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from murho.model.calibration.class_calibration import ClassCalibration
from murho.model.encoding.feature_distribution import QuantileScores
from murho.model.report.charts import COLOURS, charts, ordered_features
from murho.model.tables.schema import Feature, FeatureKind
from murho.service.predict.json_rows import example_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.files import JSON
    from murho.service.engine.jobs import ModelLike

SHOWN_FACTS = ("metrics", "totals", "training", "prior", "likelihood", "default_seed", "created")
"""Parts of `model.json` that are shown besides those that the contract names. Only the loader needs the others."""
OF_SINGLE_WEIGHTS = ("unread", "removed")
"""Fields of the architecture that are not shown: lists as long as the network is large."""
BINS = 30


def target_of(model: ModelLike) -> JSON:
    """Return the target as the contract has it."""
    target = model.schema.target
    if target.classes is not None:
        return {"name": target.name, "classes": list(target.classes)}
    limits = model.spec.target.limits
    ends = {"minimum": None, "maximum": None} if limits is None else limits.to_json()
    return {"name": target.name, "unit": target.unit, **ends}


def description(model: ModelLike) -> JSON:
    """Return what `GET /models/{name}` tells of a model; features are in schema order."""
    facts = model.spec.to_json()
    return {
        "task": model.schema.target.task,
        "target": target_of(model),
        "features": [feature.describe() for feature in model.schema.features],
        "left_out": dict(model.schema.left_out),
        "calibration": _without_lists(facts["calibration"]),
        **{fact: facts[fact] for fact in SHOWN_FACTS},
        "architecture": {key: each for key, each in facts["architecture"].items() if key not in OF_SINGLE_WEIGHTS},
        "murho": facts["murho"],
    }


def _without_lists(value: Any) -> Any:
    """Return the single numbers of a calibration, whose maps have hundreds."""
    if not isinstance(value, dict):
        return value
    return {key: _without_lists(each) for key, each in value.items() if not isinstance(each, list)}


def overview(model: ModelLike, report: Mapping[str, Any]) -> JSON:
    """Return the model at a glance, as JSON data.

    Args:
        model: The model.
        report: The facts that it keeps for its report, `model.report.facts`; empty: it keeps none.
    """
    spec = model.spec
    training, calibration = spec.training, spec.calibration
    method = "vector scaling" if isinstance(calibration, ClassCalibration) else getattr(calibration, "method", None)
    return {
        "name": model.name,
        "version": model.version,
        "created": spec.created,
        "target": _target(model),
        "features": [_feature(model, feature) for feature in model.schema.features],
        "importance": _by_importance(model, report),
        "left_out": dict(model.schema.left_out),
        "typical": example_row(model),
        "training": {
            "rows": spec.rows_learned or training.get("rows"),
            "members": spec.architecture.members,
            "hidden": list(spec.architecture.hidden),
            "likelihood": spec.likelihood.kind,
            "temperature": training.get("temperature"),
        },
        "metrics": spec.metrics,
        "calibration": None if calibration is None else {"method": method, "rows": calibration.rows},
    }


def report_charts(model: ModelLike, facts: Mapping[str, Any]) -> JSON:
    """Return the charts that `murho report` draws of some facts, without any row of the table.

    Args:
        model: The model.
        facts: The facts that it keeps for its report; empty: it keeps none.

    Returns:
        ``colours``, from each colour of the specifications to the name of its role, and ``charts``, each with
        ``name``, ``title``, ``caption`` and ``specification`` (Vega-Lite with its data). No checksum covers the facts:
        where they are not as a report needs them, there are no charts.
    """
    try:
        made = charts(model.schema.target, facts)
    except Exception as error:  # whatever is in that file
        structlog.get_logger("murho.report").warning("no charts of the report", model=model.name, reason=repr(error))
        made = []
    shown = [asdict(chart) for chart in made]
    return {"name": model.name, "version": model.version, "colours": COLOURS, "charts": shown}


def _target(model: ModelLike) -> JSON:
    """Return the target with its distribution over the training rows; what the checkpoint does not tell is None."""
    told, classes = model.spec.training.get("targets"), model.schema.target.classes
    if classes is not None:
        levels = told and [{"value": name, "rows": told["classes"][name]} for name in classes]
        return {**target_of(model), "levels": levels}
    if told is None:
        return {**target_of(model), **dict.fromkeys(("middle", "spread", "range", "histogram"))}
    scores = QuantileScores.from_json(told, "training.targets")
    return {
        **target_of(model),
        "middle": float(scores.at(np.array([0.0]))[0]),
        "spread": scores.std,
        "range": [float(scores.values[0]), float(scores.values[-1])],
        "histogram": _histogram(scores),
    }


def _feature(model: ModelLike, feature: Feature) -> JSON:
    """Return a feature as `GET /models/{name}` has it, with its distribution over the training rows."""
    described, date = feature.describe(), feature.kind is FeatureKind.DATE
    bars = levels = step = None
    distribution = model.spec.encoder.distribution
    if distribution is not None and (numbers := distribution.numbers.get(feature.name)) is not None:
        bars = _histogram(numbers)
        if bars is not None and date:
            bars |= {"start": described["min"], "stop": described["max"]}
        values = numbers.values
        if not date and (values == np.round(values)).all() and values[-1] - values[0] >= 1.0:  # whole numbers only
            step = 1.0
    elif distribution is not None and (shares := distribution.levels.get(feature.name)) is not None:
        known = shares.levels if feature.kind is FeatureKind.CATEGORICAL else tuple(map(bool, shares.levels))
        levels = [{"value": value, "rows": count} for value, count in zip(known, shares.counts.tolist(), strict=True)]
    return {**described, "learned_missing": feature.missing, "step": step, "histogram": bars, "levels": levels}


def _histogram(scores: QuantileScores) -> JSON | None:
    """Return bars of equal width over the training range, as JSON; None if all training rows have one value.

    Returns:
        ``start`` and ``stop`` of the range, and ``counts`` ``[BINS]``, training rows in each bar.
    """
    start, stop = float(scores.values[0]), float(scores.values[-1])
    if not start < stop:
        return None
    edges = np.linspace(start, stop, BINS + 1)
    # Rows with a smaller value than each edge. At a knot there is a step; of its ends, interp takes the last, so that
    # the sign is turned to take the lower one.
    steps = np.stack([scores.below, scores.upto], axis=1).ravel()
    below = np.interp(-edges, -np.repeat(scores.values, 2)[::-1], steps[::-1])
    below[-1] = scores.upto[-1]  # the last bar has the largest value too
    return {"start": start, "stop": stop, "counts": np.diff(below).round(2).tolist()}


def _by_importance(model: ModelLike, report: Mapping[str, Any]) -> list[str]:
    """Return the names of the features, the most important first; those that were not judged follow in schema order.

    As no checksum covers the report's file, a ranking of another form counts as none.
    """
    names = [feature.name for feature in model.schema.features]
    try:
        ranked = [feature["name"] for feature in ordered_features(report["importance"])]
        return sorted(names, key=lambda name: ranked.index(name) if name in ranked else len(ranked))
    except (KeyError, TypeError, ValueError, IndexError):
        return names
