"""The map of class probabilities, and prediction sets: guarantees, distortions, few rows, weights, pooling, JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration import classes as classes_module
from murho.model.calibration.classes import (
    ClassCalibration,
    ClassMap,
    PredictionSets,
    fit_class_map,
    fit_prediction_sets,
)
from murho.model.errors import CheckpointError, OptionError


def right_rows(count: int, classes: int, seed: int = 0, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    """Right log-probabilities ``[n, C]``, and labels drawn from them, ``[n]``."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits -= torch.linspace(0.0, 1.0, classes, dtype=torch.float64)
    logs = torch.log_softmax(logits, dim=1)
    return logs, torch.multinomial(logs.exp(), 1, generator=generator)[:, 0]


def _loss(fitted: ClassMap, logs: Tensor, labels: Tensor) -> float:
    return float(torch.nn.functional.nll_loss(fitted.log_probabilities(logs), labels))


def _plain(logs: Tensor, labels: Tensor) -> float:
    return _loss(ClassMap.none(logs.shape[1]), logs, labels)


def test_a_temperature_is_found() -> None:
    right, labels = right_rows(8000, 5)
    fitted = fit_class_map(right * 2.5, labels)
    assert fitted.weights == pytest.approx((1.0 / 2.5,) * 5, rel=0.15)
    torch.testing.assert_close(fitted.log_probabilities(right * 2.5).exp(), right.exp(), rtol=0.0, atol=0.03)


def test_with_two_classes_it_undoes_the_distortions_of_beta_calibration() -> None:
    right, labels = right_rows(8000, 2, spread=2.0)
    # logit q = 0.5 log p_1 - 2 log p_0 + 1, undone numerically on a grid.
    grid = torch.linspace(-30.0, 30.0, 60_001, dtype=torch.float64)
    mapped = 0.5 * torch.nn.functional.logsigmoid(grid) - 2.0 * torch.nn.functional.logsigmoid(-grid) + 1.0
    logit = np.interp((right[:, 1] - right[:, 0]).numpy(), mapped.numpy(), grid.numpy())
    distorted = torch.nn.functional.logsigmoid(torch.from_numpy(np.stack([-logit, logit], axis=1)))
    fitted = fit_class_map(distorted, labels)
    best, before = _plain(right, labels), _plain(distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.02 * (before - best)


def test_vector_scaling_undoes_its_own_kind_of_distortion() -> None:
    right, labels = right_rows(20_000, 3)
    weights = torch.tensor([1.5, 0.8, 0.6], dtype=torch.float64)
    offsets = torch.tensor([0.8, -0.8, 0.0], dtype=torch.float64)
    distorted = torch.log_softmax((right - offsets) / weights, dim=1)
    fitted = fit_class_map(distorted, labels)
    best, before = _plain(right, labels), _plain(distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.03 * (before - best)


@pytest.mark.parametrize(
    ("count", "classes"),
    [
        (30, 2),
        (100, 4),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((30, 4), (100, 2), (1000, 2), (1000, 4))),
    ],
)
def test_right_probabilities_are_left_about_alone(classes: int, count: int) -> None:
    """Mean loss over ten sets of held-out rows, on rows that the map has not seen."""
    new, truth = right_rows(4000, classes, seed=99)
    worse = []
    for seed in range(10):
        logs, labels = right_rows(count, classes, seed)
        worse.append(_loss(fit_class_map(logs, labels), new, truth) - _plain(new, truth))
    assert np.mean(worse) < 1.0 / count
    assert max(worse) < 3.0 * classes / count


def test_few_rows_change_nothing() -> None:
    logs, labels = right_rows(19, 3)
    assert fit_class_map(logs * 3.0, labels) == ClassMap.none(3)
    assert fit_class_map(logs[:0], labels[:0]) == ClassMap.none(3)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_order_of_the_classes_does_not_matter(classes: int) -> None:
    right, labels = right_rows(3000, classes)
    logs = right * 2.0 + torch.tensor([1.5, 0.0, -1.0, 0.0])[:classes]
    order = torch.tensor([2, 0, 3, 1] if classes == 4 else [1, 0])
    place = torch.argsort(order)
    fitted, permuted = fit_class_map(logs, labels), fit_class_map(logs[:, order], place[labels])
    torch.testing.assert_close(
        fitted.log_probabilities(logs)[:, order], permuted.log_probabilities(logs[:, order]), rtol=0.0, atol=1e-4
    )


def test_probabilities_never_fall_where_they_rose() -> None:
    """Also for labels against the probabilities."""
    right, labels = right_rows(500, 2)
    assert min(fit_class_map(right, 1 - labels).weights) >= 0.0


@pytest.mark.parametrize("classes", [2, 6])
def test_classes_of_one_row_or_none_and_sure_mistakes_are_finite(classes: int) -> None:
    logs, labels = right_rows(60, classes)
    labels = torch.where(labels == classes - 1, 0, labels)
    labels[0] = classes - 1
    logs[0] = torch.log_softmax(torch.tensor([0.0] * (classes - 1) + [-torch.inf], dtype=torch.float64), dim=0)
    assert bool(torch.isfinite(fit_class_map(logs, labels).log_probabilities(logs)).all())
    only = fit_class_map(logs, torch.zeros(60, dtype=torch.int64))
    assert bool(torch.isfinite(only.log_probabilities(logs)).all())
    every = ClassMap((40.0,) * classes, (0.0,) * classes, 0.0025).log_probabilities(logs)
    assert bool((every.exp() > 0.0).all())
    torch.testing.assert_close(every.exp().sum(dim=1), torch.ones(60, dtype=torch.float64))


def test_separable_rows_do_not_make_probabilities_certain() -> None:
    logs = torch.log_softmax(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64).repeat(50, 1), dim=1)
    fitted = fit_class_map(logs, torch.tensor([0, 1]).repeat(50))
    surest = float(fitted.log_probabilities(logs).exp().max())
    assert 0.95 < surest < 0.9995


