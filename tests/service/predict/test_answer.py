from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import UnfamiliarValue
from murho.service.predict.answer import MAX_WARNINGS, describe_outside, encode_answer
from murho.service.predict.answer_models import PredictResponse
from murho.service.predict.inputs import parse_inputs
from tests.service.support import NAMES, ROW, SCHEMA, FakeModel

ROWS = parse_inputs([ROW, ROW], SCHEMA, 10)


def encode(**options: Any) -> dict[str, Any]:
    chosen = PredictOptions(**options)
    prediction = FakeModel().predict(ROWS.columns, chosen)
    answer: dict[str, Any] = orjson.loads(b"".join(encode_answer(("cars", "1"), "Consumption", chosen, prediction, [])))
    PredictResponse.model_validate(answer)
    return answer


def test_an_answer_has_what_was_asked_for_and_nothing_else() -> None:
    assert list(encode()) == [
        "model",
        "target",
        "samples",
        "seed",
        "mean",
        "std",
        "epistemic_std",
        "aleatoric_std",
        "percentiles",
        "calibrated",
        "warnings",
    ]


def test_tables_are_rows_by_levels_thresholds_and_samples() -> None:
    answer = encode(samples=4, percentiles=(5.0, 97.5, 50.0), thresholds=(20.0, 130.0), draws=True)
    assert answer["percentiles"]["levels"] == [5, 97.5, 50]
    assert np.shape(answer["percentiles"]["values"]) == (2, 3)
    assert answer["exceedance"]["thresholds"] == [20.0, 130.0]
    assert np.shape(answer["exceedance"]["values"]) == (2, 2)
    assert answer["draws"][0] == [128.5, 129.5, 130.5, 131.5]


def test_monte_carlo_errors_have_the_shapes_of_what_they_are_of() -> None:
    assert "mc_error" not in encode()
    errors = encode(percentiles=(5.0, 50.0, 95.0), mc_error=True)["mc_error"]
    assert list(errors) == ["mean", "std", "percentiles"]
    assert errors["mean"] == [1.3, 1.3]
    assert np.shape(errors["std"]) == (2,)
    assert np.shape(errors["percentiles"]) == (2, 3)
    assert list(encode(percentiles=(), mc_error=True)["mc_error"]) == ["mean", "std"]


def test_without_draws_the_spreads_are_null() -> None:
    answer = encode(samples=0, thresholds=(20.0,), draws=True, mc_error=True)
    assert answer["mean"] == [130.0, 130.0]
    for key in ("std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws", "mc_error"):
        assert answer[key] is None


def test_percentiles_can_be_left_out() -> None:
    assert "percentiles" not in encode(percentiles=())


@pytest.mark.parametrize("found", [MAX_WARNINGS, MAX_WARNINGS + 1])
def test_warnings_beyond_the_limit_are_summed_up(found: int) -> None:
    warnings = describe_outside([UnfamiliarValue(0, NAMES[0], "far out")] * found, ROWS)
    assert warnings[0] == {"pointer": "/inputs/0/Weight", "message": "Weight: far out"}
    assert len(warnings) == found
    assert (warnings[-1]["pointer"] == "/inputs") == (found > MAX_WARNINGS)
