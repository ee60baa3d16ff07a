"""The client and a classifier behind the real service, in one process."""

from __future__ import annotations

import asyncio
import csv
import json
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest
from murho_client import Client, NotReady, Prediction

from murho.service.settings import Settings
from tests.client.stand_in import async_client, client
from tests.service.classifiers import CLASSES, Classifier
from tests.service.support import ROW, AppClient, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = {name: [cell] * 3 for name, cell in ROW.items()} | {"Weight": [1500.0, 3000.0, 4500.0]}
MANY = {name: [cell] * 2500 for name, cell in ROW.items()} | {"Weight": np.linspace(1000, 5000, 2500)}


@pytest.fixture(scope="module")
def service() -> Iterator[AppClient]:
    with make_client(Classifier()) as served:
        yield served


class Wire:
    """Hands the requests of a client to a service, and keeps what went over."""

    def __init__(self, service: AppClient) -> None:
        self.service = service
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        path = request.url.raw_path.decode()
        headers = {**request.headers, "accept-encoding": "identity"}
        reply = self.service.request(request.method, path, content=request.content, headers=headers)
        return httpx2.Response(reply.status_code, headers=dict(reply.headers), content=reply.content)


@pytest.fixture
def murho(service: AppClient) -> Client:
    return client(Wire(service))


def test_a_split_table_and_asyncio_give_the_same(
    service: AppClient, murho: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"samples": 4, "include": ["draws", "mc_error"], "percentiles": [2.5, 50, 95]}
    whole = murho.with_options(max_rows_per_request=5000).predict(MANY, **options)
    monkeypatch.setattr("murho_client._service.DRAWS_PER_REQUEST", 3 * 4 * 1000)
    wire = Wire(service)

    async def run() -> Prediction:
        async with async_client(wire) as shared:
            return await shared.predict(MANY, **options)

    split = asyncio.run(run())
    posts = [request.url.path for request in wire.requests if request.method == "POST"]
    assert posts == ["/models/cars/versions/1/predict"] * 3
    for name in ("probabilities", "epistemic_std", "entropy", "epistemic_entropy", "percentiles", "draws"):
        np.testing.assert_allclose(getattr(split, name), getattr(whole, name), rtol=1e-5, atol=1e-7)
    assert split.prediction_set == whole.prediction_set
    assert (split.classes, split.coverage, split.levels) == (whole.classes, whole.coverage, whole.levels)
    assert Settings().max_draw_values >= 1_000_000


def test_a_file_is_written_in_the_columns_of_murho_predict(murho: Client, tmp_path: Path) -> None:
    lines = [",".join(ROW), *(",".join(map(str, ROW.values())) for _ in range(3))]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    names = ["prediction", *(f"p_{name}" for name in CLASSES), "entropy", "epistemic_entropy", "prediction_set"]
    for samples in (0, 4):
        assert murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", samples=samples) == 3
        with (tmp_path / "out.csv").open(newline="") as file:
            first = next(csv.DictReader(file))
        assert list(first) == names
        assert set(json.loads(first["prediction_set"] or "[]")) <= set(CLASSES)
        assert (first["entropy"] == "") == (samples == 0)


def test_models_are_loaded_and_taken_out_of_service(murho: Client) -> None:
    told = murho.load("cars")
    assert (told["version"], told["refused"]) == ("1", [])
    assert murho.unload("cars")["unloaded"] == ["1"]
    with pytest.raises(NotReady, match="No model is loaded"):
        murho.with_options(retries=0).predict(ROWS, "cars")
    assert murho.load("cars", "1")["versions"] == ["1"]
    assert len(murho.predict(ROWS, "cars")) == 3
