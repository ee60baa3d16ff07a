"""A prediction as the columns of a table, and the packages whose data frames take them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from murho_client._text_table import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho_client._prediction import Prediction

__all__ = ["columns_of", "package"]

MOMENTS = ("mean", "std", "epistemic_std", "aleatoric_std")
ENTROPIES = ("entropy", "epistemic_entropy")


def columns_of(prediction: Prediction, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The columns of a prediction; see `Prediction.columns`.

    Args:
        prediction: The prediction.
        arrays: What it has one entry a row of, by key.
    """
    if prediction.classes is not None:
        return _of_classes(prediction, prediction.classes, arrays)
    columns: dict[str, Any] = {name: arrays[name] for name in MOMENTS if name in arrays}
    for names, prefix, listed in (
        ("percentiles", "p", prediction.levels),
        ("exceedance", "exceedance_", prediction.thresholds),
    ):
        if names in arrays:
            columns |= {f"{prefix}{number(at)}": arrays[names][:, index] for index, at in enumerate(listed)}
    return columns


def _of_classes(prediction: Prediction, classes: tuple[str, ...], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {"prediction": arrays["prediction"].tolist()}
    columns |= {f"p_{name}": arrays["probabilities"][:, index] for index, name in enumerate(classes)}
    columns |= {name: arrays[name] for name in ENTROPIES if name in arrays}
    if prediction.prediction_set is not None:
        columns["prediction_set"] = [list(members) for members in prediction.prediction_set]
    return columns


def package(name: str, method: str) -> Any:
    """A package that a method needs.

    Raises:
        ImportError: It isn't installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{method}() needs {name}. Install it: pip install {name}") from error
