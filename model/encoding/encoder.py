"""The encoder: canonical columns to the float32 matrix ``[B, D]`` of network inputs.

The encoded columns are, in this order: each feature by itself, directions of correlated numbers if asked for
(`model.encoding.whitening`), the distance to the training rows feature by feature (`model.encoding.continuation`)
and that of the combination (`model.encoding.unlike`). What one feature becomes is in
`model.encoding.encoder`.

The encodings by name: which class encodes a kind of feature.

A new encoding needs one class, a `model.encoding.transforms.FeatureEncoding`, and one entry in `ENCODINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field

from murho.model.encoding.continuation import Continuation, RangeDistance
from murho.model.encoding.feature_distribution import FeatureDistribution
from murho.model.encoding.imputation import IMPUTATIONS, imputed_columns
from murho.model.encoding.piecewise import PiecewiseLinear
from murho.model.encoding.transforms import Calendar, FeatureEncoding, FromSchema, OneHot, Standard
from murho.model.encoding.unlike import COMBINATION, DistanceInputs
from murho.model.encoding.whitening import Whitening
from murho.model.errors import OptionError, TableError
from murho.model.json_validation import MisfitError, Stored, one_of, read_as
from murho.model.tables.schema import FeatureKind, Schema

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from murho.model.tables.schema import Columns, Feature

__all__ = ["ENCODINGS", "LARGEST", "MIXED", "PIECEWISE", "Encoder", "InputChoice", "Unread", "with_schema"]


@dataclass(frozen=True, slots=True)
class InputChoice:
    """How the features of a schema become the inputs of networks.

    Attributes:
        encoding: A key of `model.encoding.encoder.ENCODINGS`, or `model.encoding.encoder.MIXED`.
        whitened: Whether whitened directions of correlated numbers are inputs too (`model.encoding.whitening`).
        unread: For each member the names of the features that it does not read; empty: all members read all.
    """

    encoding: str
    whitened: bool = False
    unread: tuple[tuple[str, ...], ...] = ()

    @property
    def unread_by_all(self) -> tuple[str, ...]:
        """The features that no member reads; they are no inputs (`model.encoding.encoder`)."""
        first, *others = self.unread or ((),)
        return tuple(name for name in first if all(name in each for each in others))


PIECEWISE = "piecewise"
MIXED = "mixed"
"""Encoding of a training whose members read the ``piecewise`` inputs, half of them without the bins
(`model.bbb.network`). Its encoder is ``piecewise``."""

ENCODINGS: Mapping[str, Mapping[FeatureKind, type[FeatureEncoding]]] = MappingProxyType(
    {
        "standard": MappingProxyType(
            {
                FeatureKind.NUMERIC: Standard,
                FeatureKind.BOOLEAN: Standard,
                FeatureKind.DATE: Calendar,
                FeatureKind.CATEGORICAL: OneHot,
            }
        ),
        PIECEWISE: MappingProxyType(
            {
                FeatureKind.NUMERIC: PiecewiseLinear,
                FeatureKind.BOOLEAN: Standard,
                FeatureKind.DATE: Calendar,
                FeatureKind.CATEGORICAL: OneHot,
            }
        ),
    }
)
"""Name of the encoding → feature kind → encoding class."""


@dataclass(frozen=True)
class Unread(Stored):
    """No encoded column: answers do not depend on the feature's value.

    The feature stays one of the schema. A row that is unlike the training rows in it is still found, because the
    distance of rows (`model.encoding.unlike`) is that of all features.
    """

    feature: FromSchema
    kind: Literal["unread"] = "unread"

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:  # noqa: ARG003
        """There is nothing to fit."""
        return cls(feature)

    @property
    def names(self) -> tuple[str, ...]:
        """No name."""
        return ()

    def training_range(self) -> npt.NDArray[np.float32]:
        """Bounds of no column, ``[2, 0]``."""
        return np.empty((2, 0), dtype=np.float32)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write nothing: ``out`` is ``[B, 0]``."""


