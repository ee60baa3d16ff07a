"""The overview of a model: what the page draws beside its predictions.

All of it comes from `model.json`, but for the training curves, which the report keeps. What a checkpoint does not have
is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.calibration.classes import ClassCalibration
from murho.model.calibration.conformal import ConformalMap
from murho.model.distributions.transforms import Identity
from murho.model.encoding.feature_scores import QuantileScores, normal_cdf, normal_quantile
from murho.model.errors import CheckpointError
from murho.model.tables.schema import FeatureKind
from murho.service.models.feature_histograms import histogram, step_of
from murho.service.models.typical_row import typical_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.tables.schema import Feature
    from murho.service.engine.jobs import ModelLike

__all__ = ["overview"]

RELIABILITY_POINTS = 49
CURVES = ("epoch", "free_energy", "nll", "kl", "validation")
TRAINING_FACTS = ("rows", "validation_rows", "calibration_rows", "left_out_rows", "epochs", "temperature", "seconds")


def overview(model: ModelLike, report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the overview as JSON data.

    Args:
        model: The model.
        report: The facts that it keeps for its report, `model.report.facts`; None: it keeps none.
    """
    spec = model.spec
    training, calibration = spec.training, spec.calibration
    return {
        "name": model.name,
        "version": model.version,
        "created": spec.created,
        "murho": spec.murho,
        "task": model.schema.target.task,
        "target": _target(model),
        "features": [_feature(model, feature) for feature in model.schema.features],
        "left_out": dict(model.schema.left_out),
        "typical": typical_row(model),
        "training": {
            **{fact: training.get(fact) for fact in TRAINING_FACTS},
            "rows": spec.rows_learned or training.get("rows"),
            "members": spec.architecture.members,
            "hidden": list(spec.architecture.hidden),
            "likelihood": spec.likelihood.kind,
        },
        "candidates": _candidates(training),
        "curves": _curves(report),
        "metrics": {key: value for key, value in spec.metrics.items() if key != "judges"},
        "calibration": None if calibration is None else {"method": _method(calibration), "rows": calibration.rows},
        "reliability": _reliability(calibration) if isinstance(calibration, ConformalMap) else None,
    }


def _method(calibration: ConformalMap | ClassCalibration) -> str:
    """Returns how the answers are calibrated: for classes the map of their probabilities."""
    return "vector scaling" if isinstance(calibration, ClassCalibration) else calibration.method


def _target(model: ModelLike) -> dict[str, Any]:
    """Returns the target, with its distribution over the training rows."""
    target, training = model.schema.target, model.spec.training
    if target.classes is not None:
        return {"name": target.name, "classes": list(target.classes), "levels": _levels_of_classes(model)}
    limits, targets = model.spec.target.limits, _targets(training)
    return {
        "name": target.name,
        "unit": target.unit,
        "minimum": None if limits is None else limits.to_json()["minimum"],
        "maximum": None if limits is None else limits.to_json()["maximum"],
        **_middle(model, targets),
        "range": _target_range(model, targets),
        "histogram": None if targets is None else histogram(targets),
    }


def _levels_of_classes(model: ModelLike) -> list[dict[str, Any]] | None:
    """Returns each class with the number of its training rows; None where the checkpoint does not tell it."""
    told = model.spec.training.get("targets")
    counts = told.get("classes") if isinstance(told, dict) else None
    if not isinstance(counts, dict):
        return None
    return [{"value": name, "rows": counts.get(name, 0)} for name in model.schema.target.classes or ()]


