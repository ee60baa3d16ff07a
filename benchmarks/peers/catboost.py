"""CatBoost with MultiQuantile: 23 quantiles of one model, each corrected by the benchmark.

Levels between the 23 are interpolated linearly on the scale of Normal scores. Up to 2000 trees of depth 6 with learning
rate 0.05, stopped after 100 trees without gain on the inner rows, then refitted to all rows with the same number of
trees. Above 10,000 rows it has up to 1000 trees with learning rate 0.1, and no refit. Classes are a CatBoostClassifier
of the same trees with the log loss.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import numpy as np
from catboost import CatBoostClassifier, CatBoostRegressor, FeaturesData, Pool

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import FITTED_LEVELS, REFIT_UP_TO, Answer, Features, Predictive, TableTask, table_session

OPTIONS: dict[str, Any] = {
    "iterations": 2000,
    "learning_rate": 0.05,
    "thread_count": 1,
    "allow_writing_files": False,
    "verbose": False,
}
QUANTILES = "MultiQuantile:alpha=" + ",".join(f"{level:g}" for level in FITTED_LEVELS)


def answer(task: TableTask) -> Answer:
    """Fit the models and predict."""
    costly = len(task.training) > REFIT_UP_TO
    speed = {"iterations": 1000, "learning_rate": 0.1} if costly else {}
    fit = _fits(task, CatBoostRegressor, {"loss_function": QUANTILES, **speed}, refitted=not costly)

    def quantiles(model: Any, rows: Features) -> Predictive:
        return Predictive.of_fitted(np.asarray(model.predict(_pool(rows))), task.levels)

    return _answer(task, fit, quantiles)


def classify(task: TableTask) -> Answer:
    """Fit a classifier and predict."""
    loss = "Logloss" if task.target.max() < 2 else "MultiClass"
    fit = _fits(task, CatBoostClassifier, {"loss_function": loss}, refitted=True)
    return _answer(task, fit, lambda model, rows: model.predict_proba(_pool(rows)))


def _fits(task: TableTask, kind: Any, options: dict[str, Any], *, refitted: bool) -> tuple[Any, Any]:
    """Return the model that the inner rows stop, and the one refitted to all rows; without a refit the first again."""
    inner, others = (_pool(task.training.take(rows), task.target[rows]) for rows in (task.inner, ~task.inner))
    options = OPTIONS | {"random_seed": task.seed} | options
    base = kind(**options).fit(others, eval_set=inner, early_stopping_rounds=100, use_best_model=True)
    if not refitted:
        return base, base
    rounds = max(1, int(base.tree_count_))
    return base, kind(**(options | {"iterations": rounds})).fit(_pool(task.training, task.target))


def _answer(task: TableTask, fits: tuple[Any, Any], of: Any) -> Answer:
    base, refit = fits
    inner = task.training.take(task.inner)
    return Answer(of(refit, task.test), of(base, task.test), of(base, inner))


def _pool(features: Features, target: np.ndarray | None = None) -> Pool:
    """Rows in CatBoost's form: numbers with NaN for missing, and categories."""
    numbers, categories = features.numbers.astype(np.float32), features.categories.astype("S").astype(object)
    data = FeaturesData(
        num_feature_data=numbers if numbers.shape[1] else None,
        cat_feature_data=categories if categories.shape[1] else None,
    )
    return Pool(data, label=target)


if __name__ == "__main__":
    drive(table=table_session(answer), classes=table_session(classify))
