"""scikit-learn: an exact Gaussian process of numbers, and a logistic regression of classes.

The process is constant x RBF with a length scale per feature, plus white noise. Inputs are standardised, and categories
one-hot. The marginal likelihood is maximised on all training rows from 3 starts (2 above 1,000 rows, where one takes a
minute). The inner rows are predicted with the same kernel, conditioned on the other rows.

The regression is on standardised numbers, missing ones as their mean and an indicator, and one-hot categories; its
penalty is the one of nine with the lowest log loss of the inner rows.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import Answer, Predictive, TableTask, table_session

SMALL = 1_000
"""Training rows up to which the process has 3 starts."""

FACTORS = tuple(10.0 ** (power / 2.0) for power in range(-6, 3))
"""Inverse penalties of the logistic regression, from 0.001 to 10."""


def answer(task: TableTask) -> Answer:
    """Fit the process and predict."""
    warnings.filterwarnings("ignore")  # about hyper-parameters at their bounds
    rows, test = task.standardised(indicators=False)
    width = rows.shape[1]
    kernel = ConstantKernel(10.0, (1e-2, 1e5)) * RBF(np.full(width, 3.0), (1e-2, 1e4)) + WhiteKernel(0.1, (1e-8, 1e1))
    starts = 3 if len(rows) <= SMALL else 2
    fitted = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=starts - 1, random_state=task.seed
    ).fit(rows, task.target)
    base = GaussianProcessRegressor(fitted.kernel_, normalize_y=True, optimizer=None).fit(
        rows[~task.inner], task.target[~task.inner]
    )
    return Answer(
        raw=_normals(fitted, test),
        base=_normals(base, test),
        inner=_normals(base, rows[task.inner]),
    )


def _normals(fitted: GaussianProcessRegressor, rows: np.ndarray) -> Predictive:
    # The white noise is part of the kernel, so the std describes a new observation.
    mean, std = fitted.predict(rows, return_std=True)
    return Predictive(mean=mean, std=std)


def classify(task: TableTask) -> Answer:
    """Logistic regression."""
    rows, test = task.standardised(indicators=True)
    labels, inner = task.target, task.inner

    def fitted(factor: float, chosen: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=factor, max_iter=5_000).fit(rows[chosen], labels[chosen])

    def loss(model: LogisticRegression) -> float:
        own = model.predict_proba(rows[inner])[np.arange(int(inner.sum())), labels[inner]]
        return float(-np.log(np.maximum(own, 1e-15)).mean())

    models = [fitted(factor, ~inner) for factor in FACTORS]
    best = int(np.argmin([loss(model) for model in models]))
    return Answer(
        raw=fitted(FACTORS[best], np.ones(len(labels), dtype=bool)).predict_proba(test),
        base=models[best].predict_proba(test),
        inner=models[best].predict_proba(rows[inner]),
    )


if __name__ == "__main__":
    drive(table=table_session(answer), classes=table_session(classify))
