"""The map of class probabilities, and prediction sets: guarantees, distortions, few rows, weights, pooling, JSON."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration import class_calibration as classes_module
from murho.model.calibration.class_calibration import (
    ClassCalibration,
    ClassMap,
    PredictionSets,
    fit_class_map,
    fit_prediction_sets,
)
from murho.model.errors import CheckpointError, OptionError


def rows_of(
    count: int, classes: int = 3, seed: int = 0, *, stated: float = 1.0, spread: float = 1.5
) -> tuple[Tensor, Tensor]:
    """Log-probabilities ``[n, C]`` and labels ``[n]``; right ones for ``stated=1``, else of logits times it."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits -= torch.linspace(0.0, 1.0, classes, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator)[:, 0]
    return torch.log_softmax(stated * logits, dim=1), labels


def sets_of(count: int, classes: int = 3, seed: int = 0, stated: float = 1.0) -> PredictionSets:
    logs, labels = rows_of(count, classes, seed, stated=stated)
    return fit_prediction_sets(logs.exp(), labels)


def loss_of(fitted: ClassMap, logs: Tensor, labels: Tensor) -> float:
    return float(torch.nn.functional.nll_loss(fitted.log_probabilities(logs), labels))


def covered(sets: PredictionSets, rows: tuple[Tensor, Tensor], coverage: float) -> np.ndarray:
    logs, labels = rows
    held: np.ndarray = sets.sets(logs.exp(), coverage)[torch.arange(len(labels)), labels].numpy()
    return held


def test_two_classes_undo_the_distortions_of_beta_calibration_and_more_those_of_vector_scaling() -> None:
    right, labels = rows_of(8000, 2, spread=2.0)
    # logit q = 0.5 log p_1 - 2 log p_0 + 1, undone numerically on a grid.
    grid = torch.linspace(-30.0, 30.0, 60_001, dtype=torch.float64)
    mapped = 0.5 * torch.nn.functional.logsigmoid(grid) - 2.0 * torch.nn.functional.logsigmoid(-grid) + 1.0
    logit = np.interp((right[:, 1] - right[:, 0]).numpy(), mapped.numpy(), grid.numpy())
    beta = torch.nn.functional.logsigmoid(torch.from_numpy(np.stack([-logit, logit], axis=1)))
    three, of_three = rows_of(20_000, 3)
    weights, offsets = torch.tensor([[1.5, 0.8, 0.6], [0.8, -0.8, 0.0]], dtype=torch.float64)
    vector = torch.log_softmax((three - offsets) / weights, dim=1)
    for truth, distorted, known in ((right, beta, labels), (three, vector, of_three)):
        nothing = ClassMap.none(truth.shape[1])
        best, before = loss_of(nothing, truth, known), loss_of(nothing, distorted, known)
        assert loss_of(fit_class_map(distorted, known), distorted, known) - best < 0.03 * (before - best)
    fitted = fit_class_map(three * 2.5, of_three)
    assert fitted.weights == pytest.approx((1.0 / 2.5,) * 3, rel=0.15)


def test_few_rows_are_enough_for_a_temperature_and_not_for_vector_scaling() -> None:
    """Sets of 100 held-out rows, judged on rows that the map has not seen."""
    new, nothing = rows_of(4000, 4, seed=99, stated=1.5), ClassMap.none(4)
    maps = [fit_class_map(*rows_of(100, 4, seed, stated=1.5)) for seed in range(10)]
    falls = [loss_of(nothing, *new) - loss_of(fitted, *new) for fitted in maps]
    assert np.mean(falls) > 0.01
    assert min(falls) > -0.01
    assert sum(len(set(fitted.weights)) == 1 and not any(fitted.intercept) for fitted in maps) >= 7


