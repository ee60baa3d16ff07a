from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.predictive.prediction import PredictOptions
from murho.service.predict import json_bodies
from murho.service.predict.answers import Answered, Asked, PredictResponse
from murho.service.predict.json_bodies import encode_answer, encode_document
from murho.service.predict.options import PredictRequest
from murho.service.predict.rows import parse_inputs
from tests.service.support import ROW, SCHEMA, FakeModel

ROWS = parse_inputs([ROW, ROW], SCHEMA, 10)


def encode(**options: Any) -> dict[str, Any]:
    chosen = PredictOptions(**options)
    prediction = FakeModel().predict(ROWS.columns, chosen)
    answered = Answered(
        ("cars", "1"),
        "Consumption",
        Asked(ROWS, chosen, PredictRequest.model_validate({"inputs": None})),
        prediction,
        [],
        values=0,
    )
    answer: dict[str, Any] = orjson.loads(b"".join(encode_answer(answered)))
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


arrays = st.tuples(st.integers(0, 9), st.none() | st.integers(0, 4)).map(
    lambda shape: np.random.default_rng(0).normal(size=[length for length in shape if length is not None])
)
leaves = st.none() | st.text(max_size=3) | st.integers(-9, 9) | st.lists(st.integers(-9, 9), max_size=2) | arrays
documents = st.dictionaries(st.text(max_size=3), leaves | st.dictionaries(st.text(max_size=2), leaves, max_size=3))


@pytest.mark.parametrize("piece", [0, 1, 5])
@given(documents)
def test_pieces_make_what_the_encoder_makes(piece: int, document: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "PIECE_VALUES", piece)
        patch.setattr(json_bodies, "JOIN_BYTES", 10)
        made = b"".join(encode_document(document))
    assert made == orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
