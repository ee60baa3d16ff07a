"""The encoder: canonical columns to the float32 matrix ``[B, D]`` of network inputs.

The encoded columns are, in this order: each feature by itself (`model.encoding.feature_encodings`), directions of
correlated numbers if asked for (`model.encoding.whitening`), the distance to the training rows feature by feature
(`Ranges`) and that of the combination (`model.encoding.outliers`).

A network goes on beyond the range of its training rows along whatever slope it has at the edge, as far as it is asked.
Some features deserve that (a year in a trend), others do not (the last bin of a price list). So beyond the range the
network sees only a share of the excess, and no more than a certain excess.

A weight that no training row informs keeps its prior. So every number and date has an input that is zero among the
training rows, and grows beyond their range. An unseen category has a level of its own for the same reason. Among
training rows these inputs change no prediction. Elsewhere the function values of different draws diverge with the
input, and epistemic_std grows with it, without a limit: as the slope and the bend of the function at the edge say.
`model.training.extrapolation` finds all this from the training rows.

A new encoding needs a file with one class, a `model.encoding.feature_encodings.FeatureEncoding`, and an entry in
`ENCODINGS`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from pydantic import Field

from murho.model.arrays import Array, Bools, Doubles, Floats, Places
from murho.model.encoding.feature_distribution import FeatureDistribution
from murho.model.encoding.feature_encodings import (
    LARGEST,
    Calendar,
    FeatureEncoding,
    OneHot,
    PiecewiseLinear,
    Scaled,
    Standard,
    Unread,
)
from murho.model.encoding.imputation import IMPUTATIONS, impute_columns
from murho.model.encoding.outliers import COMBINATION, Distances, unfamiliar_values
from murho.model.encoding.whitening import Whitening
from murho.model.errors import OptionError
from murho.model.json_validation import MisfitError, NotNegative, Share, Stored, one_of, read_as
from murho.model.tables.schema import NEAR, Columns, FeatureKind, Schema, UnfamiliarValue, count_rows, is_missing


@dataclass(frozen=True, slots=True)
class Continuation(Stored):
    """How a function goes on beyond the training range of a number.

    Attributes:
        share: Share of the excess over the range that the network sees, from 0 (the number is clamped) to 1.
        tested: Largest excess below and above the range that the network sees and along which a bend goes on, in the
            feature's unit.
        slopes: Standard deviation of the random slope below and above the range, in units of the input's weight.
        bends: Standard deviation of the random curvature there, in these units for each standard deviation of the
            number.
        stops: Standard deviation of a further random slope beyond the tested excess, where the network sees no more.
    """

    share: Share
    tested: tuple[NotNegative, NotNegative]
    slopes: tuple[NotNegative, NotNegative]
    bends: tuple[NotNegative, NotNegative]
    stops: tuple[NotNegative, NotNegative]


_FOLLOWED = Continuation(1.0, (math.inf, math.inf), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0))
"""A number without a continuation, such as a date, is seen as it is, with a random slope."""


@dataclass(frozen=True)
class Ranges:
    """The training ranges of F numbers and dates: what the network sees beyond them, and the inputs that open the band.

    This is where the range of a feature is decided. The range of a column with outliers ends at
    `model.encoding.feature_encodings.FURTHEST` standard deviations.

    Attributes:
        features: The numbers and dates with a training range, without bounded ones (`Standard.bounded`).
        minima: Lower ends of their training ranges, ``[F]``.
        maxima: Upper ends, ``[F]``.
        stds: Standard deviations over the training rows, ``[F]``.
        shares: Shares of the excess that are seen, ``[F]``.
        sides: Of the sides below and above: tested excess, slope, bend and stop (`Continuation`), ``[4, 2, F]``.
    """

    features: tuple[str, ...]
    minima: Doubles
    maxima: Doubles
    stds: Doubles
    shares: Doubles
    sides: Doubles

    @classmethod
    def of(cls, parts: Sequence[FeatureEncoding], continuations: Mapping[str, Continuation]) -> Self:
        """Build from the ranges of the features, the scales of their encodings, and continuations by name."""
        names, rows, sides = [], [], []
        for part in parts:
            feature = part.feature
            bounded = isinstance(part, Standard) and (part.bounded or feature.kind is FeatureKind.BOOLEAN)
            if not isinstance(part, Scaled) or bounded or feature.minimum is None or feature.range_end is None:
                continue
            scale, rule = part.scale, continuations.get(feature.name, _FOLLOWED)
            half_width = scale.limit * scale.std
            ends = max(feature.minimum, scale.mean - half_width), min(feature.range_end, scale.mean + half_width)
            names.append(feature.name)
            rows.append((*ends, scale.std, rule.share))
            sides.append((rule.tested, rule.slopes, rule.bends, rule.stops))
        minima, maxima, stds, shares = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        of_sides = np.array(sides, dtype=np.float64).reshape(-1, 4, 2).transpose(1, 2, 0)
        return cls(tuple(names), minima, maxima, stds, shares, of_sides)

    def measure(self, columns: Columns) -> tuple[Doubles, Columns]:
        """Return the inputs for the distances beyond the ranges, and the columns as the network sees them.

        At an excess of d standard deviations, t of them tested, the input is the standard deviation of a random slope,
        a random curvature and, where the network sees no more, another slope:
        ``sqrt((slope d)^2 + (bend t (d - t / 2))^2 + (stop (d - t))^2)``. It has no sign, so that in a draw both sides
        of a range move alike: their errors must not cancel in a total.

        Args:
            columns: Canonical columns, ``[B]`` each.

        Returns:
            The inputs, ``[B, F]``, 0 where a cell is missing. And the columns, in which numbers beyond their range
            follow their continuation.
        """
        if not self.features:
            return np.zeros((count_rows(columns), 0)), columns
        values = np.stack([*map(columns.__getitem__, self.features)], axis=1)
        inside = np.minimum(np.maximum(values, self.minima), self.maxima)
        excess = values - inside
        excess[np.isnan(excess)] = 0.0
        if not excess.any():
            return excess, columns
        most, slopes, bends, stops = np.where(excess < 0.0, self.sides[:, None, 0], self.sides[:, None, 1])
        followed = np.minimum(np.abs(excess), most)
        seen = inside + np.copysign(self.shares * followed, excess)
        distances = np.minimum(np.abs(excess) / self.stds, LARGEST)
        tested = np.minimum(followed / self.stds, LARGEST)
        terms = slopes * distances, bends * tested * (distances - 0.5 * tested), stops * (distances - tested)
        return np.linalg.norm(terms, axis=0), {**columns, **dict(zip(self.features, seen.T, strict=True))}


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

_KINDS: TypeAlias = Mapping[FeatureKind, type[FeatureEncoding]]
_STANDARD: _KINDS = {
    FeatureKind.NUMERIC: Standard,
    FeatureKind.BOOLEAN: Standard,
    FeatureKind.DATE: Calendar,
    FeatureKind.CATEGORICAL: OneHot,
}
ENCODINGS: Mapping[str, _KINDS] = {
    "standard": _STANDARD,
    PIECEWISE: {**_STANDARD, FeatureKind.NUMERIC: PiecewiseLinear},
}
"""Name of the encoding → feature kind → encoding class."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as inputs of networks, and what the encoder found out about them.

    Attributes:
        inputs: ``[B, D]`` float32, C-contiguous and finite, within ± `model.encoding.feature_encodings.LARGEST`; of
            rows with imputed cells R copies, ``[R, B, D]``.
        out_of_range: Whether an input lies beyond its training range, or the row is an outlier, ``[B]`` or ``[R, B]``.
        outlier: Whether each row is unlike the training rows, all its copies, or has a category unseen in training,
            ``[B]``. Without a distribution of the features these are the rows beyond.
        extrapolation: Whether each row is unlike the training rows, or a number or date of it lies far outside its
            training range (`model.tables.schema.Feature.outside`), ``[B]``.
        has_warnings: Whether `Encoder.unfamiliar_values` has a warning for each row, ``[B]``: it extrapolates, has
            imputed cells, or a category that is unseen though it counts as one of the rare ones of training.
        distances: Those of the rows to tell of, in order; None if there is none, without a distribution of the
            features, for copies, which are measured and not the row itself, and for some of the rows.
    """

    inputs: Floats
    out_of_range: Bools
    outlier: Bools
    extrapolation: Bools
    has_warnings: Bools
    distances: Distances | None = None

    @classmethod
    def like(cls, inputs: Floats) -> Self:
        """Return inputs ``[B, D]`` of rows that are like the training rows."""
        return cls(inputs, *np.zeros((4, len(inputs)), dtype=np.bool_))

    def __len__(self) -> int:
        """Return the number of rows, B."""
        return len(self.outlier)

    def __getitem__(self, rows: slice | Array) -> Encoded:
        """Return some of the rows: views for a slice, copies for numbers of rows."""
        of_rows = self.outlier[rows], self.extrapolation[rows], self.has_warnings[rows]
        return Encoded(self.inputs[..., rows, :], self.out_of_range[..., rows], *of_rows)


# Rows encoded at a time, so that temporary arrays fit in the processor's cache.
_TILE = 2048
PIECE_VALUES = 2**18
"""Encoded values of a piece of incomplete rows: each row has R copies of them, and their draws."""


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
        textbook: Whether the network reads the features only, and as they are: nothing is clipped, and no input
            measures the distance from the training rows.
    """

    schema: Annotated[Schema, Field(exclude=True)]
    encoding: Annotated[str, one_of(*ENCODINGS)]
    parts: tuple[Annotated[FeatureEncoding, read_as(_Part)], ...]
    whitening: Whitening | None = None
    distribution: FeatureDistribution | None = None
    continuations: Mapping[str, Continuation] = field(default_factory=dict)
    textbook: bool = False

    def __post_init__(self) -> None:
        """Check what other choices of features and options than a training's could break.

        Raises:
            MisfitError: No feature is read, or none knows what missing cells may have been.
        """
        if len(self.unread) == len(self.parts):
            raise MisfitError("parts", "at least one that is read", list(self.unread))
        if self.distribution is None and any(feature.imputed for feature in self.schema.features):
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
        textbook: bool = False,
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
            textbook: See `Encoder`.

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
        if textbook:
            parts = tuple(part.without_limit() if isinstance(part, Scaled) else part for part in parts)
        whitening = Whitening.fit(parts, columns) if whitened and not textbook else None
        return cls(schema, encoding, parts, whitening, distribution, textbook=textbook)

    @cached_property
    def unread(self) -> tuple[str, ...]:
        """Names of the features that are no inputs of the networks, in schema order."""
        return tuple(part.feature.name for part in self.parts if isinstance(part, Unread))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the D encoded features, such as ``Horsepower`` or ``Origin=USA``."""
        directions = () if self.whitening is None else self.whitening.names
        return (
            *(name for part in self.parts for name in part.names),
            *directions,
            *(f"{name} beyond the training rows" for name in (*self.ranges.features, *directions)),
            *((COMBINATION,) if self._measures_combination else ()),
        )

    @cached_property
    def width(self) -> int:
        """Number of encoded features, D."""
        return len(self.names)

    @cached_property
    def columns_of(self) -> Mapping[str, slice]:
        """Feature → the encoded columns that are of it alone; without those of its distance."""
        ends = np.cumsum([0, *(len(part.names) for part in self.parts)]).tolist()
        return {part.feature.name: slice(*ends[at : at + 2]) for at, part in enumerate(self.parts)}

    @cached_property
    def feature_of_column(self) -> tuple[int, ...]:
        """Number of the feature of each encoded column, ``[D]``; directions count as one together, so do distances."""
        of_features = [number for number, part in enumerate(self.parts) for _ in part.names]
        directions = self.range_distance_columns.start - len(of_features)
        last = len(self.parts)
        return (*of_features, *[last] * directions, *[last + 1] * len(self.range_distance_columns))

    @cached_property
    def range_distance_columns(self) -> range:
        """Indices of the encoded columns that hold the distance to the training rows: the last columns."""
        first = self.columns_of[self.parts[-1].feature.name].stop
        return range(first if self.whitening is None else first + len(self.whitening.minima), self.width)

    @property
    def _measures_combination(self) -> bool:
        """Whether the last input is the distance of the combination."""
        return self.distribution is not None and not self.textbook

    @cached_property
    def ranges(self) -> Ranges:
        """The training ranges of numbers and dates, and what lies beyond them."""
        return Ranges.of(() if self.textbook else self.parts, self.continuations)

    @cached_property
    def bins(self) -> tuple[int, ...]:
        """Indices of the encoded columns that are bins of a number."""
        return tuple(
            self.columns_of[part.feature.name].start + number
            for part in self.parts
            if isinstance(part, PiecewiseLinear)
            for number in range(1, len(part.cell_names))
        )

    @cached_property
    def unseen(self) -> Mapping[int, OneHot]:
        """Encoded column of the categories that have none of their own → the encoding of that feature."""
        categories = (part for part in self.parts if isinstance(part, OneHot))
        return {self.columns_of[part.feature.name].start + part.others: part for part in categories}

    @cached_property
    def training_range(self) -> Floats:
        """Smallest and largest value of each encoded column over the training rows, ``[2, D]``.

        A row outside has a value beyond the training range of a feature, or a category unseen in training. The bounds
        are infinite for columns that are bounded by construction, such as sines.
        """
        with np.errstate(over="ignore"):
            features = self.schema.features
            ranges, _ = self.ranges.measure(
                {each.name: np.array([each.minimum, each.range_end], dtype=np.float64) for each in features}
            )
            directions, distances = np.empty((2, 2, 0)) if self.whitening is None else self.whitening.training_range()
            combination = np.zeros((2, int(self._measures_combination)))
            parts = (part.training_range() for part in self.parts)
            return np.concatenate([*parts, directions, ranges, distances, combination], axis=1).astype(np.float32)

    @cached_property
    def zero_in_training(self) -> tuple[int, ...]:
        """Indices of the encoded columns that are zero for every training row: no row informs their weights."""
        return tuple(np.flatnonzero((self.training_range == 0.0).all(axis=0)).tolist())

    @cached_property
    def _doubted(self) -> Places:
        """Places of the numbers with an input for their distance, in the ranges and the distribution, ``[2, n]``."""
        numbers = () if self.distribution is None else tuple(self.distribution.numbers)
        both = [name for name in self.ranges.features if name in numbers]
        return np.array([[names.index(name) for name in both] for names in (self.ranges.features, numbers)], dtype=int)

    def encode(self, columns: Columns) -> Encoded:
        """Encode rows.

        Args:
            columns: Canonical columns of the features, each ``[B]`` (`model.tables.schema`), without missing cells in
                features that accept none; others are ignored.
        """
        rows = count_rows(columns)
        encoded = Encoded(np.empty((rows, self.width), dtype=np.float32), *np.zeros((4, rows), dtype=np.bool_))
        if rows <= _TILE:
            return replace(encoded, distances=self._encode(columns, encoded))
        found = []
        for start in range(0, rows, _TILE):
            tile = slice(start, start + _TILE)
            cells = {feature.name: columns[feature.name][tile] for feature in self.schema.features}
            found.append(self._encode(cells, encoded[tile]))
        kept = [distances for distances in found if distances is not None]
        return replace(encoded, distances=Distances.join(kept) if kept else None)

    def _encode(self, cells: Columns, tile: Encoded) -> Distances | None:
        """Write the encoding of a tile's rows into the tile; return the distances of those to tell of, if any."""
        out, out_of_range, outlier, has_warnings = tile.inputs, tile.out_of_range, tile.outlier, tile.has_warnings
        measured = None
        # Values beyond float64 or float32 become infinite here, and are then clipped.
        with np.errstate(over="ignore"):
            distances, seen = self.ranges.measure(cells)
            for part, where in zip(self.parts, self.columns_of.values(), strict=True):
                column = seen[part.feature.name]
                part.write(column, out[:, where])
                if part.feature.missing and where.start < where.stop:
                    absent = is_missing(column)
                    out[absent, where], out[:, where.stop - 1] = 0.0, absent
            last = self.range_distance_columns.start
            further = slice(last, last + distances.shape[1])
            if self.whitening is not None:
                count = len(self.whitening.minima)
                out[:, last - count : last], out[:, further.stop : further.stop + count] = self.whitening.apply(seen)
            if self.distribution is not None:
                measured = Distances.of(self.distribution, cells)
                outlier |= measured.outlier
                if self._measures_combination:
                    out[:, -1] = measured.combination
                if self._doubted.size and (differences := measured.differences) is not None:
                    places, numbers = self._doubted
                    distances[:, places] += differences[:, numbers]
            out[:, further] = distances
            np.minimum(out, LARGEST, out=out)
            np.maximum(out, -LARGEST, out=out)
        least, most = self.training_range
        out_of_range |= outlier | ((out < least) | (out > most)).any(axis=1)
        if self.distribution is None:
            outlier |= out_of_range
        for place, categories in self.unseen.items():
            rows = np.flatnonzero(out[:, place])
            if rows.size and categories.rare:
                known = {None, *categories.feature.categories}
                has_warnings[rows] = [cell not in known for cell in cells[categories.feature.name][rows]]
            else:
                outlier[rows] = True
        tile.extrapolation[:] = outlier
        if (rows := np.flatnonzero(out_of_range & ~outlier)).size:
            for feature in self.schema.features:
                if feature.kind is not FeatureKind.CATEGORICAL:
                    tile.extrapolation[rows] |= feature.outside(cells[feature.name][rows], NEAR)
        has_warnings |= tile.extrapolation
        return None if measured is None or not has_warnings.any() else measured[has_warnings]

    def encode_copies(self, columns: Columns) -> Encoded:
        """Encode rows with missing cells, each as R copies with imputed cells (`model.encoding.imputation`).

        Args:
            columns: Canonical columns of the features, each ``[B]``.
        """
        if self.distribution is None:
            raise AssertionError("without a distribution no feature accepts missing cells")
        every = self.encode(impute_columns(self.distribution, self.schema, columns))
        shape = IMPUTATIONS, len(every) // IMPUTATIONS
        of_copies = every.outlier.reshape(shape), every.extrapolation.reshape(shape)
        outlier, extrapolation = (np.logical_and.reduce(each) for each in of_copies)
        inputs, out_of_range = every.inputs.reshape(*shape, -1), every.out_of_range.reshape(shape)
        return Encoded(inputs, out_of_range, outlier, extrapolation, np.ones_like(outlier))

    def encode_pieces(self, columns: Columns) -> Iterator[tuple[Places, Encoded]]:
        """Encode the complete rows, and then pieces of those with cells to impute.

        Args:
            columns: Canonical columns of the features, each ``[B]``.

        Yields:
            Numbers of rows, and these rows.
        """
        incomplete = self.schema.incomplete(columns)
        count = count_rows(columns)
        if not incomplete.size:
            yield np.arange(count), self.encode(columns)
            return
        complete = np.setdiff1d(np.arange(count), incomplete, assume_unique=True)
        pieces = np.array_split(incomplete, -(-incomplete.size * self.width // PIECE_VALUES))
        for rows, encode in ((complete, self.encode), *((piece, self.encode_copies) for piece in pieces)):
            if rows.size:
                yield rows, encode({name: column[rows] for name, column in columns.items()})

    def unfamiliar_values(self, columns: Columns, encoded: Encoded, rows: Places) -> list[UnfamiliarValue]:
        """List what is unlike the training rows, see `model.encoding.outliers.unfamiliar_values`.

        Args:
            columns: Canonical columns of the features of the rows to tell of, each ``[n]``.
            encoded: These rows among others.
            rows: Their numbers there, ``[n]``; `Encoded.told` holds for each.
        """
        distances = encoded.distances
        if distances is not None:
            distances = distances[np.cumsum(encoded.has_warnings)[rows] - 1]
        elif self.distribution is not None:
            distances = Distances.of(self.distribution, columns)
        return unfamiliar_values(distances, self.schema, columns)


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
