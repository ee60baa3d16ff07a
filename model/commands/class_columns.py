"""The output columns of `murho predict` for a classifier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho_client import Prediction as Answer
    from numpy.typing import NDArray

    from murho.model.engines.class_prediction import ClassPrediction

__all__ = ["columns_of_answer", "columns_of_prediction", "lists_as_text", "probability_name"]


def probability_name(name: str) -> str:
    """Name of the column of a class's probability: ``p_Adelie``."""
    return f"p_{name}"


def columns_of_prediction(prediction: ClassPrediction) -> dict[str, NDArray[Any]]:
    """The columns of a prediction in this process; see `_columns`."""
    names = np.array(prediction.classes, dtype=object)
    found = prediction.prediction_set
    sets = None if found is None else [names[inside].tolist() for inside in found]
    return _columns(
        prediction.classes,
        names[prediction.prediction],
        prediction.probabilities,
        prediction.entropy,
        prediction.epistemic_entropy,
        sets,
    )


def columns_of_answer(answer: Answer, classes: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The columns of a service's answer, as its client returns it; see `_columns`."""
    given: Any = answer
    sets = None if given.prediction_set is None else [list(names) for names in given.prediction_set]
    return _columns(
        classes,
        np.array(list(given.prediction), dtype=object),
        np.asarray(given.probabilities),
        given.entropy,
        given.epistemic_entropy,
        sets,
    )


def _columns(
    classes: Sequence[str],
    prediction: NDArray[np.object_],
    probabilities: NDArray[np.float64],
    entropy: NDArray[np.float64] | None,
    epistemic_entropy: NDArray[np.float64] | None,
    sets: list[list[str]] | None,
) -> dict[str, NDArray[Any]]:
    """Columns by name, ``[B]`` each: ``prediction``, ``p_CLASS`` for each class, both entropies, ``prediction_set``.

    The cells of the last one are lists of class names. Without draws, numbers are NaN and lists None.
    """
    rows = len(prediction)
    missing = np.full(rows, np.nan)
    listed = np.fromiter([None] * rows if sets is None else sets, dtype=object, count=rows)
    return {
        "prediction": prediction,
        **{probability_name(name): probabilities[:, number] for number, name in enumerate(classes)},
        "entropy": missing if entropy is None else entropy,
        "epistemic_entropy": missing if epistemic_entropy is None else epistemic_entropy,
        "prediction_set": listed,
    }


def lists_as_text(column: NDArray[Any]) -> NDArray[Any]:
    """Cells for CSV, ``[B]``: a list of classes becomes JSON, ``["Adelie", "Gentoo"]``, whatever is in their names."""
    if column.dtype != object or not any(isinstance(cell, list) for cell in column):
        return column
    cells = [json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in column]
    return np.array(cells, dtype=object)
