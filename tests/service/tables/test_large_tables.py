"""Tests of `service.tables.blocks`: what is taken in several blocks is answered as what is taken in one."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from murho.service.tables import blocks as table_blocks
from murho.service.tables.arrow_tables import FACTS
from tests.service.bodies import ARROW, CSV, arrow, csv, read_table
from tests.service.classifiers import Classifier
from tests.service.support import ROW, AppClient, FakeModel, make_client
from tests.service.wire import served, wait_until

ROWS = 23
BLOCK = 5


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every table in blocks of five rows."""
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", BLOCK)


def table(rows: int = ROWS, **cells: dict[int, Any]) -> dict[str, list[Any]]:
    """Columns of different rows; `cells` replaces some, by feature and row."""
    columns = {name: [value] * rows for name, value in ROW.items()}
    columns["Weight"] = [1500.0 + 37 * row for row in range(rows)]
    columns["Horsepower"] = [None if row % 4 == 3 else 50.0 + row for row in range(rows)]
    for name, changed in cells.items():
        for row, value in changed.items():
            columns[name.replace("_", "/")][row] = value
    return columns


def body_of(columns: dict[str, list[Any]], media_type: str) -> bytes:
    if media_type == ARROW:
        return arrow(pa.table(columns), batch=3)
    return csv(pa.table({name: [cell and str(cell) for cell in cells] for name, cells in columns.items()}))


def ask(client: AppClient, body: bytes, media_type: str, accept: str = "", query: str = "", **headers: str) -> Any:
    given = {"content-type": media_type, "accept-encoding": "identity", **headers} | (
        {"accept": accept} if accept else {}
    )
    return client.post(f"/predict?samples=8&{query}", content=body, headers=given)


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def client(model: FakeModel) -> Iterator[AppClient]:
    with make_client(model, max_pending_cost=100_000) as client:
        yield client
        scheduler, room = client.state["parts"].scheduler, client.state["parts"].spool_room
        assert (scheduler.admission.pending, room.taken) == (0, 0)
        assert scheduler.admission.pending_cost == pytest.approx(0.0)


