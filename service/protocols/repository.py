"""The model repository extension: what is there, and the bodies that ask to load and to unload a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.service.predict.json_requests import load_json
from murho.service.predict.memory import SMALL_BYTES
from murho.service.predict.problems import shorten
from murho.service.protocols.tensors import wrong

if TYPE_CHECKING:
    from collections.abc import Collection

    from murho.service.models.registry import Snapshot

__all__ = ["index_body", "load_body", "repository_index", "unload_body"]

READY, UNAVAILABLE = "READY", "UNAVAILABLE"


def repository_index(snapshot: Snapshot, *, ready: bool = False) -> list[dict[str, str]]:
    """Returns every version that is there with its state, and the reason why one isn't served.

    Args:
        snapshot: What is served.
        ready: Whether to list those alone that are served.
    """
    served = [_entry(model.name, model.version, READY, "") for model in snapshot.served]
    if ready:
        return served
    refused = [_entry(item.name, item.version, UNAVAILABLE, item.reason) for item in snapshot.refused if item.name]
    others = [
        _entry(name, version, UNAVAILABLE, "the service serves other versions of it")
        for name, versions in snapshot.not_served.items()
        for version in versions
    ]
    unloaded = [_entry(name, "", UNAVAILABLE, "unloaded") for name in snapshot.unloaded]
    return sorted(served + refused + others + unloaded, key=lambda item: (item["name"], int(item["version"] or 0)))


def _entry(name: str, version: str, state: str, reason: str) -> dict[str, str]:
    return {"name": name, "version": version, "state": state, "reason": reason}


def index_body(body: bytes) -> bool:
    """Returns whether only what is ready is to be listed.

    Raises:
        BadInputError: The body is neither empty nor a JSON object of this one key.
    """
    document = _object(body, ("ready",))
    ready = document.get("ready", False)
    if not isinstance(ready, bool):
        raise wrong(("ready",), "Expected true or false.")
    return ready


def load_body(body: bytes) -> str | None:
    """Returns the version to load, the parameter `version`; None: what the policy of the service says.

    Raises:
        BadInputError: The body is something else. Configurations and files can't be sent to this service.
    """
    parameters = _parameters(body)
    for name in parameters:
        if name != "version":
            raise wrong(("parameters", name), f"A model is loaded with the parameter version, not {shorten(name)!r}.")
    version = parameters.get("version")
    if version is not None and not isinstance(version, str):
        raise wrong(("parameters", "version"), "Expected a version as a string.")
    return version


def unload_body(body: bytes) -> None:
    """Checks the body of a request to unload a model; no model depends on another one.

    Raises:
        BadInputError: It is something else than the protocol has.
    """
    for name in _parameters(body):
        if name != "unload_dependents":
            raise wrong(("parameters", name), f"There is no parameter {shorten(name)!r}.")


def _parameters(body: bytes) -> dict[str, Any]:
    parameters = _object(body, ("parameters",)).get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise wrong(("parameters",), "Expected an object.")
    return parameters


def _object(body: bytes, known: Collection[str]) -> dict[str, Any]:
    """Returns the object in a body, which may be empty."""
    if not body.strip():
        return {}
    document = load_json(body, SMALL_BYTES)
    for name in document:
        if name not in known:
            raise wrong((name,), f"There is no key {shorten(name)!r}; there is {', '.join(known)}.")
    return document
