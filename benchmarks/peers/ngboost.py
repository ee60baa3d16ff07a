"""NGBoost with a Normal (Duan et al. 2020): natural gradient boosting of depth-3 trees.

As in the paper, the number of rounds is chosen on held-back rows and the model is refitted to all rows. The learning
rate is 0.04 with at most 2000 rounds (0.01 in the paper). Above 5,000 rows it is 0.1 with at most 700 rounds; above
20,000, where a round takes a quarter of a second, each round uses half of the rows. Categories are one-hot and missing
numbers are the median, because its trees support neither.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import Normal
from sklearn.tree import DecisionTreeRegressor

from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Features, Predictive, TableTask, table_session

SMALL, MEDIUM = 5_000, 20_000


def answer(task: TableTask) -> Answer:
    """Fits the models and predicts."""
    medians = np.nanmedian(task.training.numbers, axis=0)

    def inputs(features: Features) -> np.ndarray:
        numbers = np.where(np.isnan(features.numbers), medians, features.numbers)
        return np.hstack([numbers, features.one_hot(task.training)])

    rows, test = inputs(task.training), inputs(task.test)
    small = len(rows) <= SMALL

    def model(rounds: int) -> NGBRegressor:
        return NGBRegressor(
            Dist=Normal,
            Base=DecisionTreeRegressor(criterion="friedman_mse", max_depth=3, random_state=task.seed),
            n_estimators=rounds,
            learning_rate=0.04 if small else 0.1,
            minibatch_frac=1.0 if len(rows) <= MEDIUM else 0.5,
            random_state=task.seed,
            verbose=False,
        )

    base = model(2000 if small else 700)
    base.fit(
        rows[~task.inner],
        task.target[~task.inner],
        X_val=rows[task.inner],
        Y_val=task.target[task.inner],
        early_stopping_rounds=50,
    )
    rounds = int(base.best_val_loss_itr) + 1
    refit = model(rounds).fit(rows, task.target)
    return Answer(
        raw=_normals(refit, test, None),
        base=_normals(base, test, rounds),
        inner=_normals(base, rows[task.inner], rounds),
        rounds=rounds,
    )


def _normals(model: NGBRegressor, rows: np.ndarray, rounds: int | None) -> Predictive:
    normals = model.pred_dist(rows, max_iter=rounds)
    return Predictive(mean=np.asarray(normals.loc), std=np.asarray(normals.scale))


if __name__ == "__main__":
    drive(table=table_session(answer))
