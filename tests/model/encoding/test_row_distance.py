from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.encoding.feature_distribution import fit_feature_distribution
from murho.model.encoding.unlike import Distances
from tests.model.encoding.distribution_tables import numeric_columns, paired_columns, schema_of

if TYPE_CHECKING:
    from murho.model.encoding.feature_distribution import FeatureDistribution


def fitted() -> FeatureDistribution:
    columns = paired_columns()
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    return distribution


DISTRIBUTION = fitted()


def rows(*values: tuple[float, ...]) -> dict[str, np.ndarray]:
    return numeric_columns(np.array(values, dtype=np.float64))


def named(columns: dict[str, np.ndarray]) -> list[list[tuple[str, str | None]]]:
    """The features that make the combination of each row unusual, each with the one that it fits least."""
    count = len(columns["x1"])
    found: list[list[tuple[str, str | None]]] = [[] for _ in range(count)]
    for row, name, partner in Distances.of(DISTRIBUTION, columns).odd_combinations(np.arange(count)):
        found[row].append((name, partner))
    return found


def test_single_numbers_beyond_their_range_count_for_the_distance_and_not_for_the_combination() -> None:
    far = Distances.of(DISTRIBUTION, rows((0.0, 0.0, 0.0, 9.0, 0.0), (1.5, -1.5, 0.0, 0.0, 0.0)))
    assert far.unlike.tolist() == [True, True]
    assert (far.within.max(axis=0) > DISTRIBUTION.reach).tolist() == [False, True]


def test_the_features_of_the_broken_pair_are_named() -> None:
    first, both = named(rows((1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 1.5, 0.0, -1.5)))
    assert {frozenset(pair) for pair in first} == {frozenset(("x1", "x2"))}
    assert {frozenset(pair) for pair in both} == {frozenset(("x1", "x2")), frozenset(("x3", "x5"))}


def test_naming_changes_no_score() -> None:
    measured = Distances.of(DISTRIBUTION, rows((1.5, -1.5, 0.0, 0.0, 0.0)))
    before = measured.scores.copy()
    assert list(measured.odd_combinations(np.array([0])))
    np.testing.assert_array_equal(measured.scores, before)


def test_names_do_not_depend_on_the_other_rows() -> None:
    columns = numeric_columns(np.random.default_rng(1).normal(size=(200, 5)) * 3.0)
    together = named(columns)
    assert {len(found) for found in together} >= {1, 2}
    alone = [named({name: column[row : row + 1] for name, column in columns.items()}) for row in range(200)]
    assert together == [found for (found,) in alone]


def test_no_row_has_no_names() -> None:
    assert list(Distances.of(DISTRIBUTION, numeric_columns(np.zeros((0, 5)))).odd_combinations(np.arange(0))) == []
