"""The made-up tables of `benchmarks.truth`: what outcomes follow from is known, so every answer can be checked.

A row has three numbers on [-1, 1] that matter, one that does not, and a category. Function values are of a standard
deviation of about 1: a sine, a parabola, a product and a level for each category, drawn anew for each table. An
outcome is the quantile of its law at a random level, given the function value and the scale of the noise, so that true
means and standard deviations follow by averaging over levels. Of C classes there is one function each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtri, softmax, stdtrit
from scipy.stats import poisson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.random import Generator

    from murho.model.arrays import Bools, Doubles, Ints

    Law = Callable[[Doubles, Doubles, Doubles], Doubles]

NUMBERS = ("x0", "x1", "x2", "x3")
"""The numeric features; the last one has no effect."""
FRESH, FAR = 1_200, 400
"""Rows of a query, and beyond the range."""
DISTANCES = (1.05, 1.1, 1.25, 1.5, 2.0, 10.0)
MIDDLES = (np.arange(400) + 0.5) / 400
"""Levels over which moments are averaged."""


def _normal(value: Doubles, scale: Doubles, level: Doubles) -> Doubles:
    return np.asarray(value + scale * ndtri(level))


def _skewed(value: Doubles, scale: Doubles, level: Doubles) -> Doubles:
    return np.asarray(np.exp(0.7 * value + scale * ndtri(level)))


def _capped(value: Doubles, scale: Doubles, level: Doubles) -> Doubles:
    return np.maximum(0.0, _normal(value, scale, level))


def _heavy(value: Doubles, scale: Doubles, level: Doubles) -> Doubles:
    return np.asarray(value + 0.6 * scale * stdtrit(3.0, level))


def _counts(value: Doubles, _scale: Doubles, level: Doubles) -> Doubles:
    return np.asarray(poisson.ppf(level, np.exp(0.6 * value + 1.0)), dtype=np.float64)


def _nearly_exact(value: Doubles, scale: Doubles, level: Doubles) -> Doubles:
    return _normal(value, 0.003 * scale, level)


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What outcomes follow from.

    Attributes:
        weights: Of the parts of each function, ``[C, 5]``; one function, or one for each class.
        levels: What each category adds to each function, ``[C, K]``.
        law: Quantile of an outcome, given function value, scale of the noise and level; not for classes.
        classes: C; 0: outcomes are numbers.
    """

    weights: Doubles
    levels: Doubles
    law: Law = _normal
    classes: int = 0

    @property
    def has_atoms(self) -> bool:
        """Whether single values of the outcome have probabilities of their own."""
        return self.law in (_capped, _counts)

    @classmethod
    def drawn(cls, generator: Generator, categories: int, law: Law = _normal, classes: int = 0) -> World:
        """Return a world drawn anew."""
        functions = max(1, classes)
        weights = generator.choice([-1.0, 1.0], (functions, 5)) * generator.uniform(0.6, 1.4, (functions, 5))
        return cls(weights, generator.normal(0.0, 0.5, (functions, categories)), law, classes)

    def functions(self, numbers: Doubles, category: Ints) -> Doubles:
        """Values of each function, ``[C, N]``, of numbers ``[N, 4]`` and categories ``[N]``."""
        (x0, x1, x2, _), (a, b, c, d, e) = numbers.T, self.weights.T[:, :, None]
        waves = 0.8 * a * np.sin(1.5 * b * x0 + c)
        return np.asarray(waves + 0.9 * d * (x1**2 - 1.0 / 3.0) + e * x1 * x2 + self.levels[:, category])

    def scale(self, numbers: Doubles) -> Doubles:
        """Scale of the noise, ``[N]``: up to twice as large for a large third number."""
        return np.asarray(0.3 * np.exp(0.35 * numbers[:, 2].clip(-1.0, 1.0)))

    def moments(self, numbers: Doubles, category: Ints) -> tuple[Doubles, Doubles]:
        """Return true means and standard deviations of outcomes, ``[N]`` each."""
        values, scale = self.functions(numbers, category)[0], self.scale(numbers)
        quantiles = self.law(values[:, None], scale[:, None], MIDDLES)
        return quantiles.mean(axis=1), quantiles.std(axis=1)

    def probabilities(self, numbers: Doubles, category: Ints) -> Doubles:
        """Return true probabilities of the classes, ``[N, C]``."""
        return np.asarray(softmax(2.0 * self.functions(numbers, category).T, axis=1))

    def outcomes(self, generator: Generator, numbers: Doubles, category: Ints) -> Doubles:
        """Outcomes drawn at random, ``[N]``: numbers, or places of classes."""
        level = generator.uniform(size=len(numbers))
        if self.classes:
            below = self.probabilities(numbers, category).cumsum(axis=1)
            return np.asarray((below < level[:, None]).sum(axis=1).clip(max=self.classes - 1), dtype=np.float64)
        return self.law(self.functions(numbers, category)[0], self.scale(numbers), level)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """N rows with their outcomes.

    Attributes:
        numbers: The four numbers, ``[N, 4]``.
        category: Number of the category, ``[N]``.
        outcomes: Numbers, or places of classes, ``[N]``.
        hidden: Which of the numbers are missing, ``[N, 4]``; None: all are.
        more: Further columns.
    """

    numbers: Doubles
    category: Ints
    outcomes: Doubles
    hidden: Bools | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)

    def features(self) -> pa.Table:
        """Return the features, with the missing cells."""
        hidden = np.zeros(self.numbers.shape, dtype=np.bool_) if self.hidden is None else self.hidden
        columns = {
            name: pa.array(values, mask=gone)
            for name, values, gone in zip(NUMBERS, self.numbers.T, hidden.T, strict=True)
        }
        return pa.table({**columns, "kind": [f"k{number:02}" for number in self.category.tolist()], **self.more})

    def labelled(self, classes: int) -> pa.Table:
        """Return the features and the outcomes, as ``y``."""
        values = [f"c{int(place)}" for place in self.outcomes] if classes else self.outcomes
        return self.features().append_column("y", pa.array(values))

    def some(self, places: Ints) -> Rows:
        """Rows by their places."""
        hidden = None if self.hidden is None else self.hidden[places]
        more = {name: np.asarray(column)[places] for name, column in self.more.items()}
        return Rows(self.numbers[places], self.category[places], self.outcomes[places], hidden, more)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A table, and rows under one or more conditions.

    Attributes:
        world: What outcomes follow from.
        training: The rows to learn from.
        fresh: Other rows like these, for `update` and `prune`.
        queries: Condition → rows.
        options: Of `murho train`.
        has_parts: Whether the function is all that rows have in common, so that doubt and noise can be separated.
    """

    world: World
    training: Rows
    fresh: Rows
    queries: Mapping[str, Rows]
    options: Mapping[str, Any] = field(default_factory=dict)
    has_parts: bool = True


def _rows(world: World, generator: Generator, count: int, categories: Ints | int | None = None) -> Rows:
    numbers = generator.uniform(-1.0, 1.0, (count, 4))
    among = world.levels.shape[1] if categories is None else categories
    category = generator.integers(among, size=count) if isinstance(among, int) else generator.choice(among, count)
    return Rows(numbers, category, world.outcomes(generator, numbers, category))


def _known(
    generator: Generator,
    condition: str,
    rows: int = 400,
    *,
    law: Law = _normal,
    classes: int = 0,
    options: Mapping[str, Any] | None = None,
    world: World | None = None,
) -> Known:
    """Return a table of so many rows, and other rows like these."""
    world = World.drawn(generator, 4, law, classes) if world is None else world
    training, fresh, query = (_rows(world, generator, count) for count in (rows, rows, FRESH))
    return Known(world, training, fresh, {condition: query}, options or {})


def _complete(generator: Generator) -> Known:
    """400 complete rows; queried as they are, beyond their range, and with missing cells."""
    known = _known(generator, "complete")
    world, queries = known.world, dict(known.queries)
    for distance in DISTANCES:
        rows = _rows(world, generator, FAR)
        rows.numbers[:, 0] = distance * generator.choice([-1.0, 1.0], FAR)
        queries[f"{distance:g} x the range"] = _again(world, generator, rows)
    rows = _rows(world, generator, FAR)
    rows.numbers[:, :2] = 1.25 * generator.choice([-1.0, 1.0], (FAR, 2))
    queries["two features at 1.25 x"] = _again(world, generator, rows)
    for name, hidden in (("one column missing", np.arange(4) == 1), ("30 % of cells missing", None)):
        rows = _rows(world, generator, FRESH)
        gone = generator.random(rows.numbers.shape) < 0.3 if hidden is None else np.tile(hidden, (FRESH, 1))
        queries[name] = replace(rows, hidden=gone)
    return replace(known, queries=queries)


def _again(world: World, generator: Generator, rows: Rows) -> Rows:
    """Rows with outcomes drawn anew, because their numbers have changed."""
    return replace(rows, outcomes=world.outcomes(generator, rows.numbers, rows.category))


def _missing(generator: Generator, *, by_value: bool) -> Known:
    """Cells missing in training too: 30 % at random, or six of ten large values of the first two numbers."""
    name = "missing by value, trained so" if by_value else "30 % missing, trained so"
    known = _known(generator, name)

    def hide(rows: Rows) -> Rows:
        chance = np.where(rows.numbers > 0.2, 0.6, 0.05) * (np.arange(4) < 2) if by_value else 0.3
        return replace(rows, hidden=generator.random(rows.numbers.shape) < chance)

    queries = {name: hide(rows) for name, rows in known.queries.items()}
    return replace(known, training=hide(known.training), fresh=hide(known.fresh), queries=queries)


def _fifty_levels(generator: Generator) -> Known:
    """Return a category of 50 levels, of which training has 40."""
    world = World.drawn(generator, 50)
    training, fresh, seen = (_rows(world, generator, count, 40) for count in (800, 400, FRESH))
    unseen = _rows(world, generator, FAR, np.arange(40, 50))
    return Known(world, training, fresh, {"50 levels": seen, "an unseen level": unseen})


def _copies(generator: Generator) -> Known:
    """150 rows, each one to five times."""
    known = _known(generator, "copies of rows", 150)
    places = generator.permutation(np.repeat(np.arange(150), generator.integers(1, 6, 150)))
    return replace(known, training=known.training.some(places))


def _groups(generator: Generator) -> Known:
    """Return groups of ten rows, each of which adds its own effect; queried for new groups."""
    known = _known(generator, "new groups", 500)

    def grouped(rows: Rows, name: str) -> Rows:
        of = np.arange(len(rows)) // 10
        effects = generator.normal(0.0, 0.6, of.max() + 1)[of]
        return replace(rows, outcomes=rows.outcomes + effects, more={"unit": [f"{name}{number}" for number in of]})

    queries = {name: grouped(rows, "b") for name, rows in known.queries.items()}
    return replace(
        known,
        training=grouped(known.training, "a"),
        fresh=grouped(known.fresh, "c"),
        queries=queries,
        options={"group": ("unit",)},
        has_parts=False,
    )


def _time(generator: Generator) -> Known:
    """Noise that is correlated from row to row (AR(1), .8); queried for 200 later rows."""
    known = _known(generator, "later rows", 600)

    def later(rows: Rows, first: int) -> Rows:
        noise = np.empty(len(rows))
        noise[0] = generator.normal(0.0, 0.5)
        for place in range(1, len(rows)):
            noise[place] = 0.8 * noise[place - 1] + generator.normal(0.0, 0.3)
        when = np.datetime64("2015-01-01") + np.arange(first, first + len(rows))
        return replace(rows, outcomes=rows.outcomes + noise, more={"day": when.astype("datetime64[D]")})

    queries = {name: later(rows.some(np.arange(200)), 600) for name, rows in known.queries.items()}
    training, fresh = later(known.training, 0), later(known.fresh, 800)
    return replace(known, training=training, fresh=fresh, queries=queries, options={"time": "day"}, has_parts=False)


def _weights(generator: Generator) -> Known:
    """Rows are chosen more often where the first number is small; their weights make up for it."""
    known = _known(generator, "row weights", 1_600)

    def chosen(rows: Rows) -> Rows:
        chance = 0.4 - 0.3 * rows.numbers[:, 0]
        places = np.flatnonzero(generator.random(len(rows)) < chance)
        return replace(rows.some(places), more={"w": 1.0 / chance[places]})

    return replace(known, training=chosen(known.training), fresh=chosen(known.fresh), options={"weight": "w"})


def _rare(generator: Generator) -> Known:
    """Two classes, of which the second has 3 % of the rows."""
    world = World.drawn(generator, 4, classes=2)
    numbers, category = generator.uniform(-1.0, 1.0, (4_000, 4)), generator.integers(4, size=4_000)
    low, high = -10.0, 10.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        shifted = replace(world, levels=world.levels + np.array([[0.0], [middle]]))
        share = shifted.probabilities(numbers, category)[:, 1].mean()
        low, high = (low, middle) if share > 0.03 else (middle, high)
    return _known(generator, "a class of 3 %", 1_200, classes=2, world=shifted)


def _idle(generator: Generator) -> Known:
    """Return 800 rows with 50 further numbers that have no effect."""

    def widen(rows: Rows) -> Rows:
        return replace(rows, more={f"idle{number:02}": generator.uniform(-1.0, 1.0, len(rows)) for number in range(50)})

    known = _known(generator, "50 idle features", rows=800)
    queries = {condition: widen(rows) for condition, rows in known.queries.items()}
    return replace(known, training=widen(known.training), fresh=widen(known.fresh), queries=queries)


TABLES: dict[str, Callable[[Generator], Known]] = {
    "complete": _complete,
    "missing": partial(_missing, by_value=False),
    "missing by value": partial(_missing, by_value=True),
    "levels": _fifty_levels,
    "copies": _copies,
    "groups": _groups,
    "time": _time,
    "weights": _weights,
    **{f"{rows} rows": partial(_known, condition=f"{rows} rows", rows=rows) for rows in (40, 99, 2_000)},
    "skewed": partial(_known, condition="skewed", law=_skewed),
    "capped": partial(_known, condition="zero-inflated", law=_capped),
    "counts": partial(_known, condition="counts", law=_counts),
    "heavy": partial(_known, condition="heavy tails", law=_heavy),
    "exact": partial(_known, condition="nearly exact", law=_nearly_exact),
    "one member": partial(_known, condition="one member", options={"members": 1}),
    "two members": partial(_known, condition="two members", options={"members": 2}),
    "quick": partial(_known, condition="--quick", options={"quick": True}),
    "temperature": partial(_known, condition="--temperature 1", options={"temperature": 1.0}),
    **{
        f"{classes} classes": partial(_known, condition=f"{classes} classes", rows=rows, classes=classes)
        for classes, rows in ((2, 400), (3, 400), (10, 2_000))
    },
    "rare": _rare,
    "idle": _idle,
}
"""Name → what makes the table."""


def known_table(name: str, repeat: int) -> Known:
    """One of `TABLES`, drawn anew for each repeat."""
    return TABLES[name](np.random.default_rng([list(TABLES).index(name), repeat]))
