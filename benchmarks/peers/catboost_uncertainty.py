"""CatBoost with RMSEWithUncertainty: a Normal whose mean and variance are boosted together.

Up to 2000 trees of depth 6 with learning rate 0.05, stopped after 100 without gain on the inner rows; then refitted to
all rows with as many trees. The posterior virtual ensembles of its documentation add knowledge uncertainty; they
need the Langevin sampler and are not used.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import numpy as np
from catboost import CatBoostRegressor

from benchmarks.peers.catboost_inputs import OPTIONS, pool
from benchmarks.peers.table_task import Answer, Features, Predictive, Task, answer_tasks


def answer(task: Task) -> Answer:
    """Fits and answers."""
    inner, others = task.training.take(task.inner), task.training.take(~task.inner)

    def model(**options: Any) -> CatBoostRegressor:
        return CatBoostRegressor(
            loss_function="RMSEWithUncertainty", random_seed=task.seed, **(OPTIONS | options)
        )

    base = model()
    base.fit(
        pool(others, task.target[~task.inner]),
        eval_set=pool(inner, task.target[task.inner]),
        early_stopping_rounds=100,
        use_best_model=True,
    )
    rounds = int(base.tree_count_)
    refit = model(iterations=rounds).fit(pool(task.training, task.target))
    return Answer(
        raw=_normals(refit, task.test),
        base=_normals(base, task.test),
        inner=_normals(base, inner),
        rounds=rounds,
    )


def _normals(model: CatBoostRegressor, rows: Features) -> Predictive:
    answers = model.predict(pool(rows), prediction_type="RMSEWithUncertainty")
    return Predictive(mean=answers[:, 0], std=np.sqrt(np.maximum(answers[:, 1], 1e-300)))


if __name__ == "__main__":
    answer_tasks(answer)
