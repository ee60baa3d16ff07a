"""Calibration of any peer's probabilities: Beta calibration for two classes, else structured matrix scaling.

Beta calibration is of Kull, Silva Filho and Flach (2017), matrix scaling of Berta, Holzmueller, Jordan and Bach (2025).
Both are fitted to the inner rows with the library's defaults.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import warnings

import numpy as np
from probmetrics.calibrators import get_calibrator

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import table_session

LEAST = 1e-12
"""Least probability, so that no logarithm is infinite."""


def calibrate(task: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Fit a map to probabilities ``[n, C]`` and classes ``[n]`` of the inner rows; apply it to others ``[B, C]``."""
    inner, labels, test = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_calibrator("beta" if inner.shape[1] == 2 else "sms")
        model.fit(_positive(inner), labels)
        return np.asarray(model.predict_proba(_positive(test)), dtype=np.float64)


def _positive(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.maximum(probabilities, LEAST)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


if __name__ == "__main__":
    drive(calibration=table_session(calibrate))
