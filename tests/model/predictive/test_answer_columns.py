from __future__ import annotations

import numpy as np
import pytest

from murho.model.predictive.answer_columns import answer_columns, label, names_of_classes, table_columns
from murho.model.predictive.prediction import ClassPrediction, Place, Prediction, PredictOptions, Unit

CLASSES = ("a", "b_c", "{}")
SETS = np.array([[True, False, True], [False, True, False]])
ROWS, COUNT = 2, 3


def about_classes() -> ClassPrediction:
    tables = np.arange(ROWS * COUNT, dtype=float).reshape(ROWS, COUNT)
    return ClassPrediction(
        5,
        0,
        calibrated=True,
        classes=CLASSES,
        prediction=np.array([2, 0]),
        probabilities=tables,
        epistemic_std=tables + 10,
        entropy=np.array([0.1, 0.2]),
        epistemic_entropy=np.array([0.0, 0.1]),
        percentiles=np.arange(ROWS * COUNT * 2, dtype=float).reshape(ROWS, COUNT, 2),
        prediction_set=SETS,
        draws=np.zeros((ROWS, 5, COUNT)),
    )


OPTIONS = PredictOptions(samples=5, percentiles=(5.0, 97.5), draws=True)


def test_a_table_of_classes_has_the_columns_of_murho_predict() -> None:
    columns = answer_columns(about_classes(), OPTIONS)
    assert list(columns) == ["prediction", "p_a", "p_b_c", "p_{}", "entropy", "epistemic_entropy", "prediction_set"]
    assert columns["prediction"].tolist() == ["{}", "a"]
    assert columns["prediction_set"].tolist() == [["a", "{}"], ["b_c"]]
    assert columns["p_b_c"].tolist() == [1.0, 4.0]


def test_further_columns_come_next_and_lists_last() -> None:
    columns = table_columns(about_classes(), OPTIONS)
    assert list(columns)[7:] == [
        *(f"epistemic_std_{name}" for name in CLASSES),
        *(f"p{level}_{name}" for name in CLASSES for level in ("5", "97.5")),
        "draws",
    ]
    values = columns["p97.5_b_c"].values
    assert values is not None
    assert values.tolist() == [3.0, 9.0]


def test_a_table_of_numbers_has_the_columns_of_murho_predict() -> None:
    ones = np.ones(3)
    prediction = Prediction(
        4, 0, calibrated=True, mean=ones, std=ones, epistemic_std=ones, aleatoric_std=ones, percentiles=np.eye(3)
    )
    columns = answer_columns(prediction, PredictOptions(samples=4))
    assert list(columns) == ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]
    assert columns["p50"].tolist() == [0.0, 1.0, 0.0]


def test_without_draws_columns_are_there_and_empty() -> None:
    options = PredictOptions(samples=0, thresholds=(2.0,), draws=True, mc_error=True)
    numbers = answer_columns(Prediction(0, 0, calibrated=False, mean=np.ones(2)), options, tuple(Place))
    assert (
        list(numbers)[-6:]
        == ["exceedance_2", "mean_mc_error", "std_mc_error", *(f"p{p}_mc_error" for p in (5, 50, 95)), "draws"][-6:]
    )
    assert np.isnan(numbers["std"]).all()
    assert numbers["draws"].shape == (2, 0)
    mean_only = ClassPrediction(
        0, 0, calibrated=False, classes=CLASSES, prediction=np.zeros(2, dtype=np.int64), probabilities=np.ones((2, 3))
    )
    classes = answer_columns(mean_only, options, tuple(Place))
    assert classes["prediction_set"].tolist() == [None, None]
    assert np.isnan(classes["epistemic_entropy"]).all()
    assert classes["draws"].shape == (2, 0, 3)


def test_names_of_sets_are_in_the_order_of_the_classes() -> None:
    assert names_of_classes(SETS, Unit.CLASS_SET, CLASSES) == [["a", "{}"], ["b_c"]]
    assert names_of_classes(SETS[:0], Unit.CLASS_SET, CLASSES) == []
    assert names_of_classes(np.array([[False] * 3, [True] * 3]), Unit.CLASS_SET, CLASSES) == [[], list(CLASSES)]
    assert names_of_classes(np.array([1, 1]), Unit.CLASS, CLASSES) == ["b_c", "b_c"]


@pytest.mark.parametrize(("value", "text"), [(5.0, "5"), (97.5, "97.5"), (-0.1, "-0.1"), (1e300, "1e+300")])
def test_a_number_has_its_shortest_text(value: float, text: str) -> None:
    assert label(value) == text
