"""scikit-learn in two variants: an exact Gaussian process, and gradient boosting with split conformal.

``process``: constant x RBF with a length scale per feature, plus white noise. Inputs are standardised, and categories
one-hot. The marginal likelihood is maximised on all training rows from 3 starts (2 above 1,000 rows, where one takes a
minute). The inner rows are predicted with the same kernel, conditioned on the other rows.

``boosting``: HistGradientBoostingRegressor with squared error, up to 2000 trees with learning rate 0.05, stopped after
50 without gain on the inner rows. The distribution of every row is its mean plus the residuals of the inner rows, with
the same shape and width. So it has no raw distribution.

Classes are a logistic regression on standardised numbers, missing ones as their mean and an indicator, and one-hot
categories; the penalty is the one of nine with the lowest log loss of the inner rows.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression

from benchmarks.peers.class_task import ClassAnswer, ClassTask, classes_session
from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Predictive, TableTask, table_session

SMALL = 1_000
"""Training rows up to which the process has 3 starts; with fewer, leaves may have 5 rows instead of 20, as advised."""

FACTORS = tuple(10.0 ** (power / 2.0) for power in range(-6, 3))
"""Inverse penalties of the logistic regression, from 0.001 to 10."""


def answer(task: TableTask, variant: str) -> Answer:
    """Fits the models of a variant and predicts."""
    return {"process": process, "boosting": boosting}[variant](task)


def process(task: TableTask) -> Answer:
    """The Gaussian process."""
    warnings.filterwarnings("ignore")  # about hyper-parameters at their bounds
    rows, test = _standardised(task)
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
        rounds=starts,
    )


def _normals(fitted: GaussianProcessRegressor, rows: np.ndarray) -> Predictive:
    # The white noise is part of the kernel, so the std describes a new observation.
    mean, std = fitted.predict(rows, return_std=True)
    return Predictive(mean=mean, std=std)


def boosting(task: TableTask) -> Answer:
    """Gradient boosting."""
    rows, test = task.training.joined(), task.test.joined()
    numeric = task.training.numbers.shape[1]
    model = HistGradientBoostingRegressor(
        learning_rate=0.05,
        max_iter=2000,
        early_stopping=True,
        n_iter_no_change=50,
        min_samples_leaf=20 if len(rows) >= SMALL else 5,
        categorical_features=[place >= numeric for place in range(rows.shape[1])],
        random_state=task.seed,
    )
    model.fit(rows[~task.inner], task.target[~task.inner], X_val=rows[task.inner], y_val=task.target[task.inner])
    return Answer(
        raw=None,
        base=_points(model.predict(test), task.levels),
        inner=_points(model.predict(rows[task.inner]), task.levels),
        rounds=float(model.n_iter_),
    )


def _points(mean: np.ndarray, levels: np.ndarray) -> Predictive:
    """The mean at every level, so that the correction of each level is a quantile of the residuals."""
    return Predictive(mean=mean, quantiles=np.repeat(mean[:, None], len(levels), axis=1))


def classify(task: ClassTask) -> ClassAnswer:
    """Logistic regression."""
    rows, test = _standardised(task, indicators=True)
    labels, inner = task.labels, task.inner

    def fitted(factor: float, chosen: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=factor, max_iter=5_000).fit(rows[chosen], labels[chosen])

    def loss(model: LogisticRegression) -> float:
        own = model.predict_proba(rows[inner])[np.arange(int(inner.sum())), labels[inner]]
        return float(-np.log(np.maximum(own, 1e-15)).mean())

    models = [fitted(factor, ~inner) for factor in FACTORS]
    best = int(np.argmin([loss(model) for model in models]))
    return ClassAnswer(
        raw=fitted(FACTORS[best], np.ones(len(labels), dtype=bool)).predict_proba(test),
        base=models[best].predict_proba(test),
        inner=models[best].predict_proba(rows[inner]),
        rounds=FACTORS[best],
    )


def _standardised(task: TableTask | ClassTask, *, indicators: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of training and test rows: numbers and one-hot categories of mean 0 and variance 1, 0 where missing.

    Args:
        task: The rows.
        indicators: Whether a column of its own says where a number is missing.
    """
    gaps = np.isnan(task.training.numbers).any(axis=0) & indicators
    rows, test = (
        np.hstack([features.numbers, np.isnan(features.numbers[:, gaps]), features.one_hot(task.training)])
        for features in (task.training, task.test)
    )
    location, scale = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return np.nan_to_num((rows - location) / scale), np.nan_to_num((test - location) / scale)


if __name__ == "__main__":
    drive(table=table_session(answer), classes=classes_session(classify))
