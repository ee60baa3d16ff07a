"""Judged rows: what both kinds of target share, what each row counts, and parts of the rows.

`JudgedRows` is the one container of rows whose truth is known, whoever has judged them: all members, for an evaluation,
or the members that have not seen the row, for a calibration. `model.evaluation.number_scores` and
`model.evaluation.class_scores` fill it, and say what it reports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from murho.model.arrays import Array, Doubles, Ints, Places, with_arrays
from murho.model.files import JSON
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema


@dataclass(frozen=True, slots=True)
class RowArrays:
    """A base of dataclasses whose arrays, also those in dicts and in other `RowArrays`, have one entry a row."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """All rows of several parts, in order; what is no array is that of the first part."""
        return with_arrays(np.concatenate, parts)

    def of_rows(self, rows: Array) -> Self:
        """Return selected rows, by a mask or by row numbers, which may also reorder them."""
        return with_arrays(lambda arrays: arrays[0][rows], [self])


@dataclass(frozen=True, slots=True)
class RowWeights:
    """Weights and units of n rows.

    Attributes:
        amounts: Weight of each row, ``[n]``, not negative.
        units: Number of the exchangeable unit (a group of rows, say) that each row belongs to, ``[n]``, from 0.
        weighted: Whether rows differ in weight.
        grouped: Whether rows share units.
    """

    amounts: Doubles
    units: Ints
    weighted: bool
    grouped: bool

    @classmethod
    def of(cls, rows: int, weights: Doubles | None = None, units: NDArray[np.generic] | None = None) -> Self:
        """Weights of n rows.

        Args:
            rows: n.
            weights: Relative weights, ``[n]``; None: all rows count alike.
            units: Id of each row's unit, ``[n]``, any kind; None: every row is one.
        """
        amounts = np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64)
        ids = np.arange(rows) if units is None else np.unique(units, return_inverse=True)[1]
        return cls(amounts, ids, weights is not None, units is not None)

    def of_rows(self, chosen: Array) -> RowWeights:
        """Return the weights of selected rows, by a mask or row numbers."""
        amounts, units = self.amounts[chosen], self.units[chosen]
        return RowWeights.of(len(amounts), amounts if self.weighted else None, units if self.grouped else None)

    @property
    def shares(self) -> Doubles:
        """The weights, ``[n]``, made to sum to 1."""
        shares: Doubles = self.amounts / self.amounts.sum()
        return shares

    @property
    def count(self) -> int:
        """Number of units, U."""
        return int(self.units.max()) + 1

    @property
    def independent(self) -> float:
        """As how many independent rows of equal weight these count: the effective number of units (Kish 1965)."""
        return float(1.0 / np.square(np.bincount(self.units, self.shares)).sum())

    def mean(self, values: Array) -> Doubles:
        """Means over rows of values ``[n, ...]``."""
        return np.average(values, axis=0, weights=self.amounts)

    def standard_error(self, values: Doubles) -> Doubles:
        """Return standard errors of `mean`, by the spread of the units' parts in it (Huber 1967; Liang and Zeger 1986).

        With a unit a row and equal weights this is the standard deviation over ``sqrt(n)``. With one unit nothing is
        known of the spread, and the error is not finite; nor is it where a value is beyond 1e154.

        Args:
            values: ``[n, ...]``.
        """
        count = self.count
        if count < 2:
            return np.full(values.shape[1:], np.inf)
        deviations = (values - self.mean(values)) * self.shares.reshape(-1, *[1] * (values.ndim - 1))
        parts = np.zeros((count, *values.shape[1:]))
        np.add.at(parts, self.units, deviations)
        with np.errstate(over="ignore"):
            errors: Doubles = np.sqrt(np.square(parts).sum(axis=0) * count / (count - 1))
        return errors


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows(RowArrays, ABC):
    """n rows with their truth and their predictions.

    Attributes:
        rows: Number of each row in its table, from 0, ``[n]``.
        targets: ``[n]``, the target's unit, or numbers of classes.
        doubt: Epistemic share of the variance or, of classes, of the entropy of what is served, ``[n]``.
        weights: What each row counts; None: all count alike.
    """

    rows: Ints
    targets: Doubles
    doubt: Doubles
    weights: RowWeights | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def counts(self) -> RowWeights:
        """Weights and units of the rows."""
        return self.weights or RowWeights.of(len(self))

    @abstractmethod
    def report(self) -> JSON:
        """Return the scores of all rows, as ``model.json`` keeps them: ``n``, and more by the kind of the target.

        What is served comes alone; ``raw`` and ``calibrated`` (None without calibration) tell the kinds of answers
        apart, and ``standard_errors`` have some of the same keys, None where there is a single unit.
        """

    @abstractmethod
    def in_full(self, schema: Schema, columns: Columns) -> JSON:
        """Return the report with all that `murho evaluate` tells, also of parts of the rows.

        Args:
            schema: The schema of the posterior.
            columns: Canonical columns of at least the categorical and boolean features, ``[n]`` each.
        """


def means(values: Mapping[str, Array], rows: RowWeights) -> dict[str, float]:
    """Means over rows of values ``[n]``."""
    return {name: float(rows.mean(column)) for name, column in values.items()}


def standard_errors(values: Mapping[str, Array], rows: RowWeights) -> dict[str, float | None]:
    """Return standard errors of the `means`; None where there is a single unit."""
    errors = {name: float(rows.standard_error(column)) for name, column in values.items()}
    return {name: error if np.isfinite(error) else None for name, error in errors.items()}


BAND = 90
"""Nominal coverage of the band or set whose coverage is told of parts, per cent."""
PARTS = 10
FEW_ROWS = 20
"""With fewer rows, the standard error of the coverage of a 90 % band exceeds 6.7 points."""


def equal_parts(values: Doubles) -> list[Places]:
    """Row numbers of ten parts of equal size, in ascending order of the values ``[N]``; fewer parts of fewer rows."""
    return np.array_split(np.argsort(values, kind="stable"), min(PARTS, len(values)))


def scores_of_part(values: Mapping[str, Array], part: Array, rows: RowWeights) -> JSON:
    """``rows``, the number of rows of a part, and the means of values.

    Args:
        values: Of each row, ``[N]``.
        part: Row numbers.
        rows: Weights of all rows.
    """
    return {"rows": len(part), **means({name: of[part] for name, of in values.items()}, rows.of_rows(part))}


def scores_by_category(
    values: Mapping[str, Array], rows: RowWeights, schema: Schema, columns: Columns
) -> dict[str, list[JSON]]:
    """Return the scores of parts by category of each categorical and boolean feature.

    Args:
        values: Of each row, ``[N]``.
        rows: Weights of the rows.
        schema: The schema of the posterior.
        columns: Canonical columns of at least these features, ``[N]`` each.

    Returns:
        Feature → its parts, as `category_parts` names them, each with what `scores_of_part` returns.
    """
    return {
        feature.name: [
            name | scores_of_part(values, part, rows) for name, part in category_parts(feature, columns[feature.name])
        ]
        for feature in schema.features
        if feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN)
    }


def category_parts(feature: Feature, column: Array) -> list[tuple[JSON, Places]]:
    """Rows of each category, the largest part first.

    Categories of fewer than 20 rows, unseen ones included, come last as one part if there are several, or one that the
    model does not name.

    Returns:
        Of each part ``category``, the name, None for missing cells and for merged categories; the latter also have
        ``merged``, their number; and row numbers.
    """
    found: dict[Any, list[int]] = {}
    kind = bool if feature.kind is FeatureKind.BOOLEAN else str
    for row, cell in enumerate(column.tolist()):  # NaN alone differs from itself
        found.setdefault(None if cell is None or cell != cell else kind(cell), []).append(row)
    ordered = sorted(found.items(), key=lambda part: (-len(part[1]), part[0] is None, str(part[0])))
    small = [name for name, rows in ordered if len(rows) < FEW_ROWS and name is not None]
    unnamed = feature.kind is FeatureKind.CATEGORICAL and not {*small} <= {*feature.categories}
    merged = small if unnamed or len(small) > 1 else []
    parts = [({"category": name}, np.array(rows)) for name, rows in ordered if name not in merged]
    if merged:
        rows = np.sort(np.concatenate([found[name] for name in merged]))
        parts.append(({"category": None, "merged": len(merged)}, rows))
    return parts
