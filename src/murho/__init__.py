"""Predictions with error bars: Bayes-by-Backprop networks for tables, and a service that answers from them.

`murho.BBBRegressor` is the scikit-learn estimator, `murho.model` the statistics, `murho.service` the HTTP service.
The last two are the folders ``model/`` and ``service/`` at the top of the repository, linked here so that an installed
copy claims the import name ``murho`` and no other. Importing this package imports neither torch nor scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murho.model.estimator import BBBRegressor

__all__ = ["BBBRegressor"]


def __getattr__(name: str) -> Any:
    """Imports the estimator on its first use."""
    if name != "BBBRegressor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from murho.model.estimator import BBBRegressor
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        raise ImportError(
            "BBBRegressor needs scikit-learn: run pip install '.[sklearn]' in a clone of Murho's repository"
        ) from error
    return BBBRegressor
