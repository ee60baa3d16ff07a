"""`POST /models/{name}/load` and `/unload`: what is served changes at once, without a restart."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.http.guard import AdminDependency
from murho.service.http.responses import JSONBytes
from murho.service.parts import PartsDependency

__all__ = ["router"]

VERSION_PARAMETER: dict[str, Any] = {
    "parameters": [
        {
            "name": "version",
            "in": "query",
            "required": False,
            "description": "The only version to serve from now on; without it the policy of the service decides.",
            "schema": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"},
        }
    ]
}

router = APIRouter(tags=["administration"])


@router.post("/models/{name}/load", summary="Load a model now", openapi_extra=VERSION_PARAMETER)
async def load_model(name: str, request: Request, parts: PartsDependency, _admin: AdminDependency) -> JSONBytes:
    """Loads the latest version, or the one that `version` names, and answers once it is served.

    A named version is served alone, until the next load without one, or until the service starts again. A version that
    can't be loaded is answered 422 with the reason; what was served before is served on. If nothing was, and no version
    is named, the newest one that can be loaded is served, and `refused` says which are not, and why.
    """
    version = _version(request)
    parts.lifecycle.require_not_draining()
    before = parts.registry.snapshot.models.get(name)
    loaded = await asyncio.wrap_future(parts.watcher.load(name, version))
    return JSONBytes(
        {
            "name": loaded.name,
            "version": loaded.latest.version,
            "versions": list(loaded.versions),
            "changed": before is None or dict(before.versions) != dict(loaded.versions),
            "until": "the next load without a version, or the next start of the service"
            if version is not None
            else None,
            "refused": [
                {"version": item.version, "reason": item.reason}
                for item in parts.registry.snapshot.refused
                if item.name == name
            ],
        }
    )


@router.post("/models/{name}/unload", summary="Take a model out of service")
async def unload_model(name: str, parts: PartsDependency, _admin: AdminDependency) -> JSONBytes:
    """Takes all versions of a model out of service. Requests in flight end on it, then its memory is free.

    It stays unloaded until it is loaded again, or until the service starts again.
    """
    parts.lifecycle.require_not_draining()
    unloaded = await asyncio.wrap_future(parts.watcher.unload(name))
    return JSONBytes(
        {
            "name": name,
            "unloaded": list(unloaded),
            "changed": bool(unloaded),
            "until": f"POST /models/{name}/load, or the next start of the service",
        }
    )


def _version(request: Request) -> str | None:
    """Returns the version of a request's query.

    Raises:
        BadInputError: There is another parameter, or several versions.
    """
    given = request.query_params.multi_items()
    if len(given) > 1 or any(key != "version" for key, _ in given):
        unknown = next((key for key, _ in given if key != "version"), "version")
        raise BadInputError([Problem("", f"the query takes one version=N and nothing else, not {unknown[:80]!r}")])
    return given[0][1] if given else None