def test_rows_of_one_unit_are_no_evidence_for_vector_scaling() -> None:
    logs, labels = rows_of(400)
    shifted = torch.log_softmax(1.4 * logs + torch.tensor([0.5, 0.0, -0.5]), dim=1)
    assert len(set(fit_class_map(shifted, labels).weights)) == 3
    assert len(set(fit_class_map(shifted, labels, units=np.zeros(400)).weights)) == 1


@pytest.mark.parametrize(("count", "classes"), [(30, 2), (100, 4), pytest.param(1000, 4, marks=pytest.mark.slow)])
def test_right_probabilities_are_left_about_alone(classes: int, count: int) -> None:
    """Mean loss over ten sets of held-out rows, on rows that the map has not seen."""
    new = rows_of(4000, classes, seed=99)
    maps = [fit_class_map(*rows_of(count, classes, seed)) for seed in range(10)]
    worse = [loss_of(fitted, *new) - loss_of(ClassMap.none(classes), *new) for fitted in maps]
    assert np.mean(worse) < 1.0 / count
    assert max(worse) < 3.0 * classes / count


@pytest.mark.parametrize("classes", [2, 6])
def test_classes_of_one_row_or_none_and_sure_mistakes_are_finite(classes: int) -> None:
    logs, labels = rows_of(60, classes)
    labels = torch.where(labels == classes - 1, 0, labels)
    labels[0] = classes - 1
    logs[0] = torch.log_softmax(torch.tensor([0.0] * (classes - 1) + [-torch.inf], dtype=torch.float64), dim=0)
    for known in (labels, torch.zeros(60, dtype=torch.int64)):
        assert bool(torch.isfinite(fit_class_map(logs, known).log_probabilities(logs)).all())
    every = ClassMap((40.0,) * classes, (0.0,) * classes, 0.0025).log_probabilities(logs).exp()
    assert bool((every > 0.0).all())
    torch.testing.assert_close(every.sum(dim=1), torch.ones(60, dtype=torch.float64))
    right, truth = rows_of(500, 2)
    assert min(fit_class_map(right, 1 - truth).weights) >= 0.0  # labels against the probabilities
    sure = torch.log_softmax(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64).repeat(50, 1), dim=1)
    surest = fit_class_map(sure, torch.tensor([0, 1]).repeat(50)).log_probabilities(sure).exp().max()
    assert 0.95 < float(surest) < 0.9995  # separable rows do not make probabilities certain


@pytest.mark.parametrize(("rows", "share"), [(1_000, 0.5), (3_000, 0.25), (0, 1.0)])
def test_the_slope_moves_by_the_share_of_the_new_rows(rows: int, share: float) -> None:
    logs, labels = rows_of(1_000, stated=2.0, spread=2.0)
    pooled = fit_class_map(logs, labels, earlier=ClassMap.none(3), earlier_rows=rows)
    assert np.mean(pooled.weights) == pytest.approx(0.5**share, rel=0.15)
    assert pooled.floor == pytest.approx(0.25 / (rows + 1_001))


def test_few_rows_one_row_more_and_no_row_change_little_or_nothing() -> None:
    logs, labels = rows_of(101, seed=3, stated=3.0)
    earlier = ClassMap((0.8, 0.9, 0.8), (0.1, 0.0, -0.1), 0.001)
    fewer, more, none = (
        fit_class_map(logs[:count], labels[:count], earlier=earlier, earlier_rows=200) for count in (100, 101, 0)
    )
    # A row may decide whether classes have a slope of their own.
    assert fewer.weights == pytest.approx(more.weights, abs=0.05)
    assert none == earlier
    assert fit_class_map(logs[:19], labels[:19]) == ClassMap.none(3)


@pytest.mark.parametrize("stated", [1.0, -1.0], ids=["right", "misleading"])
def test_each_class_with_enough_rows_is_covered_as_promised(stated: float) -> None:
    """Averaged over calibration sets, whatever the probabilities are."""
    by_class: list[list[bool]] = [[], [], [], []]
    for seed in range(40):
        new = rows_of(1000, 4, seed + 10_000, stated=stated)
        held = covered(sets_of(1200, 4, seed, stated=stated), new, 0.9)
        for number in range(4):
            by_class[number].extend(held[new[1].numpy() == number])
    assert all(np.mean(held) > 0.885 for held in by_class)


