"""Options, answers, the table of their fields, and the columns that are made of them."""

import subprocess
import sys

import numpy as np
import pytest

from murho.model.predictive.answer_columns import answer_columns, table_columns
from murho.model.predictive.prediction import (
    CLASS_FIELDS,
    ClassPrediction,
    MonteCarloError,
    Place,
    Prediction,
    PredictOptions,
    arrays_of,
    level_hint,
)

CLASSES = ("a", "b_c", "{}")
TABLE = np.arange(6.0).reshape(2, 3)
SETS = np.array([[True, False, True], [False, True, False]])
INSIDE = np.zeros(2, dtype=bool)
OPTIONS = PredictOptions(samples=5, percentiles=(5.0, 97.5), draws=True)
ABOUT_CLASSES = ClassPrediction(
    5,
    0,
    calibrated=True,
    extrapolation=INSIDE,
    classes=CLASSES,
    prediction=np.array([2, 0]),
    probabilities=TABLE,
    epistemic_std=TABLE + 10,
    entropy=np.array([0.1, 0.2]),
    epistemic_entropy=np.array([0.0, 0.1]),
    percentiles=np.arange(12.0).reshape(2, 3, 2),
    prediction_set=SETS,
    draws=np.zeros((2, 5, 3)),
    mc_error=MonteCarloError(probabilities=np.zeros((2, 3))),
)


def test_it_brings_neither_numpy_nor_torch() -> None:
    code = (
        "import sys, murho.model.predictive.prediction; "
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_table_of_classes_has_the_columns_of_murho_predict_then_further_ones_and_lists_last() -> None:
    columns = answer_columns(ABOUT_CLASSES, OPTIONS)
    assert list(columns) == ["prediction", "p_a", "p_b_c", "p_{}", "entropy", "epistemic_entropy", "prediction_set"]
    assert columns["prediction"].tolist() == ["{}", "a"]
    assert columns["prediction_set"].tolist() == [["a", "{}"], ["b_c"]]
    assert columns["p_b_c"].tolist() == [1.0, 4.0]
    assert len(arrays_of(ABOUT_CLASSES)) == len(CLASS_FIELDS) == 9
    every = table_columns(ABOUT_CLASSES, OPTIONS)
    assert list(every)[7:] == [
        *(f"epistemic_std_{name}" for name in CLASSES),
        *(f"p{level}_{name}" for name in CLASSES for level in ("5", "97.5")),
        "draws",
    ]
    assert every["p97.5_b_c"].cells(CLASSES).tolist() == [3.0, 9.0]


def test_without_draws_columns_are_there_and_empty() -> None:
    options = PredictOptions(samples=0, thresholds=(2.0,), draws=True, mc_error=True)
    mean_only = Prediction(0, 0, calibrated=False, extrapolation=INSIDE, mean=np.ones(2))
    numbers = answer_columns(mean_only, options, tuple(Place))
    errors = ["mean_mc_error", "std_mc_error", *(f"p{level}_mc_error" for level in (5, 50, 95))]
    assert list(numbers)[-7:] == ["exceedance_2", *errors, "draws"]
    assert np.isnan(numbers["std"]).all()
    assert numbers["draws"].shape == (2, 0)
    likeliest, shares = np.zeros(2, dtype=np.int64), np.ones((2, 3))
    of_classes = ClassPrediction(
        0, 0, calibrated=False, extrapolation=INSIDE, classes=CLASSES, prediction=likeliest, probabilities=shares
    )
    classes = answer_columns(of_classes, options, tuple(Place))
    assert classes["prediction_set"].tolist() == [None, None]
    assert np.isnan(classes["epistemic_entropy"]).all()
    assert classes["draws"].shape == (2, 0, 3)


@pytest.mark.parametrize("levels", [(), (5.0, 50.0, 95.0), (0.5, 99.5), (1.0,)])
def test_levels_that_look_like_shares_get_a_hint(levels: tuple[float, ...]) -> None:
    assert level_hint(levels) is None
    hint = level_hint((0.05, 0.5, 0.95)) or ""
    assert "0.05, 0.5, 0.95 are all below 1 %" in hint
    assert hint.endswith("ask for 5, 50, 95.")
