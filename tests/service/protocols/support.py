"""Requests for inference as bytes, and as the stock client makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

from tests.service.support import ROW, SCHEMA, AppClient

NUMBERS = replace(SCHEMA, features=SCHEMA.features[:3])
"""A schema of numbers and booleans alone."""

LENGTH = "Inference-Header-Content-Length"


def tensor(name: str, data: list[Any], datatype: str = "FP64", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data, **more}


def row_tensors(rows: int = 1, **changes: Any) -> list[dict[str, Any]]:
    """One tensor a feature, of equal rows; changes are by the name of the feature."""
    datatypes = {"Automatic": "BOOL", "Year": "BYTES", "Origin/plant": "BYTES"}
    made = {name: tensor(name, [cell] * rows, datatypes.get(name, "FP64")) for name, cell in ROW.items()}
    return [made[name] | changes.get(name, {}) for name in made]


def text_bytes(*texts: bytes) -> bytes:
    """Return a BYTES tensor."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def with_blobs(document: dict[str, Any], *blobs: bytes) -> dict[str, Any]:
    """Return the arguments of a POST whose body is JSON and then bytes."""
    text = orjson.dumps(document)
    return {"content": text + b"".join(blobs), "headers": {LENGTH: str(len(text))}}


def binary(name: str, values: NDArray[Any], datatype: str, shape: list[int] | None = None) -> dict[str, Any]:
    """Return the description of a binary input of numbers."""
    return {
        "name": name,
        "shape": list(values.shape) if shape is None else shape,
        "datatype": datatype,
        "parameters": {"binary_data_size": values.nbytes},
    }


def error_of(response: httpx.Response, status: int = 400) -> str:
    """Check that a response is an error of the protocol, and return its text."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    return str(document["error"])


def outputs(response: httpx.Response) -> dict[str, NDArray[Any]]:
    """Return the outputs of an answer, whether they are JSON or bytes."""
    assert response.status_code == 200, response.text
    length = response.headers.get(LENGTH)
    body = response.content
    document = orjson.loads(body if length is None else body[: int(length)])
    rest = b"" if length is None else body[int(length) :]
    found = {}
    for output in document["outputs"]:
        assert output["datatype"] == "FP64"
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            values = np.array(output["data"], np.float64)
        else:
            values, rest = np.frombuffer(rest[:size], np.float64), rest[size:]
        found[output["name"]] = values.reshape(output["shape"])
    assert rest == b""
    return found


def infer(client: AppClient, inputs: list[dict[str, Any]], model: str = "cars", **document: Any) -> httpx.Response:
    return client.post(f"/v2/models/{model}/infer", {"inputs": inputs, **document})