@pytest.mark.parametrize("count", [19, 60, 150])
def test_rows_of_classes_that_share_a_threshold_are_covered_as_promised(count: int) -> None:
    for stated in (1.0, -1.0):
        new = [rows_of(300, 4, seed + 10_000, stated=stated) for seed in range(120)]
        held = [covered(sets_of(count, 4, seed, stated=stated), rows, 0.9) for seed, rows in enumerate(new)]
        assert np.mean(held) > 0.89


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


def test_sets_hold_the_likeliest_class_and_those_of_lower_coverage() -> None:
    sets, probabilities = sets_of(250, 5, stated=0.3), rows_of(200, 5, seed=1)[0].exp()
    before = torch.zeros(200, 5, dtype=torch.bool).scatter(1, probabilities.argmax(dim=1, keepdim=True), value=True)
    for coverage in (0.01, *np.linspace(0.02, 0.999, 80)):
        held = sets.sets(probabilities, float(coverage))
        assert bool((held >= before).all())
        before = held


def test_few_rows_for_a_coverage_give_all_classes_and_a_class_without_rows_does_not_widen_the_others() -> None:
    logs, labels = rows_of(18)
    sets = fit_prediction_sets(logs.exp(), labels)
    assert bool(sets.sets(logs.exp(), 0.95).all())
    assert not bool(sets.sets(logs.exp(), 0.9).all())
    assert bool(fit_prediction_sets(logs[:0].exp(), labels[:0]).sets(logs.exp(), 0.01).all())
    logs, labels = rows_of(400)
    wider = torch.cat([logs.exp() * 0.999, torch.full((400, 1), 0.001, dtype=torch.float64)], dim=1)
    found = fit_prediction_sets(wider, labels).thresholds(0.9)
    np.testing.assert_allclose(found[:3], 0.999 * fit_prediction_sets(logs.exp(), labels).thresholds(0.9))


def test_units_of_copied_rows_count_once() -> None:
    logs, labels = rows_of(60, 2)
    units = np.tile(np.arange(60), 5).astype(str)
    copied = fit_prediction_sets(logs.exp().repeat(5, 1), labels.repeat(5), units=units)
    for coverage in (0.5, 0.8, 0.9, 0.97):
        np.testing.assert_allclose(copied.thresholds(coverage), sets_of(60, 2).thresholds(coverage))


def test_sets_cover_the_share_of_the_weight() -> None:
    """New rows of the second half are nine times as frequent as among the held-out rows, and weighted so."""
    shares = []
    for seed in range(60):
        (logs, labels), (new, truth) = rows_of(600, seed=seed), rows_of(1000, seed=seed + 1000)
        logs[300:], new[100:] = (torch.log_softmax(-part, dim=1) for part in (logs[300:], new[100:]))
        weights = torch.where(torch.arange(600) < 300, 1.0, 9.0)
        sets = fit_prediction_sets(logs.exp(), labels, weights=weights)
        shares.append(covered(sets, (new, truth), 0.8).mean())
    assert np.mean(shares) > 0.79


def test_pooled_sets_are_about_those_of_all_rows_at_once() -> None:
    logs, labels = rows_of(900, seed=4)
    together = fit_prediction_sets(logs.exp(), labels)
    earlier = fit_prediction_sets(logs[:600].exp(), labels[:600])
    pooled = fit_prediction_sets(logs[600:].exp(), labels[600:], earlier=earlier)
    assert pooled.rows == together.rows == 900
    for coverage in (0.5, 0.8, 0.9, 0.95):
        assert pooled.thresholds(coverage) == pytest.approx(together.thresholds(coverage), abs=0.01)
    few, of_few = rows_of(30, seed=6)
    pooled = fit_prediction_sets(few.exp(), of_few, earlier=sets_of(2_000, 3, 5))
    assert covered(pooled, rows_of(20_000, seed=7), 0.9).mean() == pytest.approx(0.9, abs=0.025)


