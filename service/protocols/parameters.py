"""Parameters of requests, inputs and outputs; those of a request are the options of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.options import LISTS, check_options, predict_options, value_of_text
from murho.service.predict.problems import shorten
from murho.service.predict.rows import JSON_NAMES
from murho.service.protocols.tensors import wrong

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Target
    from murho.service.settings import Settings

__all__ = ["check_keys", "check_known", "flag_of", "parameters_of", "read_options"]

OPTIONS = ("samples", "seed", "percentiles", "noise", "calibrated", "thresholds", "coverage")
MICROSECONDS = 1e6
NO_SUPPORT = {
    "sequence_id": "sequences: every request stands for itself",
    "sequence_start": "sequences: every request stands for itself",
    "sequence_end": "sequences: every request stands for itself",
    "priority": "priorities: callers take turns",
    "shared_memory_region": "shared memory: send the tensor in the body",
    "shared_memory_byte_size": "shared memory: send the tensor in the body",
    "shared_memory_offset": "shared memory: send the tensor in the body",
    "classification": "classification extension: ask for the outputs that you need",
}
"""Parameters of extensions that this service doesn't have."""
HINTS = frozenset({"content_type", "headers"})
"""Parameters for the codecs of other servers' clients. They change nothing here."""


def read_options(
    parameters: Mapping[str, Any], settings: Settings, target: Target
) -> tuple[PredictOptions, float | None]:
    """Returns the options of a request, and the seconds in which the answer is wanted; None for the service's own.

    Raises:
        BadInputError: A parameter is unknown or has a wrong value.
    """
    check_known(parameters, (*OPTIONS, "timeout", "binary_data_output"), ("parameters",))
    document: dict[str, Any] = {}
    for name in OPTIONS:
        value = parameters.get(name)
        if name in LISTS and isinstance(value, str):  # parameters of the protocol can't be lists
            value = value_of_text(value, listed=True)
        elif name in LISTS and type(value) in (int, float):
            value = [value]
        document[name] = value
    timeout = parameters.get("timeout")
    if timeout is not None and (type(timeout) is not int or timeout < 0):
        raise wrong(("parameters", "timeout"), "Expected a number of microseconds, a whole number from 0.")
    try:
        options = predict_options(check_options(document), settings, target)
    except BadInputError as error:
        moved = [Problem(f"/parameters{item.pointer}", item.message) for item in error.problems]
        raise BadInputError(moved, error.total, more=error.more) from None
    return options, timeout / MICROSECONDS if timeout else None


def parameters_of(item: Mapping[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    """Returns the parameters of a request, an input or an output.

    Raises:
        BadInputError: They are no object.
    """
    parameters = item.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise wrong((*place, "parameters"), f"Expected an object, not {JSON_NAMES.get(type(parameters), 'this')}.")
    return parameters


def check_known(parameters: Mapping[str, Any], known: Collection[str], place: tuple[str | int, ...]) -> None:
    """Checks that there are no other parameters than the known ones.

    Raises:
        BadInputError: There is another one; the message says so, or that an extension isn't there.
    """
    for name in parameters:
        if name in NO_SUPPORT:
            raise wrong((*place, name), f"This service has no {NO_SUPPORT[name]}.")
        if name not in known and name not in HINTS:
            raise wrong((*place, name), f"There is no parameter {shorten(name)!r}; there are {', '.join(known)}.")


def check_keys(item: Mapping[str, Any], place: tuple[str | int, ...], known: tuple[str, ...]) -> None:
    """Checks that an object has no other keys than the known ones.

    Raises:
        BadInputError: It has.
    """
    for name in item:
        if name not in known:
            raise wrong((*place, name), f"There is no key {shorten(name)!r}; there are {', '.join(known)}.")


def flag_of(parameters: Mapping[str, Any], name: str, place: tuple[str | int, ...], *, default: bool = False) -> bool:
    """Returns a parameter that is true or false.

    Raises:
        BadInputError: It is something else.
    """
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise wrong((*place, name), f"Expected true or false, not {JSON_NAMES.get(type(value), 'this')}.")
    return value
