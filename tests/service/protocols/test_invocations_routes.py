from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.service.support import NAMES, ROW, AppClient, FakeModel, make_client, pointers

if TYPE_CHECKING:
    from collections.abc import Iterator

CELLS = list(ROW.values())
COLUMNS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]
CSV = ",".join(f'"{name}"' for name in NAMES) + "\n3000,100,true,1975-06-01,USA\n2000,,false,,USA\n"


@pytest.fixture(scope="module")
def client() -> Iterator[AppClient]:
    with make_client(FakeModel(), samples=4) as client:
        yield client


@pytest.mark.parametrize(
    "rows",
    [
        {"dataframe_split": {"columns": NAMES, "data": [CELLS, CELLS]}},
        {"dataframe_split": {"index": [7, 8], "columns": NAMES[::-1], "data": [CELLS[::-1]] * 2}},
        {"dataframe_records": [ROW, ROW]},
        {"instances": [ROW, ROW]},
        {"instances": [CELLS, CELLS]},
        {"inputs": [CELLS, CELLS]},
        {"inputs": {name: [cell, cell] for name, cell in ROW.items()}},
    ],
)
def test_every_form_of_rows_is_answered(client: AppClient, rows: dict[str, Any]) -> None:
    for params in (None, {"samples": 2, "percentiles": [5, 50, 95]}):
        document = rows if params is None else rows | {"params": params}
        response = client.post("/invocations", document)
        assert response.status_code == 200, response.text
        answer = response.json()
        assert [list(row) for row in answer["predictions"]] == [COLUMNS, COLUMNS]
        assert answer["predictions"][0]["mean"] == 130.0
        assert answer["samples"] == (4 if params is None else 2)
        assert answer["model"] == {"name": "cars", "version": "1"}


def test_many_rows_keep_their_order(client: AppClient) -> None:
    rows = [{**ROW, "Weight": 1000.0 + index} for index in range(1000)]
    answer = client.post("/invocations", {"dataframe_records": rows, "params": {"include": ["draws"]}}).json()
    assert [row["mean"] for row in answer["predictions"]] == pytest.approx([110 + index / 100 for index in range(1000)])
    assert all(len(row["draws"]) == 4 for row in answer["predictions"])


def test_csv_is_answered_in_json_or_as_the_client_accepts(client: AppClient) -> None:
    sent: dict[str, Any] = {"content": CSV.encode(), "headers": {"content-type": "text/csv"}}
    answer = client.post("/invocations?samples=3", **sent).json()
    assert [row["mean"] for row in answer["predictions"]] == [130.0, 20.0]
    assert answer["samples"] == 3
    sent["headers"]["accept"] = "text/csv"
    response = client.post("/invocations", **sent)
    assert response.headers["content-type"].startswith("text/csv")
    assert response.text.splitlines()[0] == ",".join(COLUMNS)
    packed = {"content-type": "text/csv; charset=utf-8", "content-encoding": "gzip", "accept": "application/json"}
    response = client.post("/invocations", content=gzip.compress(CSV.encode()), headers=packed)
    assert len(response.json()["predictions"]) == 2


def with_cell(row: int, name: str, cell: object) -> list[dict[str, Any]]:
    return [{**ROW, name: cell} if index == row else ROW for index in range(2)]


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({}, [""]),
        ({"instances": [ROW], "inputs": [ROW]}, [""]),
        ({"instance": [ROW]}, ["/instance"]),
        ({"instances": [ROW], "params": {"sample": 3}}, ["/params/sample"]),
        ({"instances": with_cell(1, "Weight", "x")}, ["/instances/1/Weight"]),
        ({"dataframe_records": with_cell(1, "Year", 3)}, ["/dataframe_records/1/Year"]),
        ({"dataframe_split": {"columns": ["a", "a"], "data": [[1, 2]]}}, ["/dataframe_split/columns"]),
        ({"dataframe_split": {"columns": NAMES, "data": [CELLS, CELLS[1:]]}}, ["/dataframe_split/data/1"]),
        ({"dataframe_split": {"columns": NAMES, "rows": [CELLS]}}, ["/dataframe_split/data", "/dataframe_split/rows"]),
        (
            {"dataframe_split": {"columns": NAMES, "data": [CELLS, [*CELLS[:4], True]]}},
            ["/dataframe_split/data/1/4"],
        ),
        (
            {"dataframe_split": {"columns": [*NAMES[:4], "Origin"], "data": [CELLS]}},
            ["/dataframe_split/columns", "/dataframe_split/columns/4"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(client: AppClient, document: Any, where: list[str]) -> None:
    response = client.post("/invocations", content=json.dumps(document))
    assert response.status_code == 422
    found = pointers(response)
    assert sorted(found) == sorted(where), response.text


def test_other_things_that_are_wrong(client: AppClient) -> None:
    assert client.post("/invocations?samples=3", {"instances": [ROW]}).status_code == 422
    assert client.post("/invocations", content=b"x", headers={"content-type": "image/png"}).status_code == 415
    refused = {"accept": "image/png"}
    assert client.post("/invocations", {"instances": [ROW]}, headers=refused).status_code == 406
    assert client.post("/invocations", content=b'{"instances": [' + b"0," * 2_200_000 + b"0]}").status_code == 413
    assert client.post("/invocations", content=b"").status_code == 422
    assert client.get("/invocations").status_code == 405


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        (
            {"dataframe_split": {"columns": NAMES[::-1], "data": [[*CELLS[::-1][:4], 9000]]}},
            "/dataframe_split/data/0/4",
        ),
        ({"dataframe_records": [ROW, {**ROW, "Weight": 9000}]}, "/dataframe_records/1/Weight"),
        ({"instances": [[9000, *CELLS[1:]]]}, "/instances/0/0"),
    ],
)
def test_warnings_point_into_the_body(client: AppClient, rows: dict[str, Any], where: str) -> None:
    (warning,) = client.post("/invocations", rows).json()["warnings"]
    assert warning["pointer"] == where


@pytest.mark.parametrize("twice", [True, False])
def test_a_hundred_thousand_columns_are_refused(client: AppClient, twice: bool) -> None:
    # Work that grows with the square of their number would run into the test's time limit.
    names = [f"column {number}" for number in range(100_000)] + ["column 99999" if twice else "last"]
    document = {"dataframe_split": {"columns": names, "data": [[1] * len(names)]}}
    assert client.post("/invocations", document).status_code == 422
