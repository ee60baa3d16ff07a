"""A classifier through the stock client of the Open Inference Protocol: the answer of `POST /predict`, as tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

from tests.service.classifiers import CLASSES, Classifier
from tests.service.protocols.test_tritonclient import COLUMNS
from tests.service.wire import Served, served

ROWS = 8


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served(Classifier("bodies"), watch_seconds=0, log_level="warning") as service:
        yield service


def inputs() -> list[Any]:
    made = []
    for name, values in COLUMNS.items():
        tensor = triton.InferInput(name, [ROWS], np_to_triton_dtype(values.dtype))
        made.append(tensor.set_data_from_numpy(values[:ROWS], binary_data=True))
    return made


def test_the_answer_is_that_of_predict(service: Served) -> None:
    power = [None if np.isnan(value) else float(value) for value in COLUMNS["Horsepower"][:ROWS]]
    rows = {name: COLUMNS[name][:ROWS].tolist() for name in ("Weight", "Automatic", "Origin/plant")}
    years = [text.decode() or None for text in COLUMNS["Year"][:ROWS]]
    request = {"inputs": {**rows, "Horsepower": power, "Year": years}, "samples": 8, "seed": 5, "coverage": 0.8}
    expected = httpx.post(f"http://127.0.0.1:{service.port}/models/bodies/predict", json=request).json()
    with triton.InferenceServerClient(f"127.0.0.1:{service.port}") as client:
        result = client.infer("bodies", inputs(), parameters={"samples": 8, "seed": 5, "coverage": 0.8})
        metadata = client.get_model_metadata("bodies")
    assert [text.decode() for text in result.as_numpy("prediction")] == expected["prediction"]
    for name in ("probabilities", "epistemic_std", "entropy", "epistemic_entropy"):
        np.testing.assert_array_equal(result.as_numpy(name), expected[name])
    np.testing.assert_array_equal(result.as_numpy("percentiles"), expected["percentiles"]["values"])
    sets = [
        [name for name, inside in zip(CLASSES, row, strict=True) if inside] for row in result.as_numpy("prediction_set")
    ]
    assert sets == expected["prediction_set"]["values"]
    assert json.loads(metadata["properties"]["classes"]) == list(CLASSES)
    shapes = {output["name"]: output["shape"] for output in metadata["outputs"]}
    assert (shapes["prediction"], shapes["probabilities"], shapes["percentiles"]) == ([-1], [-1, 3], [-1, 3, -1])


def test_draws_and_errors_come_when_they_are_asked_for(service: Served) -> None:
    wanted = [triton.InferRequestedOutput(name) for name in ("draws", "probabilities_mc_error", "probabilities")]
    with triton.InferenceServerClient(f"127.0.0.1:{service.port}") as client:
        result = client.infer("bodies", inputs(), outputs=wanted, parameters={"samples": 8})
    assert result.as_numpy("draws").shape == (ROWS, 8, 3)
    np.testing.assert_allclose(result.as_numpy("draws").mean(axis=1), result.as_numpy("probabilities"), atol=1e-9)
    assert result.as_numpy("probabilities_mc_error").shape == (ROWS, 3)
