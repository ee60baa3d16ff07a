"""A table of tens of megabytes: the right answer, little memory, and nobody waits for it."""

from __future__ import annotations

import io
import threading
import time
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.requests import records
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.e2e.support import serve

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior

ARROW, CSV = "application/vnd.apache.arrow.stream", "text/csv"
ROWS = 600_000
PARTS = 20
MOST_MEMORY = 160 * 2**20
"""Bytes beyond the idle service. Taken as a whole, these tables take 400 MiB and more."""


def body_of(table: pa.Table, media_type: str) -> bytes:
    sink = io.BytesIO()
    if media_type == CSV:
        pa.csv.write_csv(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("media_type", [ARROW, CSV])
def test_a_large_table_is_answered_rightly_in_little_memory(
    media_type: str, trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    few = records(posterior.schema, ROWS // PARTS)
    part = pa.table(few)
    body = body_of(pa.concat_tables([part] * PARTS).combine_chunks(), media_type)
    assert len(body) > 16 * 2**20
    exact = posterior.predict(columns_from_table(pa.table(few), posterior.schema), PredictOptions(samples=16))
    waits: list[float] = []
    sizes: list[int] = []
    done = threading.Event()
    with serve(trained.parents[1], tmp_path / "log", request_timeout="300") as service:
        service.wait_for_line("(Ready: )")

        def watch() -> None:
            with httpx.Client(base_url=service.address) as client:
                while not done.wait(0.02):
                    begin = time.monotonic()
                    assert client.get("/healthz").status_code == 200
                    waits.append(time.monotonic() - begin)
                    sizes.append(service.memory())

        service.client.post(
            "/predict?samples=16", content=body_of(part.slice(0, 100), CSV), headers={"content-type": CSV}
        )
        before = service.memory()
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            headers = {"content-type": media_type, "accept": ARROW, "accept-encoding": "identity"}
            response = service.client.post("/predict?samples=16", content=body, headers=headers, timeout=300.0)
        finally:
            done.set()
            watching.join()
    assert response.status_code == 200, response.text[:500]
    answer = pa.ipc.open_stream(response.content).read_all()
    assert answer.num_rows == ROWS
    assert exact.std is not None
    for name, right in (("mean", exact.mean), ("std", exact.std)):
        given = answer.column(name).to_numpy().reshape(PARTS, -1)
        assert (np.abs(given - right) <= 1e-5 * np.maximum(np.abs(right), exact.std)).all()
    assert waits
    assert max(sizes) - before < MOST_MEMORY
