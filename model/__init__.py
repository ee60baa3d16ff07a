"""The statistics of Murho: Bayes-by-Backprop networks for tables, with numpy and torch.

Data flows one way::

    tables -> schema -> encoding -> networks -> objective -> fitting -> checkpoint
                                        checkpoint -> draws -> predictive -> calibration

`BBBRegressor` is all of it as an estimator of scikit-learn. This package knows nothing of the HTTP service.
Importing it imports neither torch nor scikit-learn, so that the command line answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.estimator import BBBRegressor

__all__ = ["BBBRegressor"]


def __getattr__(name: str) -> Any:
    """Imports the estimator when it is first asked for."""
    if name != "BBBRegressor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from model.estimator import BBBRegressor
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        raise ImportError("BBBRegressor needs scikit-learn: pip install 'murho[sklearn]'") from error
    return BBBRegressor
