"""What the protocol tells of the server and its models: metadata, configurations, the repository, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.model.tables.schema import FeatureKind
from murho.service.protocols.documents import Strict
from murho.service.protocols.infer_answers import BYTES, outputs_of
from murho.service.protocols.infer_requests import MATRIX, takes_matrix
from murho.service.telemetry.metrics import Sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.jobs import ModelLike
    from murho.service.models.registry import Snapshot
    from murho.service.telemetry.metrics import ModelStatistics

__all__ = [
    "IndexRequest",
    "LoadRequest",
    "UnloadRequest",
    "model_configuration",
    "model_metadata",
    "repository_index",
    "server_metadata",
    "statistics_document",
]

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics")
PLATFORM = "murho_safetensors"
DATATYPES = {FeatureKind.NUMERIC: "FP64", FeatureKind.BOOLEAN: "BOOL"}
"""The datatype that metadata give for a feature, else BYTES; others are read too."""
MILLISECONDS, NANOSECONDS = 1e3, 1e9


class IndexRequest(Strict):
    """A request for the index; `ready` leaves out what isn't served."""

    ready: bool = False


class LoadParameters(Strict):
    """The version to load; without it what the policy of the service says."""

    version: str | None = None


class LoadRequest(Strict):
    """A request to load a model. Configurations and files can't be sent to this service."""

    parameters: LoadParameters | None = None


class UnloadParameters(Strict):
    """What the protocol has; no model depends on another one."""

    unload_dependents: Any = None


class UnloadRequest(Strict):
    """A request to unload a model."""

    parameters: UnloadParameters | None = None


def server_metadata(version: str) -> dict[str, Any]:
    """Returns the metadata of the server."""
    return {"name": "murho", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ModelLike, versions: Sequence[str]) -> dict[str, Any]:
    """Returns the metadata of a version, with all served versions of its name."""
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
    names = {"name": model.name, "versions": list(versions), "platform": PLATFORM}
    return {**names, "inputs": _inputs(model), "outputs": _outputs(model), "properties": properties}


def model_configuration(model: ModelLike) -> dict[str, Any]:
    """Returns the configuration of a model as Triton's extension has it; the first dimension is the rows'."""
    tensors = {
        kind: [
            {
                "name": tensor["name"],
                "data_type": "TYPE_STRING" if tensor["datatype"] == BYTES else f"TYPE_{tensor['datatype']}",
                "dims": tensor["shape"],
            }
            for tensor in listed
        ]
        for kind, listed in (("input", _inputs(model)), ("output", _outputs(model)))
    }
    return {"name": model.name, "platform": PLATFORM, "backend": "murho", "max_batch_size": 0, **tensors}


def _inputs(model: ModelLike) -> list[dict[str, Any]]:
    features = model.schema.features
    if takes_matrix(model.schema):
        return [{"name": MATRIX, "datatype": "FP64", "shape": [-1, len(features)]}]
    return [{"name": each.name, "datatype": DATATYPES.get(each.kind, BYTES), "shape": [-1]} for each in features]


def _outputs(model: ModelLike) -> list[dict[str, Any]]:
    """Returns the outputs that every request can have."""
    return [
        {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        for output in outputs_of(model)
        if not output.on_request
    ]


def repository_index(snapshot: Snapshot, *, ready: bool = False) -> list[dict[str, str]]:
    """Returns every version that is there with its state, and the reason why one isn't served.

    Args:
        snapshot: What is served.
        ready: Whether to list those alone that are served.
    """
    found = [(model.name, model.version, "READY", "") for model in snapshot.served]
    if not ready:
        found += [(each.name, each.version, "UNAVAILABLE", each.reason) for each in snapshot.refused if each.name]
        found += [
            (name, version, "UNAVAILABLE", "the service serves other versions of it")
            for name, versions in snapshot.not_served.items()
            for version in versions
        ]
        found += [(name, "", "UNAVAILABLE", "unloaded") for name in snapshot.unloaded]
        found.sort(key=lambda each: (each[0], int(each[1] or 0)))
    return [dict(zip(("name", "version", "state", "reason"), each, strict=True)) for each in found]


def statistics_document(models: Sequence[ModelLike], statistics: ModelStatistics) -> dict[str, Any]:
    """Returns what some versions have done since they were loaded, whatever the protocol they were asked by.

    Decoding and encoding aren't measured, and there is no cache: their counts are 0. `batch_size` is rounded up to a
    power of two.
    """
    return {"model_stats": [_statistics(model, statistics) for model in models]}


def _statistics(model: ModelLike, statistics: ModelStatistics) -> dict[str, Any]:
    totals, nothing = statistics.of(model), _sum(Sum())
    batches = sorted(totals.batches.copy().items())
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(MILLISECONDS * totals.last),
        "inference_count": totals.rows,
        "execution_count": sum(batch.count for _, batch in batches),
        "inference_stats": {
            "success": _sum(totals.success),
            "fail": _sum(totals.fail),
            "queue": _sum(totals.queue),
            "compute_infer": _sum(totals.compute),
            **dict.fromkeys(("compute_input", "compute_output", "cache_hit", "cache_miss"), nothing),
        },
        "response_stats": {},
        "batch_stats": [
            {"batch_size": size, "compute_input": nothing, "compute_infer": _sum(batch), "compute_output": nothing}
            for size, batch in batches
        ],
        "memory_usage": [],
    }


def _sum(total: Sum) -> dict[str, int]:
    return {"count": total.count, "ns": int(NANOSECONDS * total.seconds)}
