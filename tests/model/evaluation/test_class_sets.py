"""Scores of prediction sets, equal to MAPIE's on the same sets, and accuracy of the rows that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from mapie.metrics.classification import classification_coverage_score, classification_mean_width_score

from murho.model.evaluation.classes import accuracy_of_kept, set_scores
from murho.model.evaluation.rows import RowWeights


@pytest.fixture(scope="module")
def sets() -> dict[int, np.ndarray]:
    generator = np.random.default_rng(3)
    return {coverage: generator.uniform(size=(200, 5)) < coverage / 100.0 for coverage in (80, 95)}


LABELS = np.random.default_rng(4).integers(0, 4, 200)


def test_coverage_and_size_equal_those_of_mapie(sets: dict[int, np.ndarray]) -> None:
    ours = set_scores(sets, LABELS, RowWeights.of(200))
    stacked = np.stack(list(sets.values()), axis=2)
    assert list(ours["coverage"].values()) == pytest.approx(classification_coverage_score(LABELS, stacked).tolist())
    assert list(ours["size"].values()) == pytest.approx(classification_mean_width_score(stacked).tolist())


def test_a_weight_is_a_number_of_copies(sets: dict[int, np.ndarray]) -> None:
    copies = np.random.default_rng(0).integers(0, 4, 200)
    repeated = {at: held.repeat(copies, axis=0) for at, held in sets.items()}
    copied = set_scores(repeated, LABELS.repeat(copies), RowWeights.of(int(copies.sum())))
    weighted = set_scores(sets, LABELS, RowWeights.of(200, copies.astype(np.float64)))
    for name in ("coverage", "size"):
        assert weighted[name] == pytest.approx(copied[name])


def test_accuracy_of_the_most_certain_rows() -> None:
    correct, uncertainty = np.arange(20) < 15, np.linspace(0.1, 0.9, 20)
    found = accuracy_of_kept(correct, uncertainty, RowWeights.of(20))
    assert found == pytest.approx({"50": 1.0, "80": 15 / 16, "90": 15 / 18, "95": 15 / 19, "100": 0.75})


def test_rows_of_equal_uncertainty_are_kept_by_lot() -> None:
    """The order of the rows decides nothing."""
    correct = np.array([True, False, False, False])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        found = accuracy_of_kept(correct[order], np.zeros(4), RowWeights.of(4))
        assert list(found.values()) == pytest.approx([0.25] * 5)


def test_shares_kept_are_shares_of_the_weight() -> None:
    correct, uncertainty = np.array([True, False, True]), np.array([0.1, 0.2, 0.3])
    found = accuracy_of_kept(correct, uncertainty, RowWeights.of(3, np.array([2.0, 1.0, 1.0])))
    assert {share: found[share] for share in ("50", "100")} == pytest.approx({"50": 1.0, "100": 0.75})
