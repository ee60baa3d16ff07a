"""The stock client of the Open Inference Protocol, `tritonclient[http]`, in all its forms, against a real socket."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.service.protocols.support import NUMBERS
from tests.service.support import ROW, FakeModel
from tests.service.wire import Served, served

COMPRESSIONS = (None, "gzip", "deflate")
ROWS = 40
COLUMNS: dict[str, NDArray[Any]] = {
    "Weight": np.linspace(1500, 4500, ROWS, dtype=np.float32),
    "Horsepower": np.where(np.arange(ROWS) % 7 == 0, np.nan, np.arange(ROWS) + 60.0),
    "Automatic": np.arange(ROWS) % 2 == 0,
    "Year": np.array([b"1975-06-01", b"", b"1979-01-01T12:00:00Z", b"1970-01-01"] * (ROWS // 4), dtype=object),
    "Origin/plant": np.array(["USA", "Europe"] * (ROWS // 2), dtype=object),
}
PARAMETERS = {"samples": 8, "seed": 5, "percentiles": "10,90"}


def column_inputs(*, binary: bool = True, column: bool = False) -> list[Any]:
    inputs = []
    for name, values in COLUMNS.items():
        shaped = values[:, None] if column else values
        made = triton.InferInput(name, list(shaped.shape), np_to_triton_dtype(shaped.dtype))
        inputs.append(made.set_data_from_numpy(shaped, binary_data=binary))
    return inputs


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    found = FakeModel("numbers", schema=NUMBERS), ("boats", "4", "wrong hash")
    with served(*found, watch_seconds=0, max_pending_cost=20_000, log_level="warning") as service:
        yield service


@pytest.fixture
def client(service: Served) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{service.port}", concurrency=4) as client:
        yield client


@pytest.fixture(scope="module")
def expected(service: Served) -> dict[str, Any]:
    """Return the answer of POST /predict to the same rows."""
    texts = {name: [text.decode() or None for text in COLUMNS[name]] for name in ("Year",)}
    power = [None if np.isnan(value) else float(value) for value in COLUMNS["Horsepower"]]
    rest = {name: COLUMNS[name].tolist() for name in ("Weight", "Automatic", "Origin/plant")}
    request = {"inputs": {**rest, **texts, "Horsepower": power}, "samples": 8, "seed": 5, "percentiles": [10, 90]}
    answer = httpx.post(f"http://127.0.0.1:{service.port}/models/cars/predict", json=request)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def check(result: Any, expected: dict[str, Any]) -> None:
    """Check that an answer is that of POST /predict, to the last bit."""
    for name in ("mean", "std", "epistemic_std", "aleatoric_std"):
        values = result.as_numpy(name)
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, expected[name])
    np.testing.assert_array_equal(result.as_numpy("percentiles"), expected["percentiles"]["values"])


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("binary", [True, False])
def test_every_form_of_a_request_gets_the_answer_of_predict(
    client: Any, expected: dict[str, Any], binary: bool, compression: str | None
) -> None:
    for column in (False, True):
        result = client.infer(
            "cars",
            column_inputs(binary=binary, column=column),
            model_version="1" if column else "",
            request_id="id of mine",
            request_compression_algorithm=compression,
            response_compression_algorithm=compression,
            parameters=PARAMETERS,
        )
        check(result, expected)
        assert result.get_response()["id"] == "id of mine"
        assert result.get_response()["parameters"]["percentiles"] == "10,90"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_outputs_are_bytes_or_json_as_asked(client: Any, expected: dict[str, Any], compression: str | None) -> None:
    outputs = [
        triton.InferRequestedOutput("percentiles", binary_data=False),
        triton.InferRequestedOutput("mean", binary_data=True),
        triton.InferRequestedOutput("draws"),
    ]
    result = client.infer(
        "cars",
        column_inputs(),
        outputs=outputs,
        parameters=PARAMETERS,
        response_compression_algorithm=compression,
    )
    assert [output["name"] for output in result.get_response()["outputs"]] == ["percentiles", "mean", "draws"]
    assert "data" in result.get_output("percentiles")
    assert result.get_output("mean")["parameters"] == {"binary_data_size": 8 * ROWS}
    np.testing.assert_array_equal(result.as_numpy("percentiles"), expected["percentiles"]["values"])
    np.testing.assert_array_equal(result.as_numpy("mean"), expected["mean"])
    assert result.as_numpy("draws").shape == (ROWS, 8)
    assert result.as_numpy("std") is None


def test_the_asyncio_client_does_all_of_it(service: Served, expected: dict[str, Any]) -> None:
    async def ask() -> None:
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{service.port}") as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("cars", "1")
            assert not await client.is_model_ready("trucks")
            assert (await client.get_server_metadata())["name"] == "murho"
            assert (await client.get_model_metadata("numbers"))["inputs"][0]["name"] == "x"
            for compression in COMPRESSIONS:
                for binary in (True, False):
                    result = await client.infer(
                        "cars",
                        column_inputs(binary=binary),
                        request_compression_algorithm=compression,
                        response_compression_algorithm=compression,
                        parameters=PARAMETERS,
                    )
                    check(result, expected)
            many = [client.infer("cars", column_inputs(), parameters=PARAMETERS) for _ in range(20)]
            for result in await asyncio.gather(*many):
                check(result, expected)
            assert (await client.get_inference_statistics("cars"))["model_stats"][0]["inference_count"] >= 20 * ROWS
            assert {item["name"] for item in await client.get_model_repository_index()} == {"cars", "numbers", "boats"}
            await client.unload_model("numbers")
            await client.load_model("numbers")
            with pytest.raises(InferenceServerException, match="There is no model 'trucks'"):
                await client.infer("trucks", column_inputs())

    asyncio.run(ask())


def test_a_full_queue_a_wrong_key_and_draining_are_read_too() -> None:
    key = "k" * 40
    stored = f"web:sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    with (
        served(api_keys=(stored,), max_pending=1, log_level="warning") as service,
        triton.InferenceServerClient(f"127.0.0.1:{service.port}", concurrency=2) as client,
        ThreadPoolExecutor() as pool,
    ):
        own = {"X-API-Key": key}
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="needs an API key"):
            client.infer("cars", column_inputs())
        with pytest.raises(InferenceServerException, match="may predict, but not load"):
            client.unload_model("cars", headers=own)
        hold, held = threading.Event(), threading.Event()

        def wait() -> None:
            held.set()
            hold.wait(20)

        service.model.before = wait
        url = f"http://127.0.0.1:{service.port}/predict"
        first = pool.submit(httpx.post, url, json={"inputs": [ROW]}, headers=own)
        assert held.wait(20)
        with pytest.raises(InferenceServerException, match=r"\[429\]"):
            client.infer("cars", column_inputs(), headers=own)
        service.lifecycle.draining = True
        assert not client.is_server_ready()
        service.lifecycle.closing = True
        with pytest.raises(InferenceServerException, match="shutting down"):
            client.infer("cars", column_inputs(), headers=own)
        hold.set()
        assert first.result(20).status_code == 200
