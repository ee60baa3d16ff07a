"""The documents of the protocol as `/openapi.json` shows them. `requests` and `answers` read and write them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["InferRequest", "InferResponse", "InferenceError"]

Parameter = bool | int | float | str


class InputTensor(BaseModel):
    """One input: a feature, or all of them in the matrix `x`."""

    model_config = ConfigDict(extra="forbid")

    name: str
    shape: list[int] = Field(min_length=1, max_length=2, description="[rows], [rows, 1], or [rows, features] of x.")
    datatype: str = Field(description="BOOL, UINT8 … UINT64, INT8 … INT64, FP16, FP32, FP64 or BYTES.")
    parameters: dict[str, Parameter] | None = Field(None, description="binary_data_size: bytes behind the JSON.")
    data: list[Any] | None = Field(None, description="The elements, row-major, flat or nested; null is missing.")


class WantedOutput(BaseModel):
    """One output that the answer is to have."""

    model_config = ConfigDict(extra="forbid")

    name: str
    parameters: dict[str, Parameter] | None = Field(None, description="binary_data: whether it is sent as bytes.")


class InferRequest(BaseModel):
    """A request for inference."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, description="Comes back in the answer.")
    parameters: dict[str, Parameter] | None = Field(
        None,
        description="samples, seed, noise, calibrated; percentiles and thresholds as text such as '5,50,95'; timeout "
        "in microseconds; binary_data_output.",
    )
    inputs: list[InputTensor] = Field(min_length=1)
    outputs: list[WantedOutput] | None = Field(None, description="Without it, the outputs of the model's metadata.")


class OutputTensor(BaseModel):
    """One output."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Parameter] | None = Field(None, description="binary_data_size: bytes behind the JSON.")
    data: list[Any] | None = Field(None, description="The elements, row-major and flat.")


class InferResponse(BaseModel):
    """An answer."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Parameter]
    outputs: list[OutputTensor]


class InferenceError(BaseModel):
    """What is wrong."""

    error: str
