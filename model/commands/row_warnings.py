"""The column of warnings that `murho predict` writes: of each row, which features are unusual and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["warning_texts"]


def warning_texts(rows: int, warnings: Iterable[tuple[int, str, str]]) -> NDArray[np.object_]:
    """One text a row, ``[B]``: ``FEATURE: why; FEATURE: why``. None where there is nothing to say.

    Args:
        rows: B.
        warnings: Row, from 0, feature and message of each.
    """
    texts = np.full(rows, None, dtype=object)
    for row, feature, message in warnings:
        before = texts[row]
        said = f"{feature}: {message}"
        texts[row] = said if before is None else f"{before}; {said}"
    return texts
