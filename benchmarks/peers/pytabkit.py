"""Networks of pytabkit that learn 23 quantiles together by the pinball loss, with a conformal correction.

``realmlp`` is RealMLP with its tuned defaults (Holzmüller et al. 2024), ``tabm`` TabM with the library's defaults
(Gorishniy et al. 2025): 32 networks that share most weights. Both are one fit, no bagging, and keep the epoch with the
lowest pinball loss of the inner rows. Up to 10,000 rows RealMLP is refitted to all rows; TabM has no refit. Above 1,000
rows TabM's layers have 128 units, not 512, which would take hours on one core. Levels between the 23 are interpolated
linearly on the scale of Normal scores. Missing numbers are the median with an indicator; they support none.

Classes are a RealMLP classifier without label smoothing, which keeps the epoch with the lowest log loss, as its
documentation advises where probabilities matter.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor, TabM_D_Regressor

from benchmarks.peers.class_task import ClassAnswer, ClassTask, classes_session
from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import (
    FITTED_LEVELS,
    REFIT_UP_TO,
    Answer,
    Features,
    Predictive,
    TableTask,
    table_session,
)

LOSS = "multi_pinball(" + ",".join(f"{level:g}" for level in FITTED_LEVELS) + ")"
CROSS_ENTROPY = "cross_entropy"
ROWS_FOR_WIDE_LAYERS, NARROW = 1_000, 128


def answer(task: TableTask, variant: str) -> Answer:
    """Fits the networks and predicts."""

    def quantiles(rows: np.ndarray) -> Predictive:
        return Predictive.of_fitted(np.asarray(model.predict(rows), dtype=np.float64), task.levels)

    rows, test = _inputs(task)
    options: dict[str, Any] = {
        "device": "cpu",
        "n_threads": 1,
        "random_state": task.seed,
        "train_metric_name": LOSS,
        "val_metric_name": LOSS,
    }
    if variant == "realmlp":
        model = RealMLP_TD_Regressor(n_refit=int(len(rows) <= REFIT_UP_TO), **options)
    else:
        narrow = {"d_block": NARROW} if len(rows) > ROWS_FOR_WIDE_LAYERS else {}
        model = TabM_D_Regressor(**options, **narrow)
    with redirect_stdout(sys.stderr), warnings.catch_warnings():  # stdout has the answers
        warnings.simplefilter("ignore")
        _fit(model, task, rows, task.target)
        raw = quantiles(test)
        model.alg_interface_ = model.cv_alg_interface_  # from now on the fit without the inner rows answers
        base, inner = quantiles(test), quantiles(rows[task.inner])
    return Answer(raw=raw, base=base, inner=inner, rounds=_epochs(model, LOSS))


def classify(task: ClassTask) -> ClassAnswer:
    """Fits a classifier and predicts."""
    rows, test = _inputs(task)
    model = RealMLP_TD_Classifier(
        device="cpu",
        n_threads=1,
        random_state=task.seed,
        n_refit=int(len(rows) <= REFIT_UP_TO),
        val_metric_name=CROSS_ENTROPY,
        use_ls=False,
    )
    with redirect_stdout(sys.stderr), warnings.catch_warnings():  # stdout has the answers
        warnings.simplefilter("ignore")
        _fit(model, task, rows, task.labels)
        raw = model.predict_proba(test)
        model.alg_interface_ = model.cv_alg_interface_  # from now on the fit without the inner rows answers
        base, inner = model.predict_proba(test), model.predict_proba(rows[task.inner])
    return ClassAnswer(raw=raw, base=base, inner=inner, rounds=_epochs(model, CROSS_ENTROPY))


def _inputs(task: TableTask | ClassTask) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of training and test rows: numbers, indicators of missing ones, codes."""
    gaps = np.isnan(task.training.numbers).any(axis=0)
    medians = np.nanmedian(task.training.numbers, axis=0)

    def inputs(features: Features) -> np.ndarray:
        numbers = np.where(np.isnan(features.numbers), medians, features.numbers)
        missing = np.isnan(features.numbers[:, gaps]).astype(np.float64)
        return np.hstack([numbers, missing, features.categories])

    return inputs(task.training), inputs(task.test)


def _fit(model: Any, task: TableTask | ClassTask, rows: np.ndarray, target: np.ndarray) -> None:
    columns = rows.shape[1] - task.training.categories.shape[1]
    model.fit(
        rows[~task.inner],
        target[~task.inner],
        X_val=rows[task.inner],
        y_val=target[task.inner],
        cat_indicator=[place >= columns for place in range(rows.shape[1])],
    )


def _epochs(model: Any, loss: str) -> float:
    """The best epoch of RealMLP; TabM does not tell its own: 0."""
    told = (model.cv_alg_interface_.fit_params or [{}])[0].get("stop_epoch", {})
    return float(told.get(loss, 0))


if __name__ == "__main__":
    drive(table=table_session(answer), classes=classes_session(classify))
