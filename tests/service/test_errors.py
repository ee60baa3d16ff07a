from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from murho.model.errors import Problem
from murho.service import errors
from murho.service.errors import BadInputError, problem_details
from tests.service.support import ROW, FakeModel, make_client


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ComputationError("NaN"), 500),
        (MemoryError(), 503),
        (pa.ArrowMemoryError("malloc of size 64 failed"), 503),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes"), 503),
        (RuntimeError("can't start new thread"), 503),
        (RuntimeError("secret"), 500),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    document = problem_details(error, "id").document()
    assert document["status"] == status
    assert document["title"]
    assert document["type"]


def test_the_detail_counts_problems_that_are_not_listed() -> None:
    listed = [Problem(f"/inputs/{row}", "no") for row in range(2)]
    assert "1000 validation errors" in problem_details(BadInputError(listed, 1000), "id").detail
    assert "first 2" in problem_details(BadInputError(listed, 1000), "id").detail
    assert "all are listed" in problem_details(BadInputError(listed), "id").detail


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "status", "message"),
    [
        ("GET", "/predict", "application/json", "", 405, "This path doesn't take this method; send POST."),
        ("POST", "/predictions", "application/json", "{}", 404, "There is nothing at this path; GET /docs lists"),
        (
            "POST",
            "/predict",
            "application/json",
            '{"input": []}',
            422,
            "There is no key 'input' here. Did you mean 'inputs'?",
        ),
        ("POST", "/predict", "application/json", '{"inputs": {"Weight": 3}}', 422, "put the object in a list, [{…}]."),
        (
            "POST",
            "/predict",
            "application/json",
            "Weight,Origin\n3,USA\n",
            422,
            "For CSV, send the header Content-Type",
        ),
        ("POST", "/predict", "text/csv", '{"inputs": []}', 422, "The body looks like JSON, not CSV: send the header"),
        (
            "POST",
            "/predict",
            "text/csv",
            "Weight,Colour\n3,red\n",
            422,
            "'Colour' is not a feature of this model; leave",
        ),
    ],
)
def test_a_mistake_is_told_what_to_send(
    method: str, path: str, kind: str, body: str, status: int, message: str
) -> None:
    with make_client(FakeModel()) as client:
        answer = client.request(method, path, content=body.encode(), headers={"content-type": kind})
    assert answer.status_code == status
    document = answer.json()
    said = [document["detail"], *(each["message"] for each in document.get("errors", []))]
    assert any(message in each for each in said), said


LONG = "x" * 30_000


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("predict", {"inputs": [{**ROW, "Origin/plant": LONG}]}),
        ("predict", {"inputs": [{**ROW, "Weight": LONG}]}),
        ("predict", {"inputs": [{**ROW, LONG: 1}]}),
        ("predict", {"inputs": [ROW], LONG: 1}),
        ("predict", {"inputs": [ROW], "ids": [LONG]}),
        ("aggregate", {"inputs": [ROW], "by": [LONG]}),
        ("aggregate", {"inputs": [ROW], "statistic": LONG}),
        ("aggregate", {"inputs": [ROW], "statistic": "mean", "groups": [LONG], "weights": [0]}),
        ("decide", {"contexts": [{}], "actions": [{"id": "a", "inputs": ROW}], "policy": LONG}),
        ("decide", {"contexts": [{}], "actions": [{"id": "a", "inputs": {**ROW, "Origin/plant": LONG}}]}),
        ("counterfactual", {"inputs": {**ROW, LONG: 1}, "goal": {}}),
        ("infer", {"inputs": [{"name": LONG, "shape": [1], "datatype": "FP64", "data": [1]}]}),
        ("infer", {"inputs": [], "outputs": [{"name": LONG}]}),
    ],
)
def test_no_message_repeats_a_long_text(path: str, document: dict[str, Any]) -> None:
    with make_client(FakeModel()) as client:
        place = f"/v2/models/cars/{path}" if path == "infer" else f"/models/cars/{path}"
        answer = client.post(place, json=document)
    assert answer.status_code in {200, 400, 422}, answer.text[:1000]
    assert len(answer.content) < 3000, answer.text[:1000]