QUERIES = ["", "samples=0", "percentiles=1,99&thresholds=20,30&include=mc_error", "percentiles="]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("accept", [ARROW, CSV])
@pytest.mark.parametrize("media_type", [ARROW, CSV])
def test_the_answer_is_that_of_the_whole_table(
    client: AppClient, model: FakeModel, media_type: str, accept: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", 1000)
    body = body_of(table(Weight={2: 9000.0, 17: 9001.0}), media_type)
    url = f"/predict?{query or 'samples=8'}"
    headers = {"content-type": media_type, "accept": accept, "accept-encoding": "identity"}
    whole = client.post(url, content=body, headers=headers)
    assert model.passes == 1
    monkeypatch.setattr(table_blocks, "BLOCK_ROWS", BLOCK)
    inside = client.post(url, content=body, headers=headers)
    assert model.passes >= 1 + -(-ROWS // BLOCK)
    assert read_table(inside).equals(read_table(whole))
    if accept == ARROW:
        facts = [json.loads(read_table(answer).schema.metadata[FACTS]) for answer in (whole, inside)]
        assert facts[0] == facts[1]
        assert [warning["pointer"] for warning in facts[0]["warnings"]] == ["/inputs/Weight/2", "/inputs/Weight/17"]
    else:
        assert inside.content == whole.content
    assert int(inside.headers["content-length"]) == len(inside.content)
    assert whole.headers["murho-extrapolation"] == "2"
    for name in ("content-type", "vary", "murho-extrapolation", "murho-warnings", "murho-samples", "murho-model"):
        assert inside.headers[name] == whole.headers[name]


@pytest.mark.parametrize("accept", [ARROW, CSV])
def test_classes_and_draws_are_answered(accept: str) -> None:
    with make_client(Classifier()) as client:
        query = "include=draws" if accept == ARROW else ""
        answer = read_table(ask(client, body_of(table(), CSV), CSV, accept, query))
        assert answer.num_rows == ROWS
        assert answer.column_names[0] == "prediction"


BAD = {
    "a word": ({"Weight": {18: "heavy"}}, "/inputs/Weight/18"),
    "an infinite number": ({"Weight": {22: float("inf")}}, "/inputs/Weight/22"),
    "an answer without end": ({"Weight": {16: 1.79e308}, "Horsepower": {16: 1.79e308}}, "/inputs/Weight/16"),
}


@pytest.mark.parametrize(("cells", "pointer"), BAD.values(), ids=BAD)
def test_a_bad_row_is_named_by_its_place_in_the_whole_table(
    client: AppClient, cells: dict[str, Any], pointer: str
) -> None:
    response = ask(client, body_of(table(**cells), CSV), CSV)
    assert response.status_code == 422
    error = response.json()["errors"][0]
    assert error["pointer"] == pointer
    if "row" in error["message"]:
        assert f"row {int(pointer.rpartition('/')[2]) + 1}:" in error["message"]


def test_a_ragged_line_is_named_by_its_number_in_the_whole_body(client: AppClient) -> None:
    lines = body_of(table(), CSV).split(b"\n")
    lines[12] += b",1"
    response = ask(client, b"\n".join(lines), CSV)
    assert response.status_code == 422
    assert "line 13: 6 cells where the header has 5" in response.text
    lines[12] = b"\xff" + lines[12][1:-2]
    assert "line 13: byte 0xff is not UTF-8" in ask(client, b"\n".join(lines), CSV).text


def test_names_and_options_are_checked_before_any_row_is_computed(client: AppClient, model: FakeModel) -> None:
    for query, columns in (("samples=-1", table()), ("", {**table(), "Wings": [2] * ROWS}), ("include=draws", table())):
        response = ask(client, body_of(columns, CSV), CSV, query=query)
        assert response.status_code == 422, response.text
    assert model.passes == 0
    cut = body_of(table(), ARROW)[:-200]
    assert "not a whole Arrow stream" in ask(client, cut, ARROW).text


def test_a_compressed_body_is_taken_in_blocks(client: AppClient, model: FakeModel) -> None:
    body = body_of(table(), CSV)
    plain, packed = ask(client, body, CSV), ask(client, gzip.compress(body), CSV, **{"content-encoding": "gzip"})
    assert packed.content == plain.content
    assert model.passes == 2 * -(-ROWS // BLOCK)
    broken = ask(client, gzip.compress(body)[:-4], CSV, **{"content-encoding": "gzip"})
    assert "gzip data in the body are cut" in broken.text


def test_a_table_is_admitted_by_the_cost_of_all_its_rows(client: AppClient, model: FakeModel) -> None:
    response = client.post("/predict?samples=4096", content=body_of(table(60), CSV), kind=CSV)
    assert response.status_code == 413
    assert "60 rows cost 245760 row-draws" in response.text
    assert model.passes == 0


def test_a_deadline_between_two_blocks_is_an_error_not_a_short_answer(client: AppClient, model: FakeModel) -> None:
    held = threading.Event()
    # Time enough for the two blocks before on a busy machine, too.
    model.before = lambda: held.wait(2.2) if model.passes == 3 else None  # type: ignore[assignment]
    response = ask(client, body_of(table(), CSV), CSV, query="timeout=2")
    assert response.status_code == 504
    assert "10 of 23 rows were computed" in response.text
    wait_until(lambda: client.state["parts"].scheduler.admission.pending == 0)


def test_a_client_that_leaves_is_noticed_between_quick_blocks() -> None:
    body = body_of(table(300), CSV)
    with served() as service:
        service.model.before = lambda: time.sleep(0.02)
        head = f"POST /predict HTTP/1.1\r\nHost: [::1]\r\nContent-Type: text/csv\r\nContent-Length: {len(body)}\r\n\r\n"
        with service.wire() as wire:
            wire.send(head.encode(), body)
            wait_until(lambda: service.model.passes > 2)
        wait_until(lambda: service.metric("murho_pending_requests") == 0)
        assert service.model.passes < 60
