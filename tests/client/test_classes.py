"""The client and a classifier behind the real service, in one process."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from murho_client import AsyncClient, Client, InvalidInput, Prediction

from murho.service.settings import Settings
from tests.service.classifiers import CLASSES, Classifier
from tests.service.support import ROW, AppClient, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = {name: [cell] * 3 for name, cell in ROW.items()} | {"Weight": [1500.0, 3000.0, 4500.0]}
MANY = {name: [cell] * 2500 for name, cell in ROW.items()} | {"Weight": np.linspace(1000, 5000, 2500)}
ARRAYS = ("probabilities", "epistemic_std", "entropy", "epistemic_entropy", "percentiles", "draws")


@pytest.fixture(scope="module")
def service() -> Iterator[AppClient]:
    with make_client(Classifier()) as client:
        client.wait_until_loaded()
        yield client


class Wire:
    """Hands the requests of a client to a service, and keeps what went over."""

    def __init__(self, service: AppClient) -> None:
        self.service = service
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.raw_path.decode()
        headers = {**request.headers, "accept-encoding": "identity"}
        reply = self.service.request(request.method, path, content=request.content, headers=headers)
        return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)

    async def respond(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.to_thread(self, request)

    def client(self, **options: Any) -> Client:
        return Client("http://murho.test", transport=httpx.MockTransport(self), **options)


def require_same(one: Prediction, other: Prediction) -> None:
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5, atol=1e-7)
    assert one.mc_error is not None
    assert other.mc_error is not None
    np.testing.assert_allclose(one.mc_error["probabilities"], other.mc_error["probabilities"], rtol=1e-5, atol=1e-7)
    assert one.prediction_set == other.prediction_set
    assert one.to_pandas()["prediction"].tolist() == other.to_pandas()["prediction"].tolist()
    assert (one.classes, one.coverage, one.levels) == (other.classes, other.coverage, other.levels)


def test_the_model_has_its_task_and_classes(service: AppClient) -> None:
    with Wire(service).client() as client:
        (model,) = client.models()
        assert (model.task, model.classes, model.unit) == ("classification", CLASSES, None)


def test_a_prediction_has_classes_probabilities_and_sets(service: AppClient) -> None:
    with Wire(service).client() as client:
        found = client.predict(ROWS, coverage=0.8, include=["draws", "mc_error"])
    assert (found.classes, found.coverage, found.target) == (CLASSES, 0.8, "Body")
    assert found.probabilities is not None
    assert found.prediction is not None
    assert found.prediction_set is not None
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    assert found.prediction.tolist() == [CLASSES[index] for index in found.probabilities.argmax(axis=1)]
    assert all(name in members for name, members in zip(found.prediction, found.prediction_set, strict=True))
    assert found.draws is not None
    assert found.draws.shape == (3, 256, 3)
    assert repr(found).startswith("Body: 3 rows")
    assert "<svg" in found._repr_html_()


def test_many_rows_go_as_arrow_and_are_answered_as_those_of_json(
    service: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(service)
    options: dict[str, Any] = {"samples": 4, "include": ["draws", "mc_error"], "percentiles": [2.5, 50, 95]}
    with wire.client() as client:
        by_arrow = client.predict(MANY, **options)
    kinds = {request.headers["content-type"] for request in wire.requests if request.method == "POST"}
    assert kinds == {"application/vnd.apache.arrow.stream"}
    monkeypatch.setattr("murho_client._core.is_installed", lambda: False)
    with Wire(service).client() as client:
        by_json = client.predict(MANY, **options)
    require_same(by_arrow, by_json)


def test_arrow_without_draws_is_as_json(service: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with Wire(service).client() as client:
        by_arrow = client.predict(MANY, samples=0, include=["draws"])
        by_json = client.predict({name: column[:3] for name, column in MANY.items()}, samples=0, include=["draws"])
    assert by_arrow.entropy is None
    assert by_arrow.prediction_set is None
    assert by_arrow.draws is not None
    assert by_json.draws is not None
    assert by_arrow.draws.shape[1:] == by_json.draws.shape[1:]
    np.testing.assert_array_equal(by_arrow[:3].probabilities, by_json.probabilities)


def test_requests_with_draws_are_small_enough_for_many_classes(
    service: AppClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("murho_client._request_sizes.DRAWS_PER_REQUEST", 3 * 4 * 1000)
    wire = Wire(service)
    with wire.client() as client:
        found = client.predict(MANY, samples=4, include=["draws"])
    posts = [request for request in wire.requests if request.method == "POST"]
    assert len(posts) == 3
    assert {request.url.path for request in posts} == {"/models/cars/versions/1/predict"}
    assert found.draws is not None
    assert found.draws.shape == (2500, 4, 3)


def test_asyncio_gives_the_same(service: AppClient) -> None:
    options: dict[str, Any] = {"include": ["draws", "mc_error"], "samples": 8}

    async def run() -> Prediction:
        transport = httpx.MockTransport(Wire(service).respond)
        async with AsyncClient("http://murho.test", transport=transport) as client:
            return await client.predict(ROWS, **options)

    with Wire(service).client() as client:
        require_same(client.predict(ROWS, **options), asyncio.run(run()))


@pytest.mark.parametrize(
    ("options", "where"),
    [({"noise": False}, "noise"), ({"thresholds": [1]}, "thresholds"), ({"coverage": 1.5}, "coverage")],
)
def test_what_makes_no_sense_is_refused(service: AppClient, options: dict[str, Any], where: str) -> None:
    with Wire(service).client() as client, pytest.raises(InvalidInput) as caught:
        client.predict(ROWS, **options)
    assert [problem.feature for problem in caught.value.problems] == [where]


@pytest.mark.parametrize("samples", [0, 4])
def test_a_file_is_written_in_the_columns_of_murho_predict(service: AppClient, tmp_path: Path, samples: int) -> None:
    lines = [",".join(ROW), *(",".join(map(str, ROW.values())) for _ in range(3))]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    with Wire(service).client() as client:
        assert client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", samples=samples) == 3
    head, first = (tmp_path / "out.csv").read_text().splitlines()[:2]
    assert head.startswith("prediction,p_5_doors,")
    assert head.endswith(",entropy,epistemic_entropy,prediction_set")
    assert first.endswith(",,,") == (samples == 0)
    if samples:
        assert json.loads(first[first.index('"[') + 1 : -1].replace('""', '"'))


def test_the_settings_have_the_limit_that_requests_keep_to() -> None:
    from murho_client import _request_sizes

    assert Settings().max_draw_values >= _request_sizes.DRAWS_PER_REQUEST
