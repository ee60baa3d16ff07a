from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from murho_client._data import to_batch

from murho.model.tables.readings import NumberReading
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.service.predict.routes import MEDIA_TYPES, reader_of, writer_of
from tests.service.bodies import ARROW, CSV, NPY, PARQUET, WRITERS, csv, npy, read_table
from tests.service.protocols.support import row_tensors, tensor
from tests.service.support import ROW, SCHEMA, AppClient, FakeModel, make_client, pointers

ROWS = [ROW, {**ROW, "Weight": 2000.0, "Horsepower": None}]
TABLE = pa.table({name: [row[name] for row in ROWS] for name in ROW})
NUMBERS = Schema(
    (
        Feature("Weight", FeatureKind.NUMERIC, None, False, 1000.0, 5000.0, ()),
        Feature("Horsepower", FeatureKind.NUMERIC, None, True, 40.0, 230.0, ()),
    ),
    Target("Consumption", None),
    {},
)


@pytest.fixture
def numeric_client() -> Iterator[AppClient]:
    with make_client(FakeModel(schema=NUMBERS)) as client:
        yield client


def post(client: AppClient, body: bytes, kind: str, query: str = "", **headers: str) -> httpx.Response:
    return client.post(f"/predict{query}", content=body, headers={"content-type": kind, **headers})


@pytest.mark.parametrize("kind", WRITERS)
def test_a_table_is_answered_with_a_table_of_the_numbers_of_json(client: AppClient, kind: str) -> None:
    options = {"samples": 8, "seed": 3, "percentiles": [5, 97.5], "thresholds": [100.0], "include": ["mc_error"]}
    expected = client.post("/predict", {"inputs": ROWS, **options}).json()
    query = "?samples=8&seed=3&percentiles=5,97.5&thresholds=100&include=mc_error"
    table = read_table(post(client, WRITERS[kind](TABLE), kind, query))
    assert table.column_names == [
        *("mean", "std", "epistemic_std", "aleatoric_std", "p5", "p97.5", "exceedance_100"),
        *("mean_mc_error", "std_mc_error", "p5_mc_error", "p97.5_mc_error"),
    ]
    for name in ("mean", "std", "epistemic_std", "aleatoric_std"):
        np.testing.assert_allclose(table[name].to_numpy(), expected[name], rtol=1e-12)
    percentiles = np.array(expected["percentiles"]["values"])
    np.testing.assert_allclose(table["p97.5"].to_numpy(), percentiles[:, 1], rtol=1e-12)
    np.testing.assert_allclose(table["exceedance_100"].to_numpy(), np.ravel(expected["exceedance"]["values"]))


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_arrow_and_parquet_tell_the_facts_and_list_the_draws(client: AppClient, kind: str) -> None:
    far = TABLE.set_column(0, "Weight", pa.array([3000.0, 9000.0]))
    table = read_table(post(client, WRITERS[kind](far), kind, "?samples=4&include=draws"))
    facts = json.loads(table.schema.metadata[b"murho"])
    assert facts["model"] == {"name": "cars", "version": "1"}
    assert (facts["target"], facts["samples"], facts["seed"], facts["calibrated"]) == ("Consumption", 4, 7, True)
    assert [warning["pointer"] for warning in facts["warnings"]] == ["/inputs/Weight/1"]
    assert table["draws"].to_pylist()[0] == [128.5, 129.5, 130.5, 131.5]


def test_csv_tells_the_facts_in_headers(client: AppClient) -> None:
    headers = post(client, csv(TABLE), CSV, "?samples=4&seed=3").headers
    facts = {name: headers[f"murho-{name}"] for name in ("model", "version", "samples", "seed", "calibrated")}
    assert facts == {"model": "cars", "version": "1", "samples": "4", "seed": "3", "calibrated": "true"}


@pytest.mark.parametrize("kind", [*WRITERS, NPY])
def test_a_missing_cell_is_accepted_where_it_can_be_imputed(kind: str) -> None:
    """As in JSON: `Feature.missing` only says whether training rows lacked such cells."""
    features = tuple(replace(feature, imputed=not feature.missing) for feature in NUMBERS.features)
    columns = {"Weight": [3000.0, None], "Horsepower": [100.0, 50.0]}
    body = npy([[3000.0, 100.0], [np.nan, 50.0]]) if kind == NPY else WRITERS[kind](pa.table(columns))
    model = FakeModel(schema=NUMBERS)
    model.schema = replace(NUMBERS, features=features)
    with make_client(model) as client:
        assert post(client, body, kind).status_code == 200
    np.testing.assert_array_equal(model.asked["Weight"], [3000.0, np.nan])


