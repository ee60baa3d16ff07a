from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
import pytest

from murho.model.predictive.prediction import (
    CLASS_FIELDS,
    NUMBER_FIELDS,
    AnswerField,
    Axis,
    ClassPrediction,
    MonteCarloError,
    Prediction,
    PredictOptions,
    Unit,
    answer_size,
    arrays_of,
)

TABLES = [(NUMBER_FIELDS, Prediction), (CLASS_FIELDS, ClassPrediction)]
FACTS = {"samples", "seed", "calibrated", "classes", "unlike", "told"}


@pytest.mark.parametrize(("table", "kind"), TABLES)
def test_every_array_of_a_prediction_has_its_field(table: tuple[AnswerField, ...], kind: Any) -> None:
    assert {field.name for field in table} == {field.name for field in fields(kind)} - FACTS
    (of_errors,) = (field for field in table if field.parts)
    assert {part.name for part in of_errors.parts} <= {part.name for part in fields(MonteCarloError)}


@pytest.mark.parametrize("table", [NUMBER_FIELDS, CLASS_FIELDS])
def test_rows_come_first_and_columns_are_named_by_the_other_axes(table: tuple[AnswerField, ...]) -> None:
    for field in chain.from_iterable(whole.parts or (whole,) for whole in table):
        assert field.axes[0] is Axis.ROWS
        named = {axis for axis in field.axes[1:] if f"{{{axis}}}" in field.column}
        whole = field.unit is Unit.CLASS_SET or Axis.SAMPLES in field.axes
        assert named == (set() if whole else set(field.axes[1:]))


def test_options_that_are_off_leave_their_fields_out() -> None:
    plain = PredictOptions()
    everything = PredictOptions(thresholds=(1.0,), draws=True, mc_error=True)
    for table, extra in ((NUMBER_FIELDS, {"exceedance", "draws", "mc_error"}), (CLASS_FIELDS, {"draws", "mc_error"})):
        asked = {field.name for field in table if field.is_in(plain)}
        assert {field.name for field in table if field.is_in(everything)} - asked == extra


def test_the_arrays_of_a_prediction_are_all_of_its_fields() -> None:
    prediction = ClassPrediction(
        2,
        0,
        calibrated=True,
        classes=("a", "b", "c"),
        prediction=np.zeros(4, dtype=np.int64),
        probabilities=np.full((4, 3), 1 / 3),
        prediction_set=np.ones((4, 3), dtype=bool),
        mc_error=MonteCarloError(probabilities=np.zeros((4, 3))),
    )
    found = arrays_of(prediction)
    assert len(found) == 4
    assert prediction.mc_error is not None
    assert any(array is prediction.mc_error.probabilities for array in found)
    assert answer_size(prediction) == 4 + 3 * 4 * 3
