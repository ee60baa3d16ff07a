"""A row that no training row is near is far from every landmark."""

import numpy as np

from murho.model.encoding.landmarks import LANDMARKS_OF_A_COLUMN, MOST_CELLS, Landmarks
from tests.model.conftest import present


def test_wide_tables_have_fewer_and_few_rows_none() -> None:
    generator = np.random.default_rng(0)
    wide = present(Landmarks.fit(generator.normal(size=(2000, 40)), np.ones(40)))
    assert len(wide.points) == MOST_CELLS // 40
    assert Landmarks.fit(generator.normal(size=(7 * LANDMARKS_OF_A_COLUMN, 4)), np.ones(4)) is None
    assert Landmarks.fit(np.zeros((100, 0)), np.zeros(0)) is None


def test_differences_lead_to_the_nearest_landmark_and_a_missing_cell_has_none() -> None:
    landmarks = present(Landmarks.fit(np.random.default_rng(0).normal(size=(400, 3)), np.ones(3)))
    asked = np.array([[5.0, 1.0, 0.2], [5.0, np.nan, 0.2]])
    differences = landmarks.differences(asked + landmarks.means)
    expected = np.nansum(np.square(asked[:, None] - landmarks.points), axis=2).min(axis=1)
    np.testing.assert_allclose(np.square(differences).sum(axis=1), expected)
    assert differences[1, 1] == 0.0