@pytest.mark.parametrize("word", ["", " ", "NA"])
@pytest.mark.parametrize("form", ["records", "matrix", "columns", "invocations", "client", "v2", *WRITERS])
def test_empty_texts_and_words_for_missing_cells_are_missing_in_every_form(word: str, form: str) -> None:
    prices = Feature("Price", FeatureKind.NUMERIC, "$", True, 0.0, 9.0, (), reading=NumberReading(unit="$"))
    features = (*(replace(feature, missing=True) for feature in SCHEMA.features), prices)
    model = FakeModel(schema=replace(SCHEMA, features=features))
    texts = {"Year": word, "Origin/plant": word, "Price": word}
    row = {**ROW, **texts}
    with make_client(model) as client:
        match form:
            case "records":
                response = client.post("/predict", {"inputs": [row]})
            case "matrix":
                response = client.post("/predict", {"inputs": [list(row.values())]})
            case "columns":
                response = client.post("/predict", {"inputs": {name: [cell] for name, cell in row.items()}})
            case "client":
                frame = pd.DataFrame([row])
                response = client.post("/predict", {"inputs": to_batch(frame).inputs()})
            case "invocations":
                response = client.post("/invocations", {"dataframe_records": [row]})
            case "v2":
                parts = {name: tensor(name, [cell], "BYTES") for name, cell in texts.items()}
                inputs = [*row_tensors()[:3], parts["Year"], parts["Origin/plant"], tensor("Price", [None], "FP64")]
                response = client.post("/v2/models/cars/infer", {"inputs": inputs})
            case _:
                table = pa.table({name: [cell] for name, cell in row.items()})
                response = post(client, WRITERS[form](table), form)
    assert response.status_code == 200, response.text
    assert model.asked["Origin/plant"].tolist() == [None]
    assert np.isnan(model.asked["Year"]).all()
    assert np.isnan(model.asked["Price"]).all()


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda table: table.drop_columns("Weight"), "/inputs/Weight"),
        (lambda table: table.append_column("Colour", pa.array(["red", "blue"])), "/inputs/Colour"),
        (lambda table: table.set_column(0, "Weight", pa.array([3000.0, None])), "/inputs/Weight/1"),
        (lambda table: table.set_column(0, "Weight", pa.array(["3000", "heavy"])), "/inputs/Weight/1"),
        (lambda table: table.slice(0, 0), "/inputs"),
    ],
)
def test_what_is_wrong_in_a_table_is_422_with_its_cell(
    client: AppClient, kind: str, change: Callable[[pa.Table], pa.Table], pointer: str
) -> None:
    response = post(client, WRITERS[kind](change(TABLE)), kind)
    assert pointers(response, 422) == [pointer]


def test_query_parameters_beside_a_json_body_are_refused_not_ignored(client: AppClient) -> None:
    response = client.post("/predict?samples=0", {"inputs": ROWS})
    assert pointers(response, 422) == ["/samples"]


def test_a_parameter_that_is_there_twice_is_a_list(client: AppClient) -> None:
    header = post(client, csv(TABLE), CSV, "?percentiles=5&percentiles=95").text.splitlines()[0]
    assert header.endswith("aleatoric_std,p5,p95")
    assert pointers(post(client, csv(TABLE), CSV, "?samples=4&samples=8"), 422) == ["/samples"]


def test_without_draws_csv_has_empty_cells(client: AppClient) -> None:
    assert post(client, csv(TABLE), CSV, "?samples=0").text.splitlines()[1] == "130,,,,,,"


def test_columns_of_one_name_are_said_of_parquet_too(client: AppClient) -> None:
    table = pa.Table.from_arrays([*TABLE.columns, TABLE.column(0)], names=[*TABLE.column_names, "Weight"])
    assert pointers(post(client, WRITERS[PARQUET](table), PARQUET), 422) == ["/inputs/Weight"]


def test_csv_has_no_place_for_draws(client: AppClient) -> None:
    assert pointers(post(client, csv(TABLE), CSV, "?include=draws")) == ["/include"]
    assert post(client, csv(TABLE), CSV, "?include=draws", accept="application/json").status_code == 200


