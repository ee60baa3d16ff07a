"""What is kept of predictions and their outcomes, how they are grouped and scored, and what followers get of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, cast

import msgspec
import numpy as np
from pydantic import Field, field_validator

from murho.model.evaluation.recorded import LEVELS, band_ends, class_pits, class_sums, number_pits, number_sums
from murho.model.tables.cells import parse_date
from murho.model.tables.schema import Feature, FeatureKind, format_value
from murho.service.predict.options import RequestModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Row

    from murho.model.arrays import Bools, Doubles, Floats
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.spec import ModelSpec

Value: TypeAlias = float | str
"""An outcome: a number, or the name of a class."""
Earlier: TypeAlias = "Callable[[int], str | None]"
"""From the number of a state to its document, or to that of the one before it that is kept; None: it is gone."""

PARTS = 4
"""Groups of a number or a date: a quarter of the training range each."""
MISSING, OTHER = "(missing)", "(other)"


class FeatureFacts(msgspec.Struct, frozen=True):
    """What tells the groups of a feature: a category each, or a part of the training range.

    Attributes:
        name: The feature's name.
        date: Whether its cells are dates.
        groups: The names of categories or parts.
        edges: Where parts meet, rising; None: the groups are categories.
    """

    name: str
    date: bool
    groups: tuple[str, ...]
    edges: tuple[float, ...] | None = None

    @classmethod
    def of(cls, feature: Feature) -> Self:
        """Return the facts of a feature."""
        date, low, high = feature.kind is FeatureKind.DATE, feature.minimum, feature.maximum
        if feature.kind is FeatureKind.CATEGORICAL:
            return cls(feature.name, date, feature.categories)
        if feature.kind is FeatureKind.BOOLEAN:
            return cls(feature.name, date, ("false", "true"))
        if low is None or high is None or low == high:
            return cls(feature.name, date, ("any",), ())
        inner = (low + (high - low) * part / PARTS for part in range(1, PARTS))
        edges = sorted({float(round(edge)) if date else float(f"{edge:.3g}") for edge in inner})
        texts = [format_value(feature, edge) for edge in edges]
        between = (f"{left} to {right}" for left, right in pairwise(texts))
        return cls(feature.name, date, (f"below {texts[0]}", *between, f"{texts[-1]} and above"), tuple(edges))

    def group(self, cell: Any) -> str:
        """Return the group of a cell, as requests and the store have it."""
        if cell is None:
            return MISSING
        if self.edges is None:
            named = str(cell).lower() if isinstance(cell, bool) else str(cell)
            return named if named in self.groups else OTHER
        try:
            value = parse_date(cell) if self.date else float(cell)
        except (TypeError, ValueError):  # of another model that was this version then
            return OTHER
        return self.groups[sum(value >= edge for edge in self.edges)]


class VersionFacts(msgspec.Struct, frozen=True):
    """What scoring and grouping need to know of a version, kept in the store as JSON.

    Attributes:
        target: The target's name.
        classes: Its classes; None: it predicts a number.
        features: Its features.
        rows: Held-out rows (or groups of them) behind its conformal map; None: it has none.
        central: Whether that map is the symmetric one.
    """

    target: str
    classes: tuple[str, ...] | None
    features: tuple[FeatureFacts, ...]
    rows: int | None = None
    central: bool = False

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """Return the facts of a version's specification."""
        target, features = spec.schema.target, tuple(map(FeatureFacts.of, spec.schema.features))
        if target.classes is not None or spec.calibration is None:
            return cls(target.name, target.classes, features)
        calibration = cast("ConformalMap", spec.calibration)
        return cls(target.name, None, features, round(calibration.units), calibration.is_symmetric)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Predictions that are to be recorded, B rows.

    Attributes:
        model: The model's name.
        version: Its version.
        at: When they were made, in seconds since 1970.
        ids: One a row.
        means: Of numbers, float64 `[B]`; empty for classes.
        answers: float32 `[B, …]`: of numbers the percentiles at `LEVELS` less the mean; of classes the probabilities,
            then 1 for each class in the prediction set.
        inputs: The cells of each row as JSON; None: they aren't recorded.
        decisions: The decision of each row as JSON; None: these are no decisions.
        state: The state of adaptation that made the bands; None: the checkpoint's calibration.
        facts: What is to be known of the version; None: the store knows it.
        shared: What decisions share: id → JSON.
    """

    model: str
    version: str
    at: float
    ids: list[str]
    means: bytes
    answers: bytes
    inputs: list[str] | None = None
    decisions: list[str] | None = None
    state: str | None = None
    facts: VersionFacts | None = None
    shared: dict[str, str] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as the store has them."""
        none: list[None] = [None] * len(self.ids)
        size = len(self.answers) // len(self.ids)
        means = np.frombuffer(self.means, np.float64).tolist() if self.means else none
        columns = zip(self.ids, means, self.inputs or none, self.decisions or none, strict=True)
        for place, (key, mean, inputs, decision) in enumerate(columns):
            yield {
                "model": self.model,
                "id": key,
                "version": self.version,
                "at": self.at,
                "mean": mean,
                "answer": self.answers[size * place : size * (place + 1)],
                "inputs": inputs,
                "decision": decision,
                "state": self.state,
            }


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction with its outcome; see `Batch`.

    Attributes:
        id: Of the prediction.
        version: Of the model.
        at: When it was made, in seconds since 1970.
        mean: Of a number.
        answer: One row of `Batch.answers`.
        inputs: The cells as JSON; None: they weren't recorded.
        value: The outcome.
        came: When it came, in seconds since 1970.
        pit: See `model.evaluation.recorded`.
    """

    id: str
    version: str
    at: float
    mean: float | None
    answer: Floats
    inputs: str | None
    value: Value
    came: float
    pit: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of outcomes: how many are kept, how many of them replaced another value, and unknown id → why."""

    accepted: int
    revised: int
    unknown: dict[str, str]


