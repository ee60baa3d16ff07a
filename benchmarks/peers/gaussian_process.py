"""An exact Gaussian process by scikit-learn: constant x RBF with a length scale a feature, plus white noise.

Standardised inputs, categories one-hot, the marginal likelihood maximised on all training rows from 3 starts (2 above
1,000 rows, where one takes a minute). The inner rows are predicted by the same kernel conditioned on the others.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.peers.table_task import Answer, Features, Predictive, Task, answer_tasks, one_hot

ROWS_FOR_FEWER_STARTS = 1_000


def answer(task: Task) -> Answer:
    """Fits and answers."""
    warnings.filterwarnings("ignore")  # bounds of hyper-parameters that are met
    known = task.training.categories.max(axis=0, initial=-1) + 1

    def encoded(features: Features) -> np.ndarray:
        codes = [one_hot(features.categories[:, place], int(count)) for place, count in enumerate(known)]
        return np.hstack([features.numbers, *codes])

    rows, test = encoded(task.training), encoded(task.test)
    location, scale = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    rows, test = (np.nan_to_num((some - location) / scale) for some in (rows, test))

    width = rows.shape[1]
    kernel = ConstantKernel(10.0, (1e-2, 1e5)) * RBF(np.full(width, 3.0), (1e-2, 1e4)) + WhiteKernel(
        0.1, (1e-8, 1e1)
    )
    starts = 3 if len(rows) <= ROWS_FOR_FEWER_STARTS else 2
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


def _normals(process: GaussianProcessRegressor, rows: np.ndarray) -> Predictive:
    # The white noise is part of the kernel: the std is that of a new observation.
    mean, std = process.predict(rows, return_std=True)
    return Predictive(mean=mean, std=std)


if __name__ == "__main__":
    answer_tasks(answer)