@pytest.mark.parametrize("classes", [2, 60])
def test_a_file_holds_few_numbers_and_sets_are_hardly_larger(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, new = rows_of(40_000, classes, stated=0.5), rows_of(10_000, classes, 1, stated=0.5)
    sets = fit_prediction_sets(rows[0].exp(), rows[1])
    monkeypatch.setattr(classes_module, "MAXIMUM_THRESHOLDS", 10**7)
    exact = fit_prediction_sets(rows[0].exp(), rows[1])
    assert sum(len(group.thresholds) for group in sets.groups) <= 2_400
    for coverage in (0.33, 0.8, 0.9, 0.923, 0.985):
        held, smallest = (found.sets(new[0].exp(), coverage).double().sum(dim=1).mean() for found in (sets, exact))
        assert -0.001 < float(held - smallest) / classes < 0.04
        assert coverage - 0.01 < np.mean(covered(sets, new, coverage))


@pytest.mark.parametrize("coverage", [0.0, 1.0, float("nan")])
def test_a_coverage_is_between_0_and_1(coverage: float) -> None:
    with pytest.raises(OptionError, match="strictly between 0 and 1"):
        sets_of(50, 2).thresholds(coverage)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("method",), "split-conformal", r"calibration\.method: expected 'class'"),
        (("sets", "groups", 0, "classes"), [0, 1, 1], r"sets\.groups: expected each class from 0 on in one group"),
        (("sets", "groups", 0, "thresholds"), [0.5, 0.6], r"groups\[0\]\.thresholds: expected falling numbers"),
        (("map", "intercept"), [0.0], r"map\.intercept: expected 3 numbers, one for each class"),
        (("map",), {"weights": [1.0, 1.0], "intercept": [0.0, 0.0], "floor": 0.0}, r"map\.weights: expected 3 numbers"),
    ],
)
def test_json_and_what_is_damaged_in_it(path: tuple[str | int, ...], value: object, message: str) -> None:
    calibration = ClassCalibration(ClassMap((0.7,) * 3, (0.1,) * 3, 0.001), sets_of(100))
    data = json.loads(json.dumps(calibration.to_json()))
    assert ClassCalibration.from_json(data) == calibration
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(CheckpointError, match=message):
        ClassCalibration.from_json(data, "calibration")


def test_the_derivatives_are_at_zero_where_the_fit_ends() -> None:
    """The least penalised loss, by automatic derivatives of the stated objective."""
    right, labels = rows_of(400)
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


def test_thresholds_are_conformal_quantiles() -> None:
    """Of 99 rows of each class the 90th most probable decides at 90 %."""
    probabilities = torch.rand(198, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities, labels = torch.cat([probabilities, 1.0 - probabilities], dim=1), torch.tensor([0, 1]).repeat(99)
    found = fit_prediction_sets(probabilities, labels).thresholds(0.9)
    for number in range(2):
        assert found[number] == float(probabilities[labels == number, number].sort(descending=True).values[89])


@pytest.mark.parametrize("classes", [2, 4])
def test_the_order_of_the_classes_does_not_matter(classes: int) -> None:
    right, labels = rows_of(3000, classes)
    logs = right * 2.0 + torch.tensor([1.5, 0.0, -1.0, 0.0])[:classes]
    order = torch.tensor([2, 0, 3, 1] if classes == 4 else [1, 0])
    fitted, permuted = fit_class_map(logs, labels), fit_class_map(logs[:, order], torch.argsort(order)[labels])
    found, expected = permuted.log_probabilities(logs[:, order]), fitted.log_probabilities(logs)[:, order]
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-4)
