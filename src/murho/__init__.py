"""Predictions with error bars: Bayes-by-Backprop networks for tables, and a service that answers from them.

In Python: `murho.load` and `murho.train` give models that answer with distributions, `murho.BBBRegressor` and
`murho.BBBClassifier` are scikit-learn estimators. `murho.model` is the statistics, `murho.service` the HTTP service:
the folders ``model/`` and ``service/`` at the top of the repository, linked here so that an installed copy claims the
import name ``murho`` and no other. Importing this package imports neither torch nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murho.model.python.estimators import BBBClassifier, BBBRegressor
    from murho.model.python.interface import load, train

__all__ = ["BBBClassifier", "BBBRegressor", "load", "train"]

PLACES = {
    "BBBClassifier": "murho.model.python.estimators",
    "BBBRegressor": "murho.model.python.estimators",
    "load": "murho.model.python.interface",
    "train": "murho.model.python.interface",
}
"""Where each name comes from."""


def __getattr__(name: str) -> Any:
    """Import a name on its first use."""
    if name == "__version__":
        return version("murho")
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    """Return the names of the package, those not yet imported too."""
    return sorted({*globals(), *__all__})
