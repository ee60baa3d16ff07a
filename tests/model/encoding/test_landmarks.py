"""A row that no training row is near is far from every landmark."""

from __future__ import annotations

import numpy as np

from murho.model.encoding.landmarks import LANDMARKS_OF_A_COLUMN, MOST_CELLS, Landmarks
from tests.model.conftest import present


def two_clusters(rows: int = 400) -> np.ndarray:
    """Rows of three numbers of different units: two clusters by the first, and the others go together."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, 3))
    values[: rows // 2, 0] += 10.0
    values[:, 2] = values[:, 1] + 0.1 * values[:, 2]
    return np.asarray(generator.permutation(values) * np.array([1.0, 1000.0, 0.001]) + np.array([0.0, 20_000.0, 0.0]))


VALUES = two_clusters()
STDS = VALUES.std(axis=0)


LANDMARKS = present(Landmarks.fit(VALUES, STDS))


def test_a_row_between_two_clusters_is_far_and_rows_of_both_are_near() -> None:
    between = np.array([[5.0, 20_000.0, 0.0]])
    typical = np.quantile(LANDMARKS.distances(VALUES), 0.99)
    assert LANDMARKS.distances(between)[0] > 1.2 * typical


def test_differences_lead_to_a_landmark_and_a_missing_cell_has_none() -> None:
    landmarks = LANDMARKS
    asked = np.array([[5.0, 21_000.0, 0.002], [5.0, np.nan, 0.002]])
    differences = landmarks.differences(asked)
    standardised = (asked - landmarks.means) / landmarks.stds
    expected = np.nansum(np.square(standardised[:, None] - landmarks.points), axis=2).min(axis=1)
    np.testing.assert_allclose(np.square(differences).sum(axis=1), expected, rtol=1e-9)
    assert differences[1, 1] == 0.0
    reached = (asked[0] - landmarks.means) / landmarks.stds - differences[0]
    assert np.abs(landmarks.points - reached).max(axis=1).min() < 1e-12


def test_a_row_has_the_same_differences_to_the_bit_alone_and_in_a_batch_also_in_the_middle_of_landmarks() -> None:
    landmarks = LANDMARKS
    scaled = np.concatenate([landmarks.points[:60] + landmarks.points[1:61], VALUES[:200] / STDS * 2.0]) / 2.0
    rows = scaled * landmarks.stds + landmarks.means
    rows[::7, 2] = np.nan
    together = landmarks.differences(rows)
    alone = np.concatenate([landmarks.differences(rows[number : number + 1]) for number in range(len(rows))])
    np.testing.assert_array_equal(together, alone)


def test_wide_tables_have_fewer_and_few_rows_none() -> None:
    generator = np.random.default_rng(0)
    wide = present(Landmarks.fit(generator.normal(size=(2000, 40)), np.ones(40)))
    assert len(wide.points) == MOST_CELLS // 40
    assert Landmarks.fit(generator.normal(size=(7 * LANDMARKS_OF_A_COLUMN, 4)), np.ones(4)) is None
    assert Landmarks.fit(np.zeros((100, 0)), np.zeros(0)) is None
