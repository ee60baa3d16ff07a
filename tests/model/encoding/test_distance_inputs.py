"""Inputs that are zero for training rows: of odd combinations, and of rows that no training row is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from murho.model.encoding.encoder import Encoder
from murho.model.encoding.feature_distribution import fit_feature_distribution
from murho.model.encoding.unlike import Distances
from tests.model.encoding.distribution_tables import numeric_columns, paired_columns, schema_of

if TYPE_CHECKING:
    from murho.model.encoding.feature_distribution import FeatureDistribution


def fitted(columns: dict[str, np.ndarray]) -> FeatureDistribution:
    distribution = fit_feature_distribution(schema_of(columns), columns)
    assert distribution is not None
    return distribution


PAIRS = paired_columns()
PAIRED = fitted(PAIRS)


def with_a_gap() -> dict[str, np.ndarray]:
    """Two independent numbers; the first has no value between -1 and 1."""
    values = np.random.default_rng(0).uniform(1.0, 3.0, size=(400, 2))
    values[::2, 0] *= -1.0
    return numeric_columns(values)


GAP = with_a_gap()
GAPPED = fitted(GAP)


def rows(*values: tuple[float, ...]) -> dict[str, np.ndarray]:
    return numeric_columns(np.array(values, dtype=np.float64))


def test_the_input_of_the_combination_is_zero_for_like_rows_and_single_numbers_beyond() -> None:
    values = rows((0.0,) * 5, (0.0, 0.0, 0.0, 9.0, 0.0), (1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 0.0, 9.0, 0.0))
    measured = Distances.of(PAIRED, values)
    like, alone, combined, both = measured.combination
    assert like == alone == 0.0
    assert measured.unlike.tolist() == [False, True, True, True]
    assert combined == pytest.approx(np.log1p(measured.within[0, 2] - PAIRED.reach))
    assert both == pytest.approx(np.log1p(measured.within[0, 3] - PAIRED.reach - measured.beyond[3]))
    assert 0.0 < both < combined
    training = Distances.of(PAIRED, PAIRS)
    assert not training.combination.any()
    assert not training.unlike.any()


def test_a_row_in_a_gap_is_isolated_in_the_number_of_the_gap_and_no_training_row_is() -> None:
    found = Distances.of(GAPPED, rows((0.0, 2.0), (2.0, 2.0), (-2.0, 1.5)))
    assert found.unlike.tolist() == [True, False, False]
    assert not found.combination.any()
    assert found.differences is not None
    gap, other = np.abs(found.differences[0])
    assert gap > 3.0 * other
    assert not found.differences[1:].any()
    assert Distances.of(GAPPED, GAP).differences is None


def test_the_difference_grows_from_zero_where_the_row_is_within_reach() -> None:
    asked = rows(*((place, 2.0) for place in np.linspace(-0.9, 0.0, 40)))
    differences = Distances.of(GAPPED, asked).differences
    assert differences is not None
    sizes = np.linalg.norm(differences, axis=1)
    assert sizes[0] == 0.0
    assert sizes[-1] == sizes.max() > 0.1
    assert np.abs(np.diff(sizes)).max() < 0.1


def test_the_encoder_adds_the_difference_to_the_distance_of_that_number() -> None:
    encoder = Encoder.fit(schema_of(GAP), GAP, distribution=GAPPED)
    encoded = encoder.encode(rows((0.0, 2.0), (2.0, 2.0), (9.0, 2.0))).inputs
    place = encoder.names.index("x1 beyond the training rows")
    differences = Distances.of(GAPPED, rows((0.0, 2.0))).differences
    assert differences is not None
    assert encoded[0, place] == pytest.approx(differences[0, 0], rel=1e-6)
    assert encoded[1, place] == 0.0
    assert encoded[2, place] == pytest.approx((9.0 - GAP["x1"].max()) / GAP["x1"].std(), rel=1e-6)
    assert not encoder.encode(GAP).inputs[:, list(encoder.zero_in_training)].any()


def test_the_number_of_the_gap_is_named_first_with_the_value_of_the_nearest_rows() -> None:
    (row, name, nearest), *_ = Distances.of(GAPPED, rows((0.2, 2.0))).far_numbers(np.array([0]))
    assert (row, name) == (0, "x1")
    assert abs(nearest) == pytest.approx(1.1, abs=0.3)


def test_a_gap_is_found_beside_numbers_with_thin_tails() -> None:
    generator = np.random.default_rng(0)
    values = np.column_stack([generator.uniform(0.0, 7.0, 600), generator.normal(size=600)])
    values[values[:, 0] > 4.0, 0] += 3.0
    columns = numeric_columns(values)
    found = Distances.of(fitted(columns), rows((5.5, 0.0), (5.5, 1.0), (2.0, 0.0), (8.0, 2.5), (2.0, -2.5)))
    assert found.differences is not None
    assert found.differences.any(axis=1).tolist() == [True, True, False, False, False]


def test_a_missing_cell_makes_no_row_isolated() -> None:
    assert Distances.of(GAPPED, rows((np.nan, 2.0), (np.nan, np.nan))).differences is None
