"""`GET /models`: the served checkpoints, and the refused ones with the reason."""

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from murho.service.http.responses import JSONBytes
from murho.service.models.calibration_summary import calibration_summary
from murho.service.models.on_demand import at_hand
from murho.service.parts import PartsDependency
from murho.service.predict.formats import MEDIA_TYPES

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike
    from murho.service.models.registry import LoadedModel

__all__ = ["router"]

# Parts of `model.json` that are shown besides those that the contract names. Only the loader needs the others.
SHOWN_FACTS = (
    "metrics",
    "training",
    "architecture",
    "prior",
    "likelihood",
    "default_seed",
    "created",
    "murho",
)

router = APIRouter(tags=["models"])


@router.get("/models", summary="What is served, and what was refused and why")
async def list_models(parts: PartsDependency) -> JSONBytes:
    """Lists every model with its versions, and every checkpoint that can't be served with the reason.

    With the setting `loaded_models`, a model that is not in memory has `loaded` false, and its `task`, `target` and
    `metrics` are null. `not_served` are versions that are there and are neither served nor refused; `unloaded` are the
    names that were taken out of service; `formats` are the media types that the predict routes read and write.
    """
    snapshot = parts.registry.snapshot
    if not snapshot.loaded:
        snapshot.require_models()
    models = [
        {
            "name": model.name,
            "version": model.latest.version,
            "versions": list(model.versions),
            "not_served": list(snapshot.not_served.get(model.name, ())),
            "loaded_since": _since(model, model.latest.version),
            **_facts(at_hand(model.latest)),
            "path": f"/models/{model.name}",
        }
        for model in snapshot.models.values()
    ]
    refused = [{"name": item.name, "version": item.version, "reason": item.reason} for item in snapshot.refused]
    default = parts.settings.default_model
    if default is None and len(snapshot.models) == 1:
        default = next(iter(snapshot.models))
    return JSONBytes(
        {
            "default": default,
            "models": models,
            "refused": refused,
            "unloaded": list(snapshot.unloaded),
            "formats": list(MEDIA_TYPES),
        }
    )


@router.get("/models/{name}", summary="One model: features, target, metrics, calibration, training")
async def describe_model(name: str, parts: PartsDependency) -> JSONBytes:
    """Describes the latest version of a model; features are in schema order."""
    model = await parts.models.find(name)
    return JSONBytes(_describe(parts.registry.snapshot.served_beside(model), model))


@router.get("/models/{name}/versions/{version}", summary="One version of a model")
async def describe_version(name: str, version: str, parts: PartsDependency) -> JSONBytes:
    """Describes one version of a model; features are in schema order."""
    model = await parts.models.find(name, version)
    return JSONBytes(_describe(parts.registry.snapshot.served_beside(model), model))


@router.get("/models/{name}/calibration", summary="The calibration of a model in full")
async def describe_calibration(name: str, parts: PartsDependency) -> JSONBytes:
    """Has every number of the calibration of the latest version; `/models/{name}` has it in short.

    `calibration` is null where the model has none.
    """
    return JSONBytes(_calibration(await parts.models.find(name)))


@router.get("/models/{name}/versions/{version}/calibration", summary="The calibration of one version in full")
async def describe_calibration_of_version(name: str, version: str, parts: PartsDependency) -> JSONBytes:
    """Has every number of the calibration of one version, or null."""
    return JSONBytes(_calibration(await parts.models.find(name, version)))


def _calibration(model: "ModelLike") -> dict[str, Any]:
    return {"name": model.name, "version": model.version, "calibration": model.spec.to_json()["calibration"]}


def _describe(loaded: "LoadedModel", model: "ModelLike") -> dict[str, Any]:
    facts = model.spec.to_json()
    return {
        "name": model.name,
        "version": model.version,
        "versions": list(loaded.versions),
        "loaded_since": _since(loaded, model.version),
        "task": model.schema.target.task,
        "target": _target(model),
        "features": [feature.describe() for feature in model.schema.features],
        "left_out": dict(model.schema.left_out),
        "calibration": calibration_summary(facts["calibration"]),
        **{fact: facts[fact] for fact in SHOWN_FACTS},
    }


def _facts(model: "ModelLike | None") -> dict[str, Any]:
    """Returns what the list has of a version that is in memory, and of one that isn't."""
    if model is None:
        return {"loaded": False, "task": None, "target": None, "metrics": None}
    return {
        "loaded": True,
        "task": model.schema.target.task,
        "target": _target(model),
        "metrics": model.spec.metrics,
    }


def _since(loaded: "LoadedModel", version: str) -> str | None:
    """Returns when a version was loaded, ISO 8601 in UTC; None if it isn't in memory."""
    since = loaded.loaded_since(version)
    return None if since is None else since.isoformat(timespec="seconds")


def _target(model: "ModelLike") -> dict[str, Any]:
    target = model.schema.target
    if target.classes is not None:
        return {"name": target.name, "classes": list(target.classes)}
    limits = model.spec.target.limits
    return {
        "name": target.name,
        "unit": target.unit,
        "minimum": None if limits is None else limits.to_json()["minimum"],
        "maximum": None if limits is None else limits.to_json()["maximum"],
    }
