"""A calibration pooled from an earlier one and new rows: every row counts alike, and none changes much."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.calibration.class_map import MATRIX, NONE, TEMPERATURE, ClassMap
from murho.model.calibration.classes import pooled_map, pooled_sets
from murho.model.calibration.conformal import POOLED
from murho.model.calibration.prediction_sets import PredictionSets, fit_prediction_sets


def rows_of(count: int, seed: int, *, overconfidence: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of three classes, with logits too large by a factor, and classes drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return torch.log_softmax(overconfidence * logits, dim=1), labels


@pytest.mark.parametrize(
    ("earlier", "share"),
    [(ClassMap(NONE, rows=1_000), 0.5), (ClassMap(TEMPERATURE, (1.0,), (), 3_000), 0.25), (ClassMap(NONE), 1.0)],
)
def test_the_temperature_moves_by_the_share_of_the_new_rows(earlier: ClassMap, share: float) -> None:
    pooled = pooled_map(earlier, *rows_of(1_000, 0, overconfidence=2.0))
    assert pooled.method == TEMPERATURE
    assert pooled.rows == earlier.rows + 1_000
    assert pooled.weights[0] == pytest.approx(0.5**share, rel=0.15)


def test_a_matrix_keeps_its_form() -> None:
    earlier = ClassMap(MATRIX, (2.0, 1.0, 1.0), (0.1, 0.0, -0.1), 500)
    pooled = pooled_map(earlier, *rows_of(300, 1))
    ratio = pooled.weights[0] / earlier.weights[0]
    assert ratio < 1.0
    assert pooled.method == MATRIX
    assert np.allclose(np.array(pooled.weights), ratio * np.array(earlier.weights))
    assert np.allclose(np.array(pooled.intercept), ratio * np.array(earlier.intercept))


def test_new_rows_that_the_earlier_map_fits_leave_it_as_it_is() -> None:
    logs, labels = rows_of(4_000, 2, overconfidence=2.0)
    earlier = ClassMap(TEMPERATURE, (0.5,), (), 4_000)
    assert pooled_map(earlier, logs, labels).weights[0] == pytest.approx(0.5, rel=0.03)


def test_one_row_more_changes_little_and_no_row_nothing() -> None:
    logs, labels = rows_of(101, 3, overconfidence=3.0)
    earlier = ClassMap(TEMPERATURE, (0.8,), (), 200)
    fewer, more = (pooled_map(earlier, logs[:count], labels[:count]).weights[0] for count in (100, 101))
    assert abs(fewer - more) < 0.01
    assert pooled_map(earlier, logs[:0], labels[:0]) is earlier


def sets_of(count: int, seed: int, **options: float) -> PredictionSets:
    logs, labels = rows_of(count, seed, **options)
    return fit_prediction_sets(logs.exp(), labels)


def test_pooled_sets_are_about_those_of_all_rows_at_once() -> None:
    logs, labels = rows_of(900, 4)
    together = fit_prediction_sets(logs.exp(), labels)
    earlier = fit_prediction_sets(logs[:600].exp(), labels[:600])
    pooled = pooled_sets(earlier, logs[600:].exp(), labels[600:])
    assert pooled.rows == together.rows == 900
    assert pooled.units == pytest.approx(together.units)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        assert pooled.thresholds(coverage) == pytest.approx(together.thresholds(coverage), abs=0.01)


@pytest.mark.parametrize(("old", "new"), [(300, 1_500), (1_500, 300), (2_000, 30)])
def test_pooled_sets_cover(old: int, new: int) -> None:
    logs, labels = rows_of(new, 6)
    pooled = pooled_sets(sets_of(old, 5), logs.exp(), labels)
    fresh, truth = rows_of(20_000, 7)
    inside = pooled.sets(fresh.exp(), 0.9)[torch.arange(len(truth)), truth].double().mean()
    assert float(inside) == pytest.approx(0.9, abs=0.025)


def test_many_new_rows_that_are_harder_decide() -> None:
    easy, hard = sets_of(200, 8), rows_of(4_000, 9, overconfidence=3.0)
    pooled = pooled_sets(easy, hard[0].exp(), hard[1])
    assert (pooled.thresholds(0.9) < easy.thresholds(0.9)).all()


def test_pooled_sets_are_json_and_nested() -> None:
    logs, labels = rows_of(2_000, 11)
    pooled = pooled_sets(sets_of(1_000, 10), logs.exp(), labels)
    assert pooled.method == POOLED
    assert PredictionSets.from_json(pooled.to_json()) == pooled
    assert sum(len(group.levels) for group in pooled.groups) <= 600
    assert sum(group.weight for group in pooled.groups) == pytest.approx(1.0)
    thresholds = np.stack([pooled.thresholds(coverage) for coverage in np.linspace(0.05, 0.99, 40)])
    assert (np.diff(thresholds, axis=0) <= 0.0).all()


def test_weights_count_as_copies() -> None:
    logs, labels = rows_of(60, 12)
    copies = torch.tensor([1, 2, 3] * 20)
    earlier = sets_of(300, 13)
    weighted = pooled_sets(earlier, logs.exp(), labels, weights=copies.double())
    copied = pooled_sets(earlier, logs.exp().repeat_interleave(copies, 0), labels.repeat_interleave(copies))
    # The copies are more rows; with as many as before they would weigh as the weighted rows do.
    assert weighted.rows == 360
    assert copied.rows == 420
    assert weighted.thresholds(0.8) == pytest.approx(copied.thresholds(0.8), abs=0.02)
