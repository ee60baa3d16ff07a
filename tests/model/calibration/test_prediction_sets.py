"""Prediction sets: their guarantee, by class too, nesting, few rows, weights and units, size in a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration import classes as classes_module
from murho.model.calibration.classes import ClassCalibration, ClassMap, PredictionSets, fit_prediction_sets
from murho.model.errors import CheckpointError, OptionError


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
    read = ClassCalibration.from_json(data)
    assert read == calibration
    assert read.rows == 500
    for coverage in (0.3, 0.9, 0.99):
        torch.testing.assert_close(
            read.sets.sets(probabilities, coverage), calibration.sets.sets(probabilities, coverage)
        )


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
