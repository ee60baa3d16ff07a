"""CatBoost with MultiQuantile: one model of 23 quantiles, with a conformal correction a level by the benchmark.

Up to 2000 trees of depth 6 with learning rate 0.05 (1000 with 0.1 above 10,000 rows), stopped after 100 without gain
on the inner rows. Refitted to all rows up to 10,000 of them. Levels between the 23 follow by straight lines on the
scale of Normal scores.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import numpy as np
from catboost import CatBoostRegressor

from benchmarks.peers.catboost_inputs import OPTIONS, pool
from benchmarks.peers.table_task import REFIT_UP_TO, Answer, Features, Predictive, Task, answer_tasks, spread

LEVELS = np.array([1, 2.5, *range(5, 100, 5), 97.5, 99]) / 100.0


def answer(task: Task) -> Answer:
    """Fits and answers."""
    inner, others = task.training.take(task.inner), task.training.take(~task.inner)
    loss = "MultiQuantile:alpha=" + ",".join(f"{level:g}" for level in LEVELS)
    small = len(task.training) <= REFIT_UP_TO
    speed = {} if small else {"iterations": 1000, "learning_rate": 0.1}

    def model(**options: Any) -> CatBoostRegressor:
        return CatBoostRegressor(loss_function=loss, random_seed=task.seed, **(OPTIONS | speed | options))

    base = model()
    base.fit(
        pool(others, task.target[~task.inner]),
        eval_set=pool(inner, task.target[task.inner]),
        early_stopping_rounds=100,
        use_best_model=True,
    )
    rounds = int(base.tree_count_)
    refit = model(iterations=rounds).fit(pool(task.training, task.target)) if small else base
    return Answer(
        raw=_quantiles(refit, task.test, task.levels),
        base=_quantiles(base, task.test, task.levels),
        inner=_quantiles(base, inner, task.levels),
        rounds=rounds,
    )


def _quantiles(model: CatBoostRegressor, rows: Features, levels: np.ndarray) -> Predictive:
    quantiles = spread(LEVELS, np.asarray(model.predict(pool(rows))), levels)
    return Predictive(mean=quantiles.mean(axis=1), quantiles=quantiles)


if __name__ == "__main__":
    answer_tasks(answer)