def _feature(model: ModelLike, feature: Feature) -> dict[str, Any]:
    """Returns a feature as `GET /models/{name}` has it, with its distribution over the training rows."""
    described = feature.describe()
    distribution = model.spec.encoder.distribution
    numbers = None if distribution is None else distribution.numbers.get(feature.name)
    shares = None if distribution is None else distribution.levels.get(feature.name)
    bars = None if numbers is None else histogram(numbers)
    if bars is not None and feature.kind is FeatureKind.DATE:
        bars = {**bars, "start": described["min"], "stop": described["max"]}
    levels = None
    if shares is not None:
        known = shares.levels if feature.kind is FeatureKind.CATEGORICAL else tuple(map(bool, shares.levels))
        levels = [{"value": value, "rows": count} for value, count in zip(known, shares.counts.tolist(), strict=True)]
    return {
        **described,
        "learned_missing": feature.missing,
        "step": None if numbers is None or feature.kind is FeatureKind.DATE else step_of(numbers),
        "histogram": bars,
        "levels": levels,
    }


def _targets(training: Mapping[str, Any]) -> QuantileScores | None:
    """Returns the distribution of the target over the training rows; None where the checkpoint has none."""
    try:
        return QuantileScores.from_json(training["targets"], "training.targets") if "targets" in training else None
    except CheckpointError:
        return None  # it is for show: an odd one is no reason to refuse


def _middle(model: ModelLike, targets: QuantileScores | None) -> dict[str, float | None]:
    """Returns the median and the standard deviation of the training rows' targets.

    Without their distribution the network's location and scale stand for them, unless it learned a transformed target.
    """
    if targets is not None:
        return {"middle": float(targets.at(np.array([0.0]))[0]), "spread": targets.std}
    if isinstance(model.spec.target.transform, Identity):
        return {"middle": model.spec.target.location, "spread": model.spec.target.scale}
    return {"middle": None, "spread": None}


def _target_range(model: ModelLike, targets: QuantileScores | None) -> list[float] | None:
    """Returns the smallest and the largest target of the training rows."""
    if targets is not None:
        return [float(targets.values[0]), float(targets.values[-1])]
    return None if model.spec.target_range is None else list(model.spec.target_range)


def _reliability(calibration: ConformalMap) -> dict[str, list[float]]:
    """Returns how often central raw bands held the held-out rows, by the calibration's map.

    A raw band reaches from score -z to z. The map says which nominal score has z as its calibrated score: there lies
    the probability that it really had.
    """
    levels = np.linspace(0.02, 0.98, RELIABILITY_POINTS)
    edges = normal_quantile((1.0 + levels) / 2.0)
    upper, lower = (normal_cdf(np.interp(edge, calibration.observed, calibration.nominal)) for edge in (edges, -edges))
    return {"levels": [round(float(x), 4) for x in levels], "raw": [round(float(x), 4) for x in upper - lower]}


def _candidates(training: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Returns the fits that the search tried, each with its score and its stage."""
    tried = training.get("candidates")
    if not isinstance(tried, list):
        return None
    shown = ("stage", "noise", "encoding", "transform", "hidden", "temperature", "nll", "crps")
    return [{key: item[key] for key in shown if key in item} for item in tried if isinstance(item, dict)]


def _curves(report: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """Returns the curves of the fits that led to the served one, as `model.report.facts.curves` made them.

    The report's file is not covered by the checkpoint's checksum: a fit that is not of that form is left out.
    """
    training = (report or {}).get("training")
    listed = training.get("curves") if isinstance(training, dict) else None
    fits = [fit for fit in listed if _is_fit(fit)] if isinstance(listed, list) else []
    return [{key: fit[key] for key in ("stage", *CURVES)} for fit in fits] or None


def _is_fit(fit: Any) -> bool:
    if not isinstance(fit, dict) or not isinstance(fit.get("stage"), str):
        return False
    curves = [curve for name in CURVES if isinstance(curve := fit.get(name), list)]
    return (
        len(curves) == len(CURVES)
        and len({len(curve) for curve in curves}) == 1
        and all(isinstance(epoch, int) for epoch in fit["epoch"])
        and all(value is None or isinstance(value, int | float) for curve in curves for value in curve)
        and any(value is not None for value in fit["nll"])
    )
