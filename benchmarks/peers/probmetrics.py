"""Calibration of any peer's probabilities: Beta calibration for two classes, else structured matrix scaling.

Beta calibration is of Kull, Silva Filho and Flach (2017), matrix scaling of Berta, Holzmueller, Jordan and Bach (2025).
Both are fitted to the inner rows with the library's defaults.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout

import numpy as np
from probmetrics.calibrators import get_calibrator

from benchmarks.peers.class_task import Calibrated, ToCalibrate, calibration_session
from benchmarks.peers.exchange import drive

LEAST = 1e-12
"""Least probability, so that no logarithm is infinite."""


def calibrate(task: ToCalibrate) -> Calibrated:
    """Fits a map to the inner rows, and applies it to the test rows."""
    classes = task.inner.shape[1]
    inner, test = (_positive(part) for part in (task.inner, task.test))
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_calibrator("beta" if classes == 2 else "sms")
        model.fit(inner, task.labels)
        return Calibrated(np.asarray(model.predict_proba(test), dtype=np.float64))


def _positive(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.maximum(probabilities, LEAST)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


if __name__ == "__main__":
    drive(calibration=calibration_session(calibrate))
