"""Made-up tables with a schema, for the tests of the distribution of the features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from murho.model.encoding.distribution_fit import fit_feature_distribution
from murho.model.encoding.feature_distribution import FeatureDistribution
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, Target, is_missing
from tests.model.conftest import present


def numeric_columns(values: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Columns ``x1``, ``x2``, … of a matrix ``[N, D]``."""
    return {f"x{number}": column.copy() for number, column in enumerate(values.T, start=1)}


def mixed_columns(rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Two numbers that go together, a category that shifts the first, a boolean alone, and a date."""
    generator = np.random.default_rng(seed)
    kind = np.array(generator.choice(["A", "B", "C"], rows, p=[0.5, 0.3, 0.2]), dtype=object)
    first = generator.normal(size=rows) + 4.0 * (kind == "C")
    return {
        "first": first,
        "second": np.exp(0.5 * (first + 0.2 * generator.normal(size=rows))),
        "kind": kind,
        "lift": (generator.random(rows) < 0.3).astype(np.float64),
        "day": generator.integers(18_000, 19_000, rows).astype(np.float64),
    }


def paired_columns() -> dict[str, NDArray[Any]]:
    """Two pairs of numbers that go together, ``x1`` with ``x2`` and ``x3`` with ``x5``, and one number alone."""
    generator = np.random.default_rng(0)
    loads = generator.normal(size=(400, 3))
    noise = 0.1 * generator.normal(size=(400, 2))
    return numeric_columns(
        np.column_stack([loads[:, 0], loads[:, 0] + noise[:, 0], loads[:, 1:], loads[:, 1] + noise[:, 1]])
    )


def distribution_of(columns: Columns, *folds: Any, **options: Any) -> FeatureDistribution:
    """Return the distribution of the rows, which must be enough for one."""
    return present(fit_feature_distribution(schema_of(columns), columns, *folds, **options))


def schema_of(columns: Columns, *, imputed: bool = True) -> Schema:
    """Return a schema of numbers, of texts, of booleans called ``lift`` and of dates called ``day``."""
    features: list[Feature] = []
    for name, column in columns.items():
        kinds = {"lift": FeatureKind.BOOLEAN, "day": FeatureKind.DATE}
        kind = FeatureKind.CATEGORICAL if column.dtype == object else kinds.get(name, FeatureKind.NUMERIC)
        missing = bool(is_missing(column).any())
        texts = kind is FeatureKind.CATEGORICAL
        least, most = (None, None) if texts else (float(np.nanmin(column)), float(np.nanmax(column)))
        categories = tuple(sorted(set(column.tolist()) - {None})) if texts else ()
        features.append(Feature(name, kind, None, missing, least, most, categories, imputed=imputed and not missing))
    return Schema(tuple(features), Target("y", None), {})