def test_rows_of_weight_0_do_not_count() -> None:
    right, labels = right_rows(400, 3)
    weights = torch.ones(400)
    weights[200:] = 0.0
    weighted = fit_class_map(2.0 * right, labels, weights=weights)
    alone = fit_class_map(2.0 * right[:200], labels[:200])
    torch.testing.assert_close(weighted.log_probabilities(right), alone.log_probabilities(right), rtol=0.0, atol=2e-3)


def test_the_derivatives_are_at_zero_where_the_fit_ends() -> None:
    """The least penalised loss, by automatic derivatives of the stated objective."""
    right, labels = right_rows(400, 3)
    logs = torch.log_softmax(1.4 * right + torch.tensor([0.5, 0.0, -0.5]), dim=1)
    fitted = fit_class_map(logs, labels)
    weights, shifts = (torch.tensor(part, dtype=torch.float64) for part in (fitted.weights, fitted.intercept))
    # Of t and d with the same sum, those of the least penalty: their derivatives by a common shift cancel.
    common = weights.log().sum() / (3.0 + 1.0 / (0.25**2 * 2.0 * 5.0 * 3.0))
    slope, apart, shifts = (part.clone().requires_grad_() for part in (common, weights.log() - common, shifts))
    loss = torch.nn.functional.cross_entropy(logs * torch.exp(slope + apart) + shifts, labels, reduction="sum")
    penalty = 0.5 * (slope / 0.25).square() + 15.0 * (apart.square().sum() + shifts.square().sum())
    for derivative in torch.autograd.grad(loss + penalty, [slope, apart, shifts]):
        assert float(derivative.abs().max()) < 1e-2