def test_accept_picks_the_form_of_the_answer(client: AppClient) -> None:
    body = json.dumps({"inputs": ROWS}).encode()
    for kind in MEDIA_TYPES:
        response = post(client, body, "application/json", accept=kind)
        assert response.headers["content-type"].partition(";")[0] == kind
        assert "accept" in response.headers["vary"]
    assert post(client, body, "application/json", accept="image/png").status_code == 406
    assert post(client, csv(TABLE), CSV, accept="application/json").json()["mean"] == [130.0, 20.0]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", CSV),
        ("text/*", CSV),
        ("application/*;q=0.5, text/csv;q=0.4", "application/json"),
        ("application/json;q=0.2, */*;q=0.1", "application/json"),
        (f"{ARROW}, */*;q=0.5", ARROW),
    ],
)
def test_the_heaviest_accepted_type_wins_and_the_requests_own_wins_ties(accept: str, expected: str) -> None:
    assert writer_of(accept, reader_of(CSV)).media_type == expected


def test_a_matrix_of_numbers_is_answered_with_a_structured_array(numeric_client: AppClient) -> None:
    response = post(numeric_client, npy([[3000, 100.0], [2000, np.nan]]), NPY, "?samples=4&include=draws")
    answer = np.load(io.BytesIO(response.content), allow_pickle=False)
    assert answer["mean"].tolist() == [130.0, 20.0]
    assert answer["draws"].shape == (2, 4)
    without = post(numeric_client, npy([[3000, 100.0]]), NPY, "?samples=0&include=draws")
    assert np.load(io.BytesIO(without.content))["draws"].shape == (1, 0)
    assert answer.dtype.names[:4] == ("mean", "std", "epistemic_std", "aleatoric_std")
    fortran = np.asfortranarray([[3000, 100], [2000, 50]])
    assert np.load(io.BytesIO(post(numeric_client, npy(fortran), NPY).content))["mean"].tolist() == [130.0, 70.0]


@pytest.mark.parametrize(
    ("matrix", "pointer"),
    [
        ([[3000.0]], "/inputs"),
        ([3000.0, 100.0], "/inputs"),
        ([["3000", "100"]], "/inputs"),
        (np.empty((0, 2)), "/inputs"),
        ([[3000.0, 1.0], [np.nan, 1.0]], "/inputs/1/0"),
        ([[3000.0, np.inf]], "/inputs/0/1"),
    ],
)
def test_what_is_wrong_in_a_matrix_is_422(numeric_client: AppClient, matrix: Any, pointer: str) -> None:
    assert pointers(post(numeric_client, npy(matrix), NPY)) == [pointer]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"(2, 2), }", b"(2, 2        ", "as numpy.save writes it"),
        (b"'<f8'", b"'|O8'", "holds object"),
        (b"(2, 2)", b"(9999999999999, 2)", ""),  # takes no memory
        (b"(2, 2)", b"(2,-2)", "has the shape [2, -2]"),
        (b"{'descr'", b"(((((((((", "as numpy.save writes it"),
    ],
)
def test_a_broken_header_is_422(numeric_client: AppClient, old: bytes, new: bytes, words: str) -> None:
    body = npy(np.ones((2, 2)))
    assert old in body
    response = post(numeric_client, body.replace(old, new, 1), NPY)
    assert pointers(response) == ["/inputs"]
    assert words in response.json()["errors"][0]["message"]


def test_a_nan_that_signals_is_a_missing_cell(numeric_client: AppClient) -> None:
    matrix = np.array([[3000.0, 1.0]], "<f4")
    matrix.view("<u4")[0, 1] = 0x7F800001
    assert post(numeric_client, npy(matrix), NPY).status_code == 200


def test_a_model_with_categories_takes_no_matrix(client: AppClient) -> None:
    assert pointers(post(client, npy(np.zeros((1, 5))), NPY)) == ["/inputs"]


def test_gzip_is_read_and_written(client: AppClient) -> None:
    body = gzip.compress(json.dumps({"inputs": ROWS * 200, "samples": 4}).encode())
    headers = {"content-encoding": "gzip", "accept-encoding": "gzip"}
    response = post(client, body, "application/json", **headers)
    assert response.headers["content-encoding"] == "gzip"
    assert len(response.json()["mean"]) == 400
    plain = post(client, body, "application/json", **(headers | {"accept-encoding": "gzip;q=0"}))
    assert "content-encoding" not in plain.headers
    assert plain.json() == response.json()


@pytest.mark.parametrize("kind", WRITERS)
def test_more_rows_than_the_limit_are_413(kind: str) -> None:
    with make_client(FakeModel(), max_rows=5) as client:
        many = pa.concat_tables([TABLE] * 3)
        assert post(client, WRITERS[kind](many), kind).status_code == 413