@dataclass(frozen=True, slots=True)
class Scored:
    """Outcomes of one version, in the order of their predictions.

    Attributes:
        model: The model's name.
        version: Its version.
        facts: What is known of it.
        predicted: When they were predicted, in seconds since 1970, `[B]`.
        states: The state of adaptation behind each prediction, `[B]`.
        pits: See `model.evaluation.recorded`, `[B]`.
        inside: Whether each is in the central band of 90 %, or in the prediction set, `[B]`; `[0]` where outcomes that
            were counted before are followed again.
        sums: See `schema.SUMS`, `[B, …]`; `[0, 0]` likewise.
    """

    model: str
    version: str
    facts: VersionFacts
    predicted: list[float]
    states: list[str | None]
    pits: Doubles
    inside: Bools
    sums: Doubles


class Follower(Protocol):
    """What is kept up to date with the outcomes of each version: the alarm, adaptation.

    Attributes:
        kind: Names its states.
    """

    kind: str

    def begin(self, document: str, facts: VersionFacts) -> str:
        """Return the state before all outcomes, as JSON, that leads to states like a later one."""

    def follow(self, document: str | None, scored: Scored, earlier: Earlier) -> str | None:
        """Return the next state as JSON; None: it stays.

        Args:
            document: The latest state; None: there is none.
            scored: Outcomes that came since. Of one that was revised the last value alone is ever in a latest state.
            earlier: Gives an earlier state of this kind.
        """


@dataclass(frozen=True, slots=True)
class State:
    """A state of a follower: its number, counted from 1, when it was made, and its document, JSON."""

    number: int
    at: float
    document: str


RowOutcome: TypeAlias = "tuple[Row[Any], Value]"
"""A row of predictions and an outcome."""


def value_of(row: Row[Any]) -> Value:
    """Return the outcome in a row of predictions, which has come."""
    value: Value = row.value if row.label is None else row.label
    return value


