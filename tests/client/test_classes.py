"""The client and a classifier behind the real service, in one process."""

from __future__ import annotations

import asyncio
import csv
import json
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pyarrow.parquet as pq
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
        served.wait_until_loaded()
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


def test_a_prediction_has_classes_probabilities_and_sets(murho: Client) -> None:
    (model,) = murho.models()
    assert (model.task, model.classes, model.unit) == ("classification", CLASSES, None)
    found = murho.predict(ROWS, coverage=0.8, include=["draws", "mc_error"])
    assert (found.classes, found.coverage, found.target) == (CLASSES, 0.8, "Body")
    assert found.probabilities is not None
    assert found.prediction is not None
    assert found.prediction_set is not None
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    assert found.prediction.tolist() == [CLASSES[index] for index in found.probabilities.argmax(axis=1)]
    assert all(name in members for name, members in zip(found.prediction, found.prediction_set, strict=True))
    assert found.draws is not None
    assert found.draws.shape == (3, 256, 3)
    assert found.mc_error is not None
    assert found.mc_error["probabilities"].shape == (3, 3)
    assert len(found.request_ids) == 1
    assert found.request_ids[0]
    assert repr(found).startswith("Body: 3 rows")
    assert "<svg" in found._repr_html_()


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


@pytest.mark.parametrize(("samples", "destination"), [(0, "out.csv"), (4, "out.csv"), (4, "out.parquet")])
def test_a_file_is_written_in_the_columns_of_murho_predict(
    murho: Client, tmp_path: Path, samples: int, destination: str
) -> None:
    lines = [",".join(ROW), *(",".join(map(str, ROW.values())) for _ in range(3))]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    assert murho.predict_file(tmp_path / "in.csv", tmp_path / destination, samples=samples) == 3
    names = ["prediction", *(f"p_{name}" for name in CLASSES), "entropy", "epistemic_entropy", "prediction_set"]
    if destination == "out.parquet":
        table = pq.read_table(tmp_path / destination)
        assert table.column_names == names
        assert set(table.column("prediction_set").to_pylist()[0]) <= set(CLASSES)
        return
    with (tmp_path / destination).open(newline="") as file:
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
