"""A bare FastAPI route to compare with: ``bare_server --port P --model DIR --answer FILE``.

It checks the body with a pydantic model of the same shape as Murho's requests, rows with the features of a checkpoint
and the options, and answers the content of the file. It runs on the same uvicorn, uvloop and httptools.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

from benchmarks.requests import schema_of
from murho.model.tables.schema import FeatureKind, Schema

TYPES: dict[FeatureKind, Any] = {
    FeatureKind.NUMERIC: float | None,
    FeatureKind.BOOLEAN: bool | None,
    FeatureKind.CATEGORICAL: str | int | float | None,
    FeatureKind.DATE: str | None,
}


class Options(BaseModel):
    """The options of a request."""

    model_config = ConfigDict(extra="forbid")
    samples: int = Field(256, ge=0, le=4096)
    percentiles: list[float] = [5.0, 50.0, 95.0]
    seed: int | None = None
    noise: bool = True
    calibrated: bool = True
    thresholds: list[float] = []
    include: list[str] = []


def application(schema: Schema, answer: bytes) -> FastAPI:
    """Return the route."""
    fields: dict[str, Any] = {
        f"feature_{number}": (TYPES[feature.kind], Field(alias=feature.name))
        for number, feature in enumerate(schema.features)
    }
    row: Any = create_model("Row", __config__=ConfigDict(extra="forbid"), **fields)
    request: Any = create_model("Request", __base__=Options, inputs=(list[row], Field(min_length=1)))
    app = FastAPI()

    async def predict(body: Any) -> Response:  # noqa: ARG001 - checked, not used
        return Response(answer, media_type="application/json")

    predict.__annotations__["body"] = request
    app.post("/predict")(predict)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True, help="directory of a checkpoint's version")
    parser.add_argument("--answer", type=Path, required=True)
    given = parser.parse_args()
    app = application(schema_of(given.model), given.answer.read_bytes())
    uvicorn.run(app, port=given.port, loop="uvloop", http="httptools", access_log=False, log_level="warning", ws="none")
