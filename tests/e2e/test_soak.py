"""Random requests of all shapes and formats for minutes: every answer is right, and the memory stays what it was.

``SOAK_MINUTES`` says for how many minutes; two without it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.requests import records, rows_of
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.e2e.support import serve
from tests.e2e.traffic import Ask, Traffic, asks, offline, wait_until
from tests.service.bodies import ARROW, CSV, JSON, NPY, PARQUET, WRITERS, read_table
from tests.service.support import ROW

MINUTES = float(os.environ.get("SOAK_MINUTES", "2"))
GROWTH = 1.05
"""The most that memory may be at the end, to what it was after a third of the time."""
FLOATING = 100 * 2**20
"""Bytes that come and go with the largest requests."""
LEFT = 300 * 2**20
"""The most bytes above those at the start that are left when the requests end."""
GROUPED_ROWS, DECIDED = 200, 20
"""Rows of a total, each a group of its own; and contexts of a request for decisions."""
TABLE_ROWS, TABLE_SAMPLES, TABLES_EVERY = 600, 1000, 10
"""Of the tables in all formats at once, whose answers have all draws; and after how many odd requests they come."""


def shapes(posterior: Posterior, count: int) -> list[Ask]:
    """Return requests of 1 to 3000 rows and 0 to 1024 draws, small ones mostly."""
    rng = np.random.default_rng(2)
    made = asks(posterior, count, bad=0.1, seed=2)
    for _ in range(count // 5):
        rows = [{**ROW, "Weight": 1000.0 + float(rng.uniform(0, 4000))} for _ in range(int(10 ** rng.uniform(0, 3.5)))]
        body = {"inputs": rows, "samples": int(rng.choice([16, 64, 1024 if len(rows) < 100 else 32]))}
        made.append(Ask(body, "/predict", offline(posterior, body)))
    return made


def odd_requests(address: str, number: int) -> None:
    """Return requests that fail, vanish, or ask for something else."""
    with httpx.Client(base_url=address, timeout=30.0) as client:
        assert client.post("/predict", content=b"[" * 1000).status_code == 422
        assert client.get(f"/nothing/{number}").status_code == 404
        assert client.get("/metrics").status_code == 200
        assert client.post("/predict", json={"inputs": [ROW], "seed": number}).status_code in {200, 429}
        with contextlib.suppress(httpx.TimeoutException):
            client.post("/predict", json={"inputs": [ROW] * 300}, timeout=0.01)


def send_requests(address: str, number: int) -> None:
    """Totals by group, decisions that are recorded, what came true of them, and the quality of all."""
    rng = np.random.default_rng(number)
    rows = [{**ROW, "Weight": float(weight)} for weight in rng.uniform(1500, 5000, GROUPED_ROWS)]
    actions = [{"id": name, "inputs": {"Horsepower": power}} for name, power in (("weak", 80.0), ("strong", 150.0))]
    contexts = [{name: row[name] for name in row if name != "Horsepower"} for row in rows[:DECIDED]]
    with httpx.Client(base_url=f"{address}/models/cars", timeout=60.0) as client:
        totals = client.post("/aggregate", json={"inputs": rows, "by": ["Weight"], "statistic": "mean"})
        assert totals.status_code == 429 or totals.json()["rows"] == [1] * GROUPED_ROWS, totals.text[:500]
        decided = client.post("/decide", json={"contexts": contexts, "actions": actions, "record": True})
        if decided.status_code != 429:
            ids = decided.json()["ids"]
            outcomes = [
                {"id": key, "value": float(value)} for key, value in zip(ids, rng.normal(20, 5, DECIDED), strict=True)
            ]
            told = client.post("/outcomes", json={"outcomes": outcomes})
            assert told.json() == {"accepted": DECIDED, "revised": 0, "unknown": []}, told.text[:500]
        quality = client.get("/quality", params={"by": "Origin/plant"})
        assert quality.status_code == 200, quality.text[:500]


def tables(posterior: Posterior) -> list[Callable[[str], None]]:
    """Return requests in all formats, to the service at an address; each checks its means and draws."""
    schema = posterior.schema
    columns = records(schema, TABLE_ROWS)
    table = pa.table(columns)
    exact = posterior.predict(columns_from_table(table, schema), PredictOptions(samples=TABLE_SAMPLES, draws=True))
    document = orjson.dumps(
        {"inputs": rows_of(columns), "samples": TABLE_SAMPLES, "include": ["draws"]}  # its options are in it
    )

    def ask(body: bytes, sent: str, accepted: str, coding: str, address: str) -> None:
        path = "/predict" if sent == JSON else f"/predict?samples={TABLE_SAMPLES}&include=draws"
        headers = {"content-type": sent, "accept": accepted, "accept-encoding": coding}
        response = httpx.post(f"{address}{path}", content=body, headers=headers, timeout=300.0)
        if response.status_code != 429:
            assert response.status_code == 200, response.text[:500]
            mean, draws = read_answer(accepted, response)
            np.testing.assert_allclose(mean, exact.mean, rtol=1e-4)
            np.testing.assert_allclose(np.ravel(draws), np.ravel(exact.draws), rtol=1e-4)

    bodies = {**{kind: write(table) for kind, write in WRITERS.items()}, JSON: document}
    pairs = [(ARROW, ARROW), (PARQUET, PARQUET), (CSV, NPY), (JSON, JSON), (JSON, ARROW)]
    codings = itertools.cycle(["identity", "gzip"])
    return [partial(ask, bodies[sent], sent, accepted, next(codings)) for sent, accepted in pairs]


def read_answer(media_type: str, response: httpx.Response) -> tuple[Any, Any]:
    """Return the means and the draws of an answer."""
    content = response.content
    if media_type == JSON:
        answer = orjson.loads(content)
        return answer["mean"], answer["draws"]
    if media_type == NPY:
        array = np.load(io.BytesIO(content))
        return array["mean"], array["draws"]
    table = read_table(response)
    return table["mean"].to_numpy(), table["draws"].combine_chunks().flatten().to_numpy()


@pytest.mark.slow
@pytest.mark.timeout(int(60 * MINUTES) + 300)
def test_random_shapes_for_minutes_leave_the_memory_as_it_is(
    trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    seconds = 60.0 * MINUTES
    # Every seed's draws are kept up to a limit: a small one is reached while the service warms up.
    formats = tables(posterior)
    own: dict[str, Any] = {"draws_bytes": str(16 * 2**20), "request_timeout": "300"}
    own |= {"store": str(tmp_path / "store"), "record_inputs": "true"}
    with serve(trained.parents[1], tmp_path / "log", fresh=True, **own) as service:
        start = service.memory()
        read: list[int] = []
        begin = time.monotonic()
        with Traffic(service.port, shapes(posterior, 300), threads=6) as traffic, ThreadPoolExecutor() as pool:
            while time.monotonic() < begin + seconds:
                odd_requests(service.address, len(read))
                send_requests(service.address, len(read))
                if len(read) % TABLES_EVERY == 0:
                    list(pool.map(lambda ask: ask(service.address), formats))
                read.append(service.memory())
                time.sleep(0.2)
        wait_until(lambda: service.memory() <= start + LEFT)
        assert service.process.poll() is None
    traffic.require("refused")
    third = len(read) // 3
    after_warming_up, at_the_end = np.median(read[third : third + third // 2]), np.median(read[-third // 2 :])
    assert at_the_end < GROWTH * after_warming_up + FLOATING, (after_warming_up, at_the_end)
