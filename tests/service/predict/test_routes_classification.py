"""The answers of a classifier, as the contract has them."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from murho.model.calibration.abstention import HeldOutClasses
from murho.model.calibration.class_calibration import ClassCalibration
from murho.model.calibration.conformal import CROSS
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from tests.service.bodies import ARROW, CSV, NPY, PARQUET, csv, npy, read_table
from tests.service.classifiers import CLASSES, Classifier
from tests.service.support import ROW, AppClient, make_client

ROWS = [ROW, {**ROW, "Weight": 1200.0, "Origin/plant": "Europe"}, {**ROW, "Weight": 9000.0, "Automatic": False}]
KEYS = [
    *("model", "target", "samples", "seed", "classes", "prediction", "probabilities", "epistemic_std", "entropy"),
    *("epistemic_entropy", "percentiles", "prediction_set", "calibrated", "extrapolation", "warnings"),
]
NEED_DRAWS = ("epistemic_std", "entropy", "epistemic_entropy", "percentiles", "prediction_set")
TABLE = csv(pa.Table.from_pylist(ROWS))


@pytest.fixture(scope="module")
def service() -> Iterator[AppClient]:
    with make_client(Classifier()) as client:
        yield client


def ask(service: AppClient, rows: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    response = service.post("/predict", {"inputs": ROWS if rows is None else rows, **options})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_the_answer_has_the_keys_of_the_contract_in_their_order(service: AppClient) -> None:
    answer = ask(service)
    assert list(answer) == KEYS
    assert (answer["target"], answer["classes"], answer["calibrated"]) == ("Body", list(CLASSES), True)
    assert answer["percentiles"]["levels"] == [5, 50, 95]
    assert np.shape(answer["percentiles"]["values"]) == (3, 3, 3)
    assert answer["prediction_set"]["coverage"] == 0.9
    assert [warning["pointer"] for warning in answer["warnings"]] == ["/inputs/2/Weight"]


def test_a_decision_that_may_be_unsure_names_its_evidence() -> None:
    model = Classifier()
    calibration, labels = model.spec.calibration, np.arange(150) % 3
    assert isinstance(calibration, ClassCalibration)
    held_out = HeldOutClasses(0.97 * np.eye(3)[labels] + 0.01, labels)
    calibration = replace(calibration, held_out=held_out, sets=replace(calibration.sets, method=CROSS))
    model.spec = replace(model.spec, calibration=calibration)
    with make_client(model) as service:
        plain = {"contexts": ROWS, "policy": "greedy"}
        found = service.post("/models/cars/decide", plain | {"abstain": {"risk": 0.05}}).json()
        assert found["evidence"] == {"method": "cross-conformal", "rows": 150}  # its risk is measured, not guaranteed
        assert "evidence" not in service.post("/models/cars/decide", plain).json()


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("samples", [1, 64])
def test_probabilities_entropies_and_sets_agree(service: AppClient, calibrated: bool, samples: int) -> None:
    answer = ask(service, samples=samples, calibrated=calibrated, include=["draws"])
    probabilities = np.array(answer["probabilities"])
    assert answer["calibrated"] is calibrated
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert answer["prediction"] == [CLASSES[index] for index in probabilities.argmax(axis=1)]
    entropy, epistemic = np.array(answer["entropy"]), np.array(answer["epistemic_entropy"])
    np.testing.assert_allclose(entropy, -(probabilities * np.log(probabilities)).sum(axis=1), rtol=1e-9)
    assert (entropy >= epistemic).all()
    assert (epistemic >= 0).all()
    for members, likeliest in zip(answer["prediction_set"]["values"], answer["prediction"], strict=True):
        assert likeliest in members
        assert members == [name for name in CLASSES if name in members]
    draws = np.array(answer["draws"])
    assert draws.shape == (3, samples, 3)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0, rtol=1e-9)
    np.testing.assert_allclose(draws.mean(axis=1), probabilities, rtol=1e-6)
    np.testing.assert_allclose(draws.std(axis=1), answer["epistemic_std"], rtol=1e-6, atol=1e-12)
    percentiles = np.moveaxis(np.percentile(draws, [5, 50, 95], axis=1), 0, 2)
    np.testing.assert_allclose(percentiles, answer["percentiles"]["values"], rtol=1e-6, atol=1e-9)
    of_draws = -(draws * np.log(np.maximum(draws, 1e-300))).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(entropy - of_draws, epistemic, rtol=1e-6, atol=1e-9)


def test_without_draws_there_are_prediction_and_probabilities_alone(service: AppClient) -> None:
    answer = ask(service, samples=0, include=["mc_error"])
    assert list(answer) == [*KEYS[:-3], "mc_error", *KEYS[-3:]]
    assert all(answer[key] is None for key in (*NEED_DRAWS, "mc_error"))
    np.testing.assert_allclose(np.sum(answer["probabilities"], axis=1), 1.0)
    assert answer["calibrated"] is False
    assert answer == ask(service, samples=0, include=["mc_error"])


def test_tables_have_the_columns_of_murho_predict_first_and_the_values_of_json(service: AppClient) -> None:
    answer = ask(service, samples=8, coverage=0.6, percentiles=[5, 97.5], include=["mc_error"])
    query = "/predict?samples=8&coverage=0.6&percentiles=5,97.5&include=mc_error"
    names = [
        "prediction",
        *(f"p_{name}" for name in CLASSES),
        *("entropy", "epistemic_entropy", "prediction_set"),
        *(f"epistemic_std_{name}" for name in CLASSES),
        *(f"p{level}_{name}" for name, level in itertools.product(CLASSES, ("5", "97.5"))),
        *(f"mc_error_{name}" for name in CLASSES),
    ]
    for kind in (CSV, ARROW, PARQUET):
        response = service.post(query, content=TABLE, headers={"content-type": CSV, "accept": kind})
        table = read_table(response)
        assert table.column_names == names
        assert table["prediction"].to_pylist() == answer["prediction"]
        sets = table["prediction_set"].to_pylist()
        assert (list(map(json.loads, sets)) if kind == CSV else sets) == answer["prediction_set"]["values"]

        def same(column: str, values: Any, table: pa.Table = table) -> None:
            np.testing.assert_allclose(table[column].to_numpy(), values, rtol=1e-12)

        same("entropy", answer["entropy"])
        same("epistemic_entropy", answer["epistemic_entropy"])
        for index, name in enumerate(CLASSES):
            same(f"p_{name}", np.array(answer["probabilities"])[:, index])
            same(f"epistemic_std_{name}", np.array(answer["epistemic_std"])[:, index])
            same(f"mc_error_{name}", np.array(answer["mc_error"]["probabilities"])[:, index])
            same(f"p97.5_{name}", np.array(answer["percentiles"]["values"])[:, index, 1])


def test_npy_has_texts_for_classes_and_truth_values_for_sets() -> None:
    numbers = tuple(Feature(name, FeatureKind.NUMERIC, None, False, 0.0, 1.0, ()) for name in "ab")
    schema = Schema(numbers, Target("y", None, CLASSES), {})
    rows = [[0.1, 0.2], [0.8, 0.3]]
    with make_client(Classifier(schema=schema)) as service:
        answer = ask(service, rows, samples=4, include=["draws"])
        for samples in (4, 0):
            response = service.post(
                f"/predict?samples={samples}&include=draws",
                content=npy(rows),
                kind=NPY,
            )
            array = np.load(io.BytesIO(response.content), allow_pickle=False)
            assert array["draws"].shape == (2, samples, 3)
            assert array["prediction_set"].shape == (2, 3)
            if samples:
                assert array["prediction"].tolist() == answer["prediction"]
                sets = [[CLASSES[index] for index in np.flatnonzero(row)] for row in array["prediction_set"]]
                assert sets == answer["prediction_set"]["values"]
                np.testing.assert_allclose(array["draws"], answer["draws"], rtol=1e-12)


@pytest.mark.parametrize(
    "names", [("ほほ", "ネコ"), tuple(f"a class with the number {index:04d}" for index in range(300))]
)
def test_npy_takes_names_of_any_script_and_number(names: tuple[str, ...]) -> None:
    schema = Schema(Classifier().schema.features, Target("y", None, names), {})
    with make_client(Classifier(schema=schema)) as service:
        headers = {"content-type": CSV, "accept": NPY}
        response = service.post("/predict?samples=2", content=TABLE, headers=headers)
    array = np.load(io.BytesIO(response.content), allow_pickle=False, max_header_size=10**6)
    assert array.dtype.names is not None
    assert array.dtype.names[1] == f"p_{names[0]}"
    assert set(array["prediction"].tolist()) <= set(names)


def test_more_numbers_than_a_service_lists_are_413(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_client(Classifier(), max_draw_values=30) as service:
        assert service.post("/predict", {"inputs": ROWS, "samples": 3, "include": ["draws"]}).status_code == 200
        response = service.post("/predict", {"inputs": ROWS, "samples": 4, "include": ["draws"]})
        assert response.status_code == 413
        assert "3 classes" in response.json()["detail"]
        monkeypatch.setattr("murho.service.predict.in_flight.MOST_CLASS_VALUES", 50)
        response = service.post("/predict", {"inputs": ROWS})
        assert response.status_code == 413
        assert "fewer percentiles" in response.json()["detail"]


def test_the_model_is_described_with_its_classes_and_without_a_unit(service: AppClient) -> None:
    described = service.get("/models/cars").json()
    listed = service.get("/models").json()["models"][0]
    for told in (described, listed):
        assert told["task"] == "classification"
        assert told["target"] == {"name": "Body", "classes": list(CLASSES)}
    assert described["calibration"]["method"] == "class"


def test_the_overview_counts_the_classes(service: AppClient) -> None:
    shown = service.get("/models/cars/overview").json()
    assert shown["target"]["classes"] == list(CLASSES)
    assert shown["target"]["levels"] == [{"value": name, "rows": 90} for name in CLASSES]
    assert shown["calibration"] == {"method": "vector scaling", "rows": 400}
    assert service.post("/predict", {"inputs": [shown["typical"]]}).status_code == 200