LARGEST = 1e6
"""Encoded numbers are clipped at ±LARGEST: larger ones could overflow the float32 arithmetic of a network."""

# Rows encoded at a time, so that temporary arrays fit in the processor's cache.
_TILE = 16_384


_Part: TypeAlias = Annotated[Standard | PiecewiseLinear | Calendar | OneHot | Unread, Field(discriminator="kind")]


@dataclass(frozen=True)
class Encoder(Stored):
    """Encoder of the features of a schema, each with its own `FeatureEncoding`.

    Each row is encoded independently, so its encoding is the same alone and in any batch.

    Attributes:
        schema: The features.
        encoding: Name of the encoding, a key of `model.encoding.encoder.ENCODINGS`.
        parts: One encoding per feature, in schema order.
        whitening: Hidden directions of correlated numbers, or None.
        distribution: Joint distribution of the features; None of very few training rows.
        continuations: Number → what the network sees of it beyond its training range; a number without one is seen as
            it is.
    """

    schema: Annotated[Schema, Field(exclude=True)]
    encoding: Annotated[str, one_of(*ENCODINGS)]
    parts: tuple[Annotated[FeatureEncoding, read_as(_Part)], ...]
    whitening: Whitening | None = None
    distribution: FeatureDistribution | None = None
    continuations: Mapping[str, Continuation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the parts fit the schema.

        Raises:
            MisfitError: They are of other features or kinds, or none is read.
        """
        features = {feature.name: feature for feature in self.schema.features}
        numbers = [name for name, feature in features.items() if feature.kind is FeatureKind.NUMERIC]
        if tuple(part.feature for part in self.parts) != self.schema.features:
            raise MisfitError("parts", "one for each feature of the schema, in its order", len(self.parts))
        for at, part in enumerate(self.parts):
            if not isinstance(part, (Unread, ENCODINGS[self.encoding][part.feature.kind])):
                kind = part.feature.kind
                raise MisfitError(f"parts[{at}].kind", f"one for a {kind} feature, encoding {self.encoding}", part.kind)
        if len(self.unread) == len(self.parts):
            raise MisfitError("parts", "at least one that is read", list(self.unread))
        if not set(self.continuations) <= set(numbers):
            raise MisfitError(
                "continuations", f"continuations by the names of numbers, {numbers}", list(self.continuations)
            )
        if self.whitening is not None and list(self.whitening.features) != numbers:
            raise MisfitError("whitening.features", f"the numeric features {numbers}", self.whitening.features)
        if self.distribution is not None:
            self.distribution.require_features(self.schema)
        elif any(feature.imputed for feature in self.schema.features):
            raise MisfitError("distribution", "one, because a feature has imputed cells", None)

    @classmethod
    def fit(
        cls,
        schema: Schema,
        columns: Columns,
        *,
        encoding: str = "standard",
        whitened: bool = False,
        distribution: FeatureDistribution | None = None,
        unread: Collection[str] = (),
    ) -> Self:
        """Fit the encoding to the training rows.

        Args:
            schema: The features.
            columns: Canonical columns of the training rows, each ``[N]``.
            encoding: A key of `model.encoding.encoder.ENCODINGS`: ``standard``, or ``piecewise`` for numeric features
                in quantile bins.
            whitened: Whether to add hidden directions, if there are any.
            distribution: The distribution of the training rows, for their distance and for missing cells.
            unread: Names of features that become no inputs.

        Returns:
            The encoder.

        Raises:
            OptionError: The encoding is unknown.
        """
        classes = ENCODINGS.get(encoding)
        if classes is None:
            raise OptionError(f"the encoding {encoding!r} is not known; use one of {', '.join(ENCODINGS)}")
        parts = tuple(
            (Unread if feature.name in unread else classes[feature.kind]).fit(feature, columns[feature.name])
            for feature in schema.features
        )
        whitening = Whitening.fit(schema, parts, columns) if whitened else None
        return cls(schema, encoding, parts, whitening, distribution=distribution)

    @cached_property
    def unread(self) -> tuple[str, ...]:
        """Names of the features that are no inputs of the networks, in schema order."""
        return tuple(
            feature.name
            for feature, part in zip(self.schema.features, self.parts, strict=True)
            if isinstance(part, Unread)
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the D encoded features, such as ``Horsepower`` or ``Origin=USA``."""
        directions = () if self.whitening is None else self.whitening.names
        return (
            *(name for part in self.parts for name in part.names),
            *directions,
            *self._range_distance.names,
            *(f"{name} beyond the training rows" for name in directions),
            *(() if self.distribution is None else (COMBINATION,)),
        )

    @property
    def width(self) -> int:
        """Number of encoded features, D."""
        return len(self.names)

    @cached_property
    def range_distance_columns(self) -> range:
        """Indices of the encoded columns that hold the distance to the training rows: the last columns."""
        directions = 0 if self.whitening is None else self.whitening.count
        combination = int(self.distribution is not None)
        return range(self.width - len(self._range_distance.features) - directions - combination, self.width)

    @cached_property
    def _range_distance(self) -> RangeDistance:
        return RangeDistance.of(self.schema, self.parts)

    @cached_property
    def _slices(self) -> tuple[tuple[str, FeatureEncoding, slice], ...]:
        """Name, encoding and encoded columns of each feature."""
        slices = []
        start = 0
        for feature, part in zip(self.schema.features, self.parts, strict=True):
            stop = start + len(part.names)
            slices.append((feature.name, part, slice(start, stop)))
            start = stop
        return tuple(slices)

    @cached_property
    def columns_of(self) -> Mapping[str, slice]:
        """Feature → the encoded columns that are of it alone; without those of its distance."""
        return {name: where for name, _, where in self._slices}

    @cached_property
    def bins(self) -> tuple[int, ...]:
        """Indices of the encoded columns that are bins of a number."""
        return tuple(
            slice_.start + 1 + number
            for _, part, slice_ in self._slices
            if isinstance(part, PiecewiseLinear)
            for number in range(len(part.columns))
        )

    @cached_property
    def training_range(self) -> npt.NDArray[np.float32]:
        """Smallest and largest value of each encoded column over the training rows, ``[2, D]``.

        A row outside has a value beyond the training range of a feature, or a category unseen in training. The bounds
        are infinite for columns that are bounded by construction, such as sines.
        """
        with np.errstate(over="ignore"):
            ends = [part.training_range() for part in self.parts]
            beyond = [self._range_distance.training_range(self.schema).astype(np.float32)]
            if self.whitening is not None:
                directions, further = np.split(self.whitening.training_range().astype(np.float32), 2, axis=1)
                beyond = [directions, *beyond, further]
            if self.distribution is not None:
                beyond.append(np.zeros((2, 1), dtype=np.float32))
            return np.concatenate([*ends, *beyond], axis=1)

    @cached_property
    def zero_in_training(self) -> tuple[int, ...]:
        """Indices of the encoded columns that are zero for every training row: no row informs their weights."""
        return tuple(np.flatnonzero((self.training_range == 0.0).all(axis=0)).tolist())

    @cached_property
    def _doubted(self) -> tuple[tuple[int, int], ...]:
        """Encoded columns of the distance of single numbers, each with the number's place in the distribution."""
        places = {} if self.distribution is None else {name: at for at, name in enumerate(self.distribution.numbers)}
        start = self.range_distance_columns.start
        return tuple(
            (start + at, places[name]) for at, name in enumerate(self._range_distance.features) if name in places
        )

    @cached_property
    def _furthest(self) -> npt.NDArray[np.float32] | None:
        """Largest distance of each number that is doubted, ``[F]``; None where there is no limit."""
        limits = [
            self.continuations[name].furthest if name in self.continuations else np.inf
            for name in self._range_distance.features
        ]
        return None if np.isinf(limits).all() else np.array(limits, dtype=np.float32)

    @cached_property
    def unlike_columns(self) -> tuple[int, ...] | None:
        """Indices of the encoded columns that are above 0 for rows unlike the training rows.

        They hold the distance of the combination, and unseen categories. None without a distribution: there every
        column outside its training range counts.
        """
        if self.distribution is None:
            return None
        unseen = (number for number in self.zero_in_training if number not in self.range_distance_columns)
        return (*unseen, self.width - 1)

    def encode(self, columns: Columns) -> npt.NDArray[np.float32]:
        """Encode rows.

        Args:
            columns: Canonical columns of the features, each ``[B]`` (`model.tables.schema`); others are ignored.

        Returns:
            ``[B, D]`` float32, C-contiguous and finite. Numbers are standardised and clipped at ±`LARGEST`.

        Raises:
            TableError: A cell is missing in a feature that accepts no missing cells; the message names column and row
                (from 1).
        """
        rows = len(columns[self.schema.features[0].name])
        encoded = np.empty((rows, self.width), dtype=np.float32)
        # Values beyond float64 or float32 become infinite here, and are then clipped.
        with np.errstate(over="ignore"):
            seen = self._range_distance.followed(columns, self.continuations)
            for start in range(0, rows, _TILE):
                tile = encoded[start : start + _TILE]
                for name, part, where in self._slices:
                    part.encode(seen[name][start : start + _TILE], tile[:, where])
                rows_of_tile, at = slice(start, start + _TILE), self.range_distance_columns.start
                further = at + len(self._range_distance.features)
                self._range_distance.encode(columns, rows_of_tile, tile[:, at:further])
                if self.whitening is not None:
                    count = self.whitening.count
                    directions = self.whitening.encode(seen, rows_of_tile)
                    tile[:, at - count : at], tile[:, further : further + count] = directions
                if self.distribution is not None:
                    cells = {name: columns[name][rows_of_tile] for name, _, _ in self._slices}
                    distances = DistanceInputs.of(self.distribution, cells)
                    tile[:, -1] = distances.combination
                    for column, number in self._doubted if distances.isolated.size else ():
                        tile[distances.isolated, column] += distances.differences[:, number]
                if self._furthest is not None:
                    np.clip(tile[:, at:further], -self._furthest, self._furthest, out=tile[:, at:further])
                np.minimum(tile, LARGEST, out=tile)
                np.maximum(tile, -LARGEST, out=tile)
                if np.isnan(tile).any():
                    raise self._refusal(tile, start)
        return encoded

    def encode_copies(self, columns: Columns) -> npt.NDArray[np.float32]:
        """Encode rows with missing cells, each as R copies with imputed cells (`model.encoding.imputation`).

        Args:
            columns: Canonical columns of the features, each ``[B]``.

        Returns:
            ``[R, B, D]``, as `encode` returns rows.
        """
        if self.distribution is None:
            raise AssertionError("without a distribution no feature accepts missing cells")
        encoded = self.encode(imputed_columns(self.distribution, self.schema, columns))
        return encoded.reshape(IMPUTATIONS, -1, self.width)

    def _refusal(self, tile: npt.NDArray[np.float32], start: int) -> TableError:
        row, column = (int(index[0]) for index in np.nonzero(np.isnan(tile)))
        name = next(name for name, _, where in self._slices if where.start <= column < where.stop)
        return TableError(
            f"column {name!r}, row {start + row + 1}: the cell is missing, and no cell of this column was "
            "missing in training: fill it in"
        )


def with_schema(data: Any, schema: Any) -> Any:
    """JSON data of an `Encoder` with what a file holds once, in its schema: each part's feature by its name.

    Args:
        data: What `Encoder.to_json` returned; returned as it is where it has another form.
        schema: JSON data of the schema.
    """
    try:
        features = {feature["name"]: feature for feature in schema["features"]}
        parts = [{**part, "feature": features.get(part["feature"], part["feature"])} for part in data["parts"]]
    except (KeyError, TypeError):
        return data
    return {**data, "schema": schema, "parts": parts}
