from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.encoding.distribution_fit import fit_feature_distribution
from murho.model.encoding.unlike import RowDistances, odd_combinations
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


def test_single_numbers_beyond_their_range_count_for_the_distance_and_not_for_the_combination() -> None:
    far = RowDistances.of(DISTRIBUTION, rows((0.0, 0.0, 0.0, 9.0, 0.0), (1.5, -1.5, 0.0, 0.0, 0.0)))
    assert (far.distances > DISTRIBUTION.reach).tolist() == [True, True]
    assert (far.within > DISTRIBUTION.reach).tolist() == [False, True]


def test_the_features_of_the_broken_pair_are_named() -> None:
    broken = RowDistances.of(DISTRIBUTION, rows((1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 1.5, 0.0, -1.5)))
    first, both = odd_combinations(DISTRIBUTION, broken.scores)
    assert [set(pair) for pair in first] == [{"x1", "x2"}]
    assert sorted(tuple(sorted(str(name) for name in pair)) for pair in both) == [("x1", "x2"), ("x3", "x5")]


def test_naming_changes_no_score() -> None:
    scores = RowDistances.of(DISTRIBUTION, rows((1.5, -1.5, 0.0, 0.0, 0.0))).scores
    before = scores.copy()
    odd_combinations(DISTRIBUTION, scores)
    np.testing.assert_array_equal(scores, before)


def test_names_do_not_depend_on_the_other_rows() -> None:
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(200, 5)) * 3.0
    together = odd_combinations(DISTRIBUTION, scores)
    assert {len(found) for found in together} == {1, 2, 3}
    assert together == [odd_combinations(DISTRIBUTION, scores[row : row + 1])[0] for row in range(200)]


def test_no_row_has_no_names() -> None:
    assert odd_combinations(DISTRIBUTION, np.zeros((0, 5))) == []
