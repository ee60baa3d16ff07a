"""Tests of `service.tables.table_codec`: what all formats of tables do alike, with tables that take several steps."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from murho.service.tables import arrow_tables, csv_tables
from murho.service.tables.arrow_tables import FACTS
from tests.service.bodies import ARROW, CSV, arrow, csv, read_table
from tests.service.support import ROW, AppClient, FakeModel, make_client
from tests.service.wire import served, wait_until

ROWS = 23
PIECE = 5


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have cells converted a few rows at a time."""
    monkeypatch.setattr(arrow_tables, "PIECE_ROWS", PIECE)
    monkeypatch.setattr(csv_tables, "TEXT_BYTES", 400)


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
        service = client.state["service"]
        scheduler = service.engine
        assert (scheduler.admission.pending, service.request_budget.taken, service.answer_budget.taken) == (0, 0, 0)
        assert scheduler.admission.pending_cost == pytest.approx(0.0)


QUERIES = ["", "samples=0", "percentiles=1,99&thresholds=20,30&include=mc_error", "percentiles="]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("accept", [ARROW, CSV])
@pytest.mark.parametrize("media_type", [ARROW, CSV])
def test_an_answer_does_not_depend_on_what_is_converted_at_a_time(
    client: AppClient, media_type: str, accept: str, query: str, request: pytest.FixtureRequest
) -> None:
    body = body_of(table(Weight={2: 9000.0, 17: 9001.0}), media_type)
    url = f"/predict?{query or 'samples=8'}"
    headers = {"content-type": media_type, "accept": accept, "accept-encoding": "identity"}
    whole = client.post(url, content=body, headers=headers)
    request.getfixturevalue("small_steps")
    again = client.post(url, content=body, headers=headers)
    assert read_table(again).equals(read_table(whole), check_metadata=True)
    assert read_table(whole).num_rows == ROWS
    if accept == ARROW:
        facts = json.loads(read_table(whole).schema.metadata[FACTS])
        assert [warning["pointer"] for warning in facts["warnings"]] == ["/inputs/Weight/2", "/inputs/Weight/17"]
    assert int(whole.headers["content-length"]) == len(whole.content)
    assert whole.headers["murho-extrapolation"] == "2"
    for name in ("content-type", "vary", "murho-extrapolation", "murho-warnings", "murho-samples", "murho-model"):
        assert again.headers[name] == whole.headers[name]


BAD = {
    "a word": ({"Weight": {18: "heavy"}}, "/inputs/Weight/18"),
    "an infinite number": ({"Weight": {22: float("inf")}}, "/inputs/Weight/22"),
    "an answer without end": ({"Weight": {16: 1.79e308}, "Horsepower": {16: 1.79e308}}, "/inputs/Weight/16"),
}


@pytest.mark.usefixtures("small_steps")
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


@pytest.mark.usefixtures("small_steps")
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


def test_a_table_is_admitted_by_the_cost_of_all_its_rows(client: AppClient, model: FakeModel) -> None:
    response = client.post("/predict?samples=4096", content=body_of(table(60), CSV), kind=CSV)
    assert response.status_code == 413
    assert "60 rows cost 245760 row-draws" in response.text
    assert model.passes == 0


def test_a_deadline_between_two_passes_is_an_error_not_a_short_answer(client: AppClient, model: FakeModel) -> None:
    held, model.rows_of_pass = threading.Event(), PIECE
    # Time enough for the two passes before on a busy machine, too.
    model.before = lambda: held.wait(2.2) if model.passes == 3 else None  # type: ignore[assignment]
    response = client.post("/predict?samples=0&timeout=2", content=body_of(table(), CSV), kind=CSV)
    assert response.status_code == 504
    assert "10 of 23 rows were computed" in response.text
    wait_until(lambda: client.state["service"].engine.admission.pending == 0)


def test_a_client_that_leaves_is_noticed_between_quick_passes() -> None:
    body = body_of(table(300), CSV)
    with served() as service:
        service.model.rows_of_pass = PIECE
        service.model.before = lambda: time.sleep(0.02)
        head = "POST /predict?samples=0 HTTP/1.1\r\nHost: [::1]\r\nContent-Type: text/csv\r\n"
        with service.wire() as wire:
            wire.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body)
            wait_until(lambda: service.model.passes > 2)
        wait_until(lambda: service.metric("murho_pending_requests") == 0)
        assert service.model.passes < 60


ANSWERS = """
import io, itertools, sys
import numpy as np
import pyarrow as pa
from murho.service.predict.routes import CODECS, PARQUET
from murho.service.predict.answers import Result, Terms
from murho.service.settings import Settings
from tests.service.classifiers import Classifier
from tests.service.support import ROW, FakeModel

def bodies():
    values = {name: [value] for name, value in ROW.items()}
    yield "text/csv", (",".join(ROW) + "\\n" + ",".join(map(str, ROW.values()))).encode()
    from murho.model.tables.columns import number_array, text_array
    table = pa.table({name: text_array([str(value)]) for name, value in ROW.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    yield "application/vnd.apache.arrow.stream", sink.getvalue()
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    yield "application/vnd.apache.parquet", sink.getvalue()

codecs = {codec.media_type: codec for codec in CODECS}
for model, (kind, body) in itertools.product((FakeModel(), Classifier()), bodies()):
    for query in ({}, {"samples": "0"}, {"include": "draws", "samples": "8"}):
        asked = codecs[kind].decode(body, Terms(query, model.schema, Settings()))
        prediction = model.predict(asked.inputs.columns, asked.options)
        answered = Result(model, asked, prediction, [], 0)
        for codec in CODECS:
            if not (asked.options.draws and codec.media_type == "text/csv"):
                codec.encode(answered)
PARQUET.close()
assert "pandas" not in sys.modules
"""


def test_tables_are_read_and_written_without_pandas() -> None:
    # pyarrow imports it where it is installed, for seconds, in which nobody is answered.
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