def misfit(model: str, row: Row[Any] | None, value: Value, facts: dict[str, VersionFacts]) -> str | None:
    """Return why a value can't be the outcome of a prediction; None: it can."""
    if row is None or row.version not in facts:
        return f"No prediction of {model!r} with this id is recorded."
    classes = facts[row.version].classes
    if len(row.answer) != 4 * (len(LEVELS) if classes is None else 2 * len(classes)):
        return f"It was predicted by another model that was version {row.version} then."
    if classes is None:
        return f"Version {row.version} predicted a number, not {value!r:.80}." if isinstance(value, str) else None
    return None if value in classes else f"Version {row.version} predicted one of its classes; {value!r:.80} is none."


def _share(key: str) -> float:
    """Return a number in (0, 1) that is an id's own."""
    return (int.from_bytes(blake2b(key.encode(), digest_size=6).digest()) + 0.5) / 2.0**48


def by_version(
    model: str, facts: dict[str, VersionFacts], row_outcomes: Iterable[RowOutcome]
) -> Iterator[tuple[Scored, list[RowOutcome]]]:
    """Yield outcomes by version, scored, in the order of their predictions; those that don't fit are left out."""
    fitting = [each for each in row_outcomes if misfit(model, *each, facts) is None]
    fitting.sort(key=lambda each: (each[0].version, each[0].at, each[0].id))
    for version, part in groupby(fitting, key=lambda each: str(each[0].version)):
        pairs = list(part)
        yield _score(model, version, facts[version], pairs), pairs


def _score(model: str, version: str, facts: VersionFacts, row_outcomes: Sequence[RowOutcome]) -> Scored:
    rows, classes = [row for row, _ in row_outcomes], facts.classes
    answers = np.frombuffer(b"".join(row.answer for row in rows), np.float32).reshape(len(rows), -1)
    shares = np.array([_share(row.id) for row in rows])
    if classes is None:
        values = np.array([value for _, value in row_outcomes], float) - np.array([row.mean for row in rows], float)
        pits = number_pits(answers, values, shares)
        sums, inside = number_sums(answers, values, pits), np.abs(pits - 0.5) <= 0.45
    else:
        places = {name: place for place, name in enumerate(classes)}
        indices = np.array([places[str(value)] for _, value in row_outcomes], np.intp)
        probabilities, sets = answers[:, : len(classes)], answers[:, len(classes) :] > 0.0
        pits = class_pits(probabilities, indices, shares)
        sums, inside = class_sums(probabilities, sets, indices), sets[np.arange(len(rows)), indices]
    return Scored(model, version, facts, [row.at for row in rows], [row.state for row in rows], pits, inside, sums)


HOURS = {"h": 1, "d": 24, "w": 168}
WINDOW = re.compile(r"[1-9][0-9]{0,5}[hdw]")
COUNTED = "0.05, 0.1, … 0.95, 0.98 or 0.99"


class QualityQuery(RequestModel):
    """What is asked of the quality of a model."""

    window: str = "30d"
    """How far back predictions go, in hours, days or weeks: 24h, 30d, 4w."""
    by: str | None = None
    """A feature whose groups are told apart; inputs must be recorded."""
    coverage: float | None = Field(None, strict=False, description=f"Of a further central band: {COUNTED}.")
    version: str | None = None
    """The only version; by default all."""

    @property
    def hours(self) -> int:
        """Hours of the window."""
        return int(self.window[:-1]) * HOURS[self.window[-1]]

    @field_validator("window")
    @classmethod
    def _time(cls, window: str) -> str:
        if not WINDOW.fullmatch(window):
            raise ValueError("Expected a number of hours, days or weeks such as 24h, 30d or 4w")
        return window

    @field_validator("coverage")
    @classmethod
    def _check_coverage(cls, coverage: float | None) -> float | None:
        if coverage is not None and (not 0.0 < coverage < 1.0 or len(set(band_ends(coverage))) < 2):
            raise ValueError(f"Expected a share that is counted: {COUNTED}")
        return coverage
