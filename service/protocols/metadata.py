"""What the protocol tells of the server and of a model: names, datatypes and shapes of its inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.service.protocols.features import (
    FEATURE_DATATYPES,
    MATRIX,
    MATRIX_DATATYPE,
    takes_matrix,
)
from murho.service.protocols.outputs import outputs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.jobs import ModelLike

__all__ = ["EXTENSIONS", "PLATFORM", "model_configuration", "model_metadata", "server_metadata"]

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics")
PLATFORM = "murho_safetensors"
CONFIGURATION_TYPES = {"BYTES": "TYPE_STRING"}


def server_metadata(version: str) -> dict[str, Any]:
    """Returns the metadata of the server."""
    return {"name": "murho", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ModelLike, versions: Sequence[str]) -> dict[str, Any]:
    """Returns the metadata of a model.

    Args:
        model: The version.
        versions: All served versions of its name.
    """
    target = model.schema.target
    properties = {
        "target": target.name,
        "features": orjson.dumps([feature.name for feature in model.schema.features]).decode(),
        "outputs_on_request": ", ".join(output.name for output in outputs_of(model) if output.on_request),
    }
    if target.classes is not None:
        properties["classes"] = orjson.dumps(target.classes).decode()
    if target.unit is not None:
        properties["target_unit"] = target.unit
    return {
        "name": model.name,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": _inputs(model),
        "outputs": _outputs(model),
        "properties": properties,
    }


def model_configuration(model: ModelLike) -> dict[str, Any]:
    """Returns the configuration of a model as Triton's extension has it; the first dimension is the rows'."""
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": "murho",
        "max_batch_size": 0,
        "input": [_configured(tensor) for tensor in _inputs(model)],
        "output": [_configured(tensor) for tensor in _outputs(model)],
    }


def _inputs(model: ModelLike) -> list[dict[str, Any]]:
    features = model.schema.features
    if takes_matrix(model.schema):
        return [{"name": MATRIX, "datatype": MATRIX_DATATYPE, "shape": [-1, len(features)]}]
    return [{"name": feature.name, "datatype": FEATURE_DATATYPES[feature.kind], "shape": [-1]} for feature in features]


def _outputs(model: ModelLike) -> list[dict[str, Any]]:
    """Returns the outputs that every request can have."""
    return [
        {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        for output in outputs_of(model)
        if not output.on_request
    ]


def _configured(tensor: dict[str, Any]) -> dict[str, Any]:
    datatype = tensor["datatype"]
    return {
        "name": tensor["name"],
        "data_type": CONFIGURATION_TYPES.get(datatype, f"TYPE_{datatype}"),
        "dims": tensor["shape"],
    }
