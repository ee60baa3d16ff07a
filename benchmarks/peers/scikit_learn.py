"""scikit-learn's HistGradientBoostingRegressor with split conformal: one shape and width for all rows.

Squared error, up to 2000 trees with learning rate 0.05, stopped after 50 without gain on the inner rows; every
distribution is the mean plus the residuals of the inner rows. It has no distribution without them.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.peers.table_task import Answer, Predictive, Task, answer_tasks

ROWS_FOR_FULL_LEAVES = 1_000
"""Below, leaves may have 5 rows instead of 20, as its documentation advises for small tables."""


def answer(task: Task) -> Answer:
    """Fits and answers."""
    rows, test = task.training.joined(), task.test.joined()
    numeric = task.training.numbers.shape[1]
    model = HistGradientBoostingRegressor(
        learning_rate=0.05,
        max_iter=2000,
        early_stopping=True,
        n_iter_no_change=50,
        min_samples_leaf=20 if len(rows) >= ROWS_FOR_FULL_LEAVES else 5,
        categorical_features=[place >= numeric for place in range(rows.shape[1])],
        random_state=task.seed,
    )
    model.fit(
        rows[~task.inner], task.target[~task.inner], X_val=rows[task.inner], y_val=task.target[task.inner]
    )
    return Answer(
        raw=None,
        base=_points(model.predict(test), task.levels),
        inner=_points(model.predict(rows[task.inner]), task.levels),
        rounds=float(model.n_iter_),
    )


def _points(mean: np.ndarray, levels: np.ndarray) -> Predictive:
    """The mean at every level: the correction of each level then is a quantile of the residuals."""
    return Predictive(mean=mean, quantiles=np.repeat(mean[:, None], len(levels), axis=1))


if __name__ == "__main__":
    answer_tasks(answer)