def rows_of(count: int, seed: int, *, overconfidence: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probabilities of three classes, with logits too large by a factor, and classes drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return torch.log_softmax(overconfidence * logits, dim=1), labels


HALF = ClassMap((0.5,) * 3, (0.0,) * 3)


@pytest.mark.parametrize(("rows", "share"), [(1_000, 0.5), (3_000, 0.25), (0, 1.0)])
def test_the_slope_moves_by_the_share_of_the_new_rows(rows: int, share: float) -> None:
    logs, labels = rows_of(1_000, 0, overconfidence=2.0)
    pooled = fit_class_map(logs, labels, earlier=ClassMap.none(3), earlier_rows=rows)
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


def _rows(count: int, classes: int, seed: int = 0, stated: float = 1.0) -> tuple[Tensor, Tensor]:
    """Probabilities ``[n, C]`` and labels ``[n]``; right ones for ``stated=1``. The last class is rare."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits[:, -1] -= 1.5
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return torch.softmax(stated * logits, dim=1), labels


def _covered(sets: PredictionSets, rows: tuple[Tensor, Tensor], coverage: float) -> np.ndarray:
    probabilities, labels = rows
    held: np.ndarray = sets.sets(probabilities, coverage)[torch.arange(len(labels)), labels].numpy()
    return held


@pytest.mark.parametrize("stated", [1.0, -1.0], ids=["right", "misleading"])
def test_each_class_with_enough_rows_is_covered_as_promised(stated: float) -> None:
    """Averaged over calibration sets, whatever the probabilities are."""
    by_class: list[list[bool]] = [[], [], [], []]
    for seed in range(40):
        sets = fit_prediction_sets(*_rows(1200, 4, seed, stated))
        new = _rows(1000, 4, seed + 10_000, stated)
        held = _covered(sets, new, 0.9)
        for number in range(4):
            by_class[number].extend(held[new[1].numpy() == number])
    assert all(np.mean(held) > 0.895 for held in by_class)


@pytest.mark.parametrize("count", [19, 60, 150])
@pytest.mark.parametrize("stated", [1.0, -1.0], ids=["right", "misleading"])
def test_rows_of_classes_that_share_a_threshold_are_covered_as_promised(count: int, stated: float) -> None:
    held = [
        _covered(fit_prediction_sets(*_rows(count, 4, seed, stated)), _rows(300, 4, seed + 10_000, stated), 0.9)
        for seed in range(120)
    ]
    assert np.mean(held) > 0.89


def test_thresholds_are_conformal_quantiles() -> None:
    """Of 99 rows of each class the 90th most probable decides at 90 %."""
    probabilities = torch.rand(198, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities = torch.cat([probabilities, 1.0 - probabilities], dim=1)
    labels = torch.tensor([0, 1]).repeat(99)
    found = fit_prediction_sets(probabilities, labels).thresholds(0.9)
    for number in range(2):
        own = probabilities[labels == number, number].sort(descending=True).values
        assert found[number] == float(own[89])


def test_sets_without_thresholds_by_class_are_those_of_mapie() -> None:
    """Five rows of each class: all share the quantile of least ambiguous sets."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(500, 3))
    classes = (rows + generator.normal(size=rows.shape)).argmax(axis=1)
    model = LogisticRegression().fit(rows[:100], classes[:100])
    held_out, labels = rows[100:112], classes[100:112]
    theirs = SplitConformalClassifier(estimator=model, confidence_level=0.85, conformity_score="lac", prefit=True)
    _, expected = theirs.conformalize(held_out, labels).predict_set(rows[112:])
    sets = fit_prediction_sets(torch.from_numpy(model.predict_proba(held_out)), torch.from_numpy(labels))
    ours = sets.sets(torch.from_numpy(model.predict_proba(rows[112:])), 0.85).numpy()
    filled = expected[:, :, 0].any(axis=1)
    np.testing.assert_array_equal(ours[filled], expected[filled, :, 0])
    assert bool((ours[~filled].sum(axis=1) == 1).all())


def test_sets_are_never_empty_and_hold_the_likeliest_class() -> None:
    sets = fit_prediction_sets(*_rows(300, 3))
    probabilities, _ = _rows(500, 3, seed=1)
    held = sets.sets(probabilities, 0.01)
    assert bool(held.gather(1, probabilities.argmax(dim=1, keepdim=True)).all())


def test_sets_of_a_higher_coverage_hold_those_of_a_lower_one() -> None:
    sets = fit_prediction_sets(*_rows(250, 5, stated=0.3))
    probabilities, _ = _rows(200, 5, seed=1)
    before = torch.zeros(200, 5, dtype=torch.bool)
    for coverage in np.linspace(0.02, 0.999, 80):
        held = sets.sets(probabilities, float(coverage))
        assert bool((held >= before).all())
        before = held


def test_too_few_rows_for_a_coverage_give_all_classes() -> None:
    probabilities, labels = _rows(18, 3)
    sets = fit_prediction_sets(probabilities, labels)
    assert bool(sets.sets(probabilities, 0.95).all())
    assert not bool(sets.sets(probabilities, 0.9).all())
    nothing = fit_prediction_sets(probabilities[:0], labels[:0])
    assert bool(nothing.sets(probabilities, 0.01).all())


def test_a_class_without_rows_does_not_widen_the_sets_of_others() -> None:
    probabilities, labels = _rows(400, 3)
    wider = torch.cat([probabilities * 0.999, torch.full((400, 1), 0.001, dtype=torch.float64)], dim=1)
    found = fit_prediction_sets(wider, labels).thresholds(0.9)
    np.testing.assert_allclose(found[:3], 0.999 * fit_prediction_sets(probabilities, labels).thresholds(0.9))
    assert found[3] > 0.0


def test_units_of_copied_rows_count_once() -> None:
    probabilities, labels = _rows(60, 2)
    once = fit_prediction_sets(probabilities, labels)
    copied = fit_prediction_sets(
        probabilities.repeat(5, 1), labels.repeat(5), units=np.tile(np.arange(60), 5).astype(str)
    )
    for coverage in (0.5, 0.8, 0.9, 0.97):
        np.testing.assert_allclose(copied.thresholds(coverage), once.thresholds(coverage))


def test_sets_cover_the_share_of_the_weight() -> None:
    """New rows of the second half are nine times as frequent as among the held-out rows, and weighted so."""
    shares = []
    for seed in range(60):
        probabilities, labels = _rows(600, 3, seed)
        misleading = torch.softmax(-probabilities.log(), dim=1)
        probabilities[300:] = misleading[300:]
        weights = torch.ones(600)
        weights[300:] = 9.0
        sets = fit_prediction_sets(probabilities, labels, weights=weights)
        right, truth = _rows(1000, 3, seed + 1000)
        right[100:] = torch.softmax(-right.log(), dim=1)[100:]
        shares.append(_covered(sets, (right, truth), 0.8).mean())
    assert np.mean(shares) > 0.79


@pytest.mark.parametrize("classes", [2, 10, 60])
def test_a_file_holds_few_numbers_and_sets_are_hardly_larger(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, new = _rows(40_000, classes, stated=0.5), _rows(10_000, classes, seed=1, stated=0.5)
    sets = fit_prediction_sets(*rows)
    monkeypatch.setattr(classes_module, "MAXIMUM_THRESHOLDS", 10**7)
    exact = fit_prediction_sets(*rows)
    assert sum(len(group.thresholds) for group in sets.groups) <= 2_400
    for coverage in (0.33, 0.8, 0.87, 0.9, 0.923, 0.95, 0.985, 0.99):
        held, smallest = (found.sets(new[0], coverage) for found in (sets, exact))
        more = held.double().sum(dim=1).mean() - smallest.double().sum(dim=1).mean()
        assert -0.001 < float(more) / classes < 0.04
        covered = _covered(sets, new, coverage)
        assert coverage - 0.01 < np.mean(covered)
    for coverage in (0.33, 0.8, 0.9, 0.99):
        np.testing.assert_allclose(sets.thresholds(coverage), exact.thresholds(coverage), rtol=0.01)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_coverage_is_between_0_and_1(coverage: float) -> None:
    probabilities, labels = _rows(50, 2)
    with pytest.raises(OptionError, match="strictly between 0 and 1"):
        fit_prediction_sets(probabilities, labels).sets(probabilities, coverage)


def test_json() -> None:
    probabilities, labels = _rows(500, 12)
    calibration = ClassCalibration(
        ClassMap((0.7,) * 12, (0.1,) * 12, 0.001), fit_prediction_sets(probabilities, labels, method="cross-conformal")
    )
    data = json.loads(json.dumps(calibration.to_json()))
    assert data["method"] == "class"
    assert ClassCalibration.from_json(data) == calibration
    assert calibration.rows == 500


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("method",), "split-conformal", r"calibration\.method: expected 'class'"),
        (("sets", "method"), "class", r"sets\.method"),
        (("sets", "rows"), -1, r"sets\.rows: expected greater than or equal to 0"),
        (("sets", "groups", 0, "classes"), [0, 1, 1], r"sets\.groups: expected each class from 0 on in one group"),
        (("sets", "groups", 0, "thresholds"), [0.5, 0.6], r"groups\[0\]\.thresholds: expected falling numbers"),
        (("sets", "groups", 0, "thresholds"), [1.5], r"groups\[0\]\.thresholds\[0\]"),
        (("sets", "groups", 0, "units"), -1.0, r"groups\[0\]\.units: expected greater than or equal to 0"),
        (("sets", "groups", 0, "classes"), "all", r"groups\[0\]\.classes: expected a valid array"),
        (("map",), {"weights": [1.0, 1.0], "intercept": [0.0, 0.0], "floor": 0.0}, r"map\.weights: expected 3 numbers"),
        (("map", "weights"), [-1.0, 1.0, 1.0], r"map\.weights\[0\]: expected greater than or equal to 0"),
        (("map", "weights"), ["a"], r"map\.weights\[0\]: expected a valid number"),
        (("map", "intercept"), [0.0], r"map\.intercept: expected 3 numbers, one for each class"),
        (("map", "floor"), -1, r"map\.floor: expected greater than or equal to 0"),
        (("map", "other"), 1, r"map\.other: the field is not known"),
    ],
)
def test_damaged_json_is_refused(path: tuple[str | int, ...], value: object, message: str) -> None:
    data = ClassCalibration(ClassMap.none(3), fit_prediction_sets(*_rows(100, 3))).to_json()
    part = data
    for key in path[:-1]:
        part = part[key]  # type: ignore[index]
    part[path[-1]] = value  # type: ignore[index]
    with pytest.raises(CheckpointError, match=message):
        ClassCalibration.from_json(data, "calibration")
