"""A typical row of a model: where the page's form starts.

It is no training row, which a checkpoint does not have, but a plausible one: each category has its most frequent level,
and each number is what the joint distribution of the features expects of a row with these levels. Medians of each
feature by itself can be a row that does not exist, such as a light car with a large engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.tables.cells import format_date
from murho.model.tables.schema import FeatureKind
from murho.service.predict.examples import example_row

if TYPE_CHECKING:
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.encoding.feature_scores import QuantileScores
    from murho.model.tables.schema import Feature
    from murho.service.engine.jobs import ModelLike

__all__ = ["typical_row"]

DIGITS = 3


def typical_row(model: ModelLike) -> dict[str, Any]:
    """Returns one row in the form of a request; without a distribution of the features, `example_row`."""
    row = example_row(model)
    distribution = model.spec.encoder.distribution
    if distribution is None:
        return row
    levels = {name: int(np.argmax(shares.counts)) for name, shares in distribution.levels.items()}
    numbers = _expected_numbers(distribution, levels)
    for feature in model.schema.features:
        if feature.name in levels:
            level = distribution.levels[feature.name].levels[levels[feature.name]]
            row[feature.name] = level if feature.kind is FeatureKind.CATEGORICAL else bool(level)
        elif feature.name in numbers:
            row[feature.name] = _rounded(feature, distribution.numbers[feature.name], numbers[feature.name])
    return row


def _expected_numbers(distribution: FeatureDistribution, levels: dict[str, int]) -> dict[str, float]:
    """Returns each number given the levels: the value at the conditional mean of its normal score."""
    count = len(distribution.numbers)
    parts = [np.full((1, count), np.nan)]
    for name, indicated in distribution.indicated:
        parts.append(distribution.levels[name].indicators(np.array([levels[name]]), indicated))
    scores = distribution.completed(np.concatenate(parts, axis=1))[0, :count]
    return {
        name: float(of_number.at(np.array([score]))[0])
        for (name, of_number), score in zip(distribution.numbers.items(), scores, strict=True)
    }


def _rounded(feature: Feature, scores: QuantileScores, value: float) -> float | int | str:
    """Returns a value as a person would write it, within the training range."""
    low, high = float(scores.values[0]), float(scores.values[-1])
    if feature.kind is FeatureKind.DATE:
        return format_date(float(np.clip(round(value), np.ceil(low), max(np.floor(high), np.ceil(low)))))
    if (scores.values == np.round(scores.values)).all():
        return round(value)
    return float(np.clip(float(f"{value:.{DIGITS}g}"), low, high))
