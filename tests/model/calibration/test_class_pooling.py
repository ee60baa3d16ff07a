"""A calibration pooled from an earlier one and new rows: every row counts alike, and none changes much."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.calibration.classes import ClassMap, PredictionSets, fit_class_map, fit_prediction_sets


def rows_of(count: int, seed: int, *, overconfidence: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of three classes, with logits too large by a factor, and classes drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return torch.log_softmax(overconfidence * logits, dim=1), labels


NONE = ClassMap.none(3)
HALF = ClassMap((0.5,) * 3, (0.0,) * 3)


@pytest.mark.parametrize(("rows", "share"), [(1_000, 0.5), (3_000, 0.25), (0, 1.0)])
def test_the_slope_moves_by_the_share_of_the_new_rows(rows: int, share: float) -> None:
    logs, labels = rows_of(1_000, 0, overconfidence=2.0)
    pooled = fit_class_map(logs, labels, earlier=NONE, earlier_rows=rows)
    assert np.mean(pooled.weights) == pytest.approx(0.5**share, rel=0.15)
    assert pooled.floor == pytest.approx(0.25 / (rows + 1_001))


def test_new_rows_that_the_earlier_map_fits_leave_it_as_it_is() -> None:
    logs, labels = rows_of(4_000, 2, overconfidence=2.0)
    again = fit_class_map(logs, labels, earlier=HALF, earlier_rows=4_000)
    assert again.weights == pytest.approx(HALF.weights, rel=0.05)
    assert again.intercept == pytest.approx(HALF.intercept, abs=0.05)


def test_one_row_more_changes_little_and_no_row_nothing() -> None:
    logs, labels = rows_of(101, 3, overconfidence=3.0)
    earlier = ClassMap((0.8, 0.9, 0.8), (0.1, 0.0, -0.1), 0.001)
    fewer, more = (
        fit_class_map(logs[:count], labels[:count], earlier=earlier, earlier_rows=200) for count in (100, 101)
    )
    assert fewer.weights == pytest.approx(more.weights, abs=0.01)
    assert fit_class_map(logs[:0], labels[:0], earlier=earlier, earlier_rows=200) == earlier


def sets_of(count: int, seed: int, **options: float) -> PredictionSets:
    logs, labels = rows_of(count, seed, **options)
    return fit_prediction_sets(logs.exp(), labels)


def test_pooled_sets_are_about_those_of_all_rows_at_once() -> None:
    logs, labels = rows_of(900, 4)
    together = fit_prediction_sets(logs.exp(), labels)
    earlier = fit_prediction_sets(logs[:600].exp(), labels[:600])
    pooled = fit_prediction_sets(logs[600:].exp(), labels[600:], earlier=earlier)
    assert pooled.rows == together.rows == 900
    units = [sorted(group.units for group in sets.groups) for sets in (pooled, together)]
    assert units[0] == pytest.approx(units[1])
    for coverage in (0.5, 0.8, 0.9, 0.95):
        assert pooled.thresholds(coverage) == pytest.approx(together.thresholds(coverage), abs=0.01)


@pytest.mark.parametrize(("old", "new"), [(300, 1_500), (1_500, 300), (2_000, 30)])
def test_pooled_sets_cover(old: int, new: int) -> None:
    logs, labels = rows_of(new, 6)
    pooled = fit_prediction_sets(logs.exp(), labels, earlier=sets_of(old, 5))
    fresh, truth = rows_of(20_000, 7)
    inside = pooled.sets(fresh.exp(), 0.9)[torch.arange(len(truth)), truth].double().mean()
    assert float(inside) == pytest.approx(0.9, abs=0.025)


def test_many_new_rows_that_are_harder_decide() -> None:
    easy, hard = sets_of(200, 8), rows_of(4_000, 9, overconfidence=3.0)
    pooled = fit_prediction_sets(hard[0].exp(), hard[1], earlier=easy)
    assert (pooled.thresholds(0.9) < easy.thresholds(0.9)).all()


def test_pooled_sets_are_json_and_nested() -> None:
    logs, labels = rows_of(2_000, 11)
    pooled = fit_prediction_sets(logs.exp(), labels, earlier=sets_of(1_000, 10))
    assert PredictionSets.from_json(pooled.to_json()) == pooled
    assert sum(len(group.thresholds) for group in pooled.groups) <= 2_400
    assert sum(group.rows for group in pooled.groups) == pytest.approx(pooled.rows)
    thresholds = np.stack([pooled.thresholds(coverage) for coverage in np.linspace(0.05, 0.99, 40)])
    assert (np.diff(thresholds, axis=0) <= 0.0).all()


def test_weights_count_as_copies() -> None:
    logs, labels = rows_of(60, 12)
    copies = torch.tensor([1, 2, 3] * 20)
    earlier = sets_of(300, 13)
    weighted = fit_prediction_sets(logs.exp(), labels, weights=copies.double(), earlier=earlier)
    copied = fit_prediction_sets(
        logs.exp().repeat_interleave(copies, 0), labels.repeat_interleave(copies), earlier=earlier
    )
    # The copies are more rows; with as many as before they would weigh as the weighted rows do.
    assert weighted.rows == 360
    assert copied.rows == 420
    assert weighted.thresholds(0.8) == pytest.approx(copied.thresholds(0.8), abs=0.02)
