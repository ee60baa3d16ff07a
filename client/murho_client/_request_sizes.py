"""How many rows one request has: fewer where the answer has many numbers for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho_client._model import Model

__all__ = ["rows_of_request"]

DRAWS_PER_REQUEST = 1_000_000
"""Numbers of one answer, where the draws of all rows are asked for: the service has a limit on them."""
CLASS_NUMBERS_PER_REQUEST = 5_000_000
"""Numbers of one answer of a classifier: a table of a thousand classes has as many in a thousand rows."""


def rows_of_request(options: Mapping[str, Any], model: Model | None, most: int) -> int:
    """The most rows of one request, at least 1.

    Args:
        options: The options as JSON.
        model: The model; None where the service doesn't describe it.
        most: What the user set as the most.
    """
    classes = 1 if model is None or model.classes is None else len(model.classes)
    if "draws" in options.get("include", ()):
        most = min(most, DRAWS_PER_REQUEST // max(options["samples"] * classes, 1))
    if classes > 1:
        most = min(most, CLASS_NUMBERS_PER_REQUEST // (classes * (3 + len(options["percentiles"]))))
    return max(1, most)
