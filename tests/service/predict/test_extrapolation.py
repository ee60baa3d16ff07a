"""Which rows of an answer extrapolate, at each way in, asked of a real checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import NAMES, ROW, AppClient

CSV = "text/csv"


@pytest.fixture(scope="module")
def service(tiny_cars: Path) -> Iterator[AppClient]:
    with AppClient(create_app(Settings(checkpoints=str(tiny_cars)))) as client:
        yield client


@pytest.fixture(scope="module")
def rows(service: AppClient) -> list[list[Any]]:
    """Inside; a weight 10 % of its range beyond it; without a power, as in training; without a weight."""
    weight, *_ = service.get("/models/cars").json()["features"]
    far = weight["max"] + 0.1 * (weight["max"] - weight["min"])
    return [
        list((ROW | {name: cell}).values())
        for name, cell in [("Weight", 3500), ("Weight", far), ("Horsepower", None), ("Weight", None)]
    ]


EXPECTED = [False, True, False, False]


def answer(service: AppClient, inputs: list[list[Any]], **options: Any) -> dict[str, Any]:
    response = service.post("/predict", {"inputs": inputs, **options})
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


@pytest.mark.parametrize("samples", [0, 16])
def test_a_row_far_outside_the_range_is_marked_and_named(
    service: AppClient, rows: list[list[Any]], samples: int
) -> None:
    found = answer(service, rows, samples=samples)
    assert found["extrapolation"] == EXPECTED
    (message,) = [each["message"] for each in found["warnings"] if each["pointer"] == "/inputs/1/0"]
    assert message.startswith("Weight: ")
    assert not [each for each in found["warnings"] if each["pointer"].startswith(("/inputs/0", "/inputs/2"))]


def test_it_depends_on_nothing_but_the_row(service: AppClient, rows: list[list[Any]]) -> None:
    alone = [answer(service, [row], samples=4)["extrapolation"] for row in rows]
    assert alone == [[each] for each in EXPECTED]
    many = answer(service, rows * 500, samples=4, percentiles=[])  # sent in pieces
    assert many["extrapolation"] == EXPECTED * 500


def test_other_forms_have_it_where_they_have_a_place_for_it(service: AppClient, rows: list[list[Any]]) -> None:
    split = {"columns": NAMES, "data": rows}
    assert service.post("/invocations", {"dataframe_split": split}).json()["extrapolation"] == EXPECTED
    lines = "\n".join(",".join("" if cell is None else str(cell) for cell in row) for row in [NAMES, *rows])
    table = service.post("/predict", content=lines, kind=CSV)
    assert table.headers["murho-extrapolation"] == "1"
    assert "extrapolation" not in table.text


@pytest.mark.parametrize("binary", [False, True])
def test_the_inference_protocol_has_it_by_name(service: AppClient, rows: list[list[Any]], binary: bool) -> None:
    described = service.get("/v2/models/cars").json()
    assert "extrapolation" in described["properties"]["outputs_on_request"]
    inputs = [
        {"name": each["name"], "datatype": each["datatype"], "shape": [4], "data": [row[place] for row in rows]}
        for place, each in enumerate(described["inputs"])
    ]
    output = {"name": "extrapolation", "parameters": {"binary_data": binary}}
    response = service.post("/v2/models/cars/infer", {"inputs": inputs, "outputs": [output]})
    assert response.status_code == 200, response.text
    if binary:
        assert response.content.endswith(bytes(EXPECTED))
    else:
        (found,) = response.json()["outputs"]
        assert found == {"name": "extrapolation", "datatype": "BOOL", "shape": [4], "data": EXPECTED}
    usual = service.post("/v2/models/cars/infer", {"inputs": inputs}).json()
    assert "extrapolation" not in [each["name"] for each in usual["outputs"]]
