"""The options of a request whose body is a table: they come as query parameters, such as `?samples=64&seed=7`."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.envelope import PredictRequest, validate_document
from murho.service.predict.problems import MAX_LISTED, pointer, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LISTS", "parse_query", "value_of_text"]

LISTS = frozenset({"percentiles", "thresholds", "include"})
WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
TRUTH = {"true": True, "false": False}


def parse_query(query: Mapping[str, str]) -> PredictRequest:
    """Returns the options of a query; those that are not given are None.

    Lists are separated by commas: `?percentiles=5,50,95`. Truth values are `true` and `false`.

    Raises:
        BadInputError: An option is unknown or has a wrong value.
    """
    names = [name for name in PredictRequest.model_fields if name != "inputs"]
    unknown = [name for name in query if name not in names]
    if unknown:
        message = f"There is no such option; there are {', '.join(names)}."
        raise BadInputError(
            (Problem(pointer(name), f"{shorten(name)!r}: {message}") for name in islice(unknown, MAX_LISTED)),
            len(unknown),
        )
    document: dict[str, Any] = {"inputs": None}
    for name, text in query.items():
        document[name] = (
            [value_of_text(part.strip()) for part in text.split(",")] if name in LISTS else value_of_text(text.strip())
        )
        if name in LISTS and not text.strip():
            document[name] = []
    return validate_document(document)


def value_of_text(text: str) -> Any:
    """Returns the number or truth value that a text stands for; other texts as they are."""
    if text in TRUTH:
        return TRUTH[text]
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text
