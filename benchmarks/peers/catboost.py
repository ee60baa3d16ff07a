"""CatBoost in two variants: Normals whose mean and variance are boosted together, or 23 quantiles of one model.

``uncertainty`` has the loss RMSEWithUncertainty, ``quantiles`` MultiQuantile. The benchmark corrects each quantile;
levels between the 23 are interpolated linearly on the scale of Normal scores. Both have up to 2000 trees of depth 6
with learning rate 0.05, stopped after 100 trees without gain on the inner rows. Then they are refitted to all rows with
the same number of trees. Above 10,000 rows ``quantiles`` has up to 1000 trees with learning rate 0.1, and no refit.

Classes are a CatBoostClassifier of the same trees with the log loss.

The posterior virtual ensembles of its documentation add knowledge uncertainty. They need the Langevin sampler and are
not used.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import numpy as np
from catboost import CatBoostClassifier, CatBoostRegressor, FeaturesData, Pool

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

OPTIONS: dict[str, Any] = {
    "iterations": 2000,
    "learning_rate": 0.05,
    "thread_count": 1,
    "allow_writing_files": False,
    "verbose": False,
}
LOSSES = {
    "uncertainty": "RMSEWithUncertainty",
    "quantiles": "MultiQuantile:alpha=" + ",".join(f"{level:g}" for level in FITTED_LEVELS),
}


def answer(task: TableTask, variant: str) -> Answer:
    """Fits the models and predicts."""
    inner, others = task.training.take(task.inner), task.training.take(~task.inner)
    costly = variant == "quantiles" and len(task.training) > REFIT_UP_TO
    speed = {"iterations": 1000, "learning_rate": 0.1} if costly else {}
    predictive = _quantiles if variant == "quantiles" else _normals

    def model(**options: Any) -> CatBoostRegressor:
        return CatBoostRegressor(loss_function=LOSSES[variant], random_seed=task.seed, **(OPTIONS | speed | options))

    base = model()
    base.fit(
        pool(others, task.target[~task.inner]),
        eval_set=pool(inner, task.target[task.inner]),
        early_stopping_rounds=100,
        use_best_model=True,
    )
    rounds = int(base.tree_count_)
    refit = base if costly else model(iterations=rounds).fit(pool(task.training, task.target))
    return Answer(
        raw=predictive(refit, task.test, task.levels),
        base=predictive(base, task.test, task.levels),
        inner=predictive(base, inner, task.levels),
        rounds=rounds,
    )


def classify(task: ClassTask) -> ClassAnswer:
    """Fits a classifier and predicts."""
    inner, others = task.training.take(task.inner), task.training.take(~task.inner)

    def model(**options: Any) -> CatBoostClassifier:
        loss = "Logloss" if task.classes == 2 else "MultiClass"
        return CatBoostClassifier(loss_function=loss, random_seed=task.seed, **(OPTIONS | options))

    base = model()
    base.fit(
        pool(others, task.labels[~task.inner]),
        eval_set=pool(inner, task.labels[task.inner]),
        early_stopping_rounds=100,
        use_best_model=True,
    )
    rounds = max(1, int(base.tree_count_))
    refit = model(iterations=rounds).fit(pool(task.training, task.labels))
    return ClassAnswer(
        raw=refit.predict_proba(pool(task.test)),
        base=base.predict_proba(pool(task.test)),
        inner=base.predict_proba(pool(inner)),
        rounds=rounds,
    )


def pool(features: Features, target: np.ndarray | None = None) -> Pool:
    """Rows in CatBoost's form: numbers with NaN for missing, and categories."""
    numbers, categories = features.numbers.astype(np.float32), features.categories.astype("S").astype(object)
    data = FeaturesData(
        num_feature_data=numbers if numbers.shape[1] else None,
        cat_feature_data=categories if categories.shape[1] else None,
    )
    return Pool(data, label=target)


def _normals(model: CatBoostRegressor, rows: Features, _: np.ndarray) -> Predictive:
    answers = model.predict(pool(rows), prediction_type="RMSEWithUncertainty")
    return Predictive(mean=answers[:, 0], std=np.sqrt(np.maximum(answers[:, 1], 1e-300)))


def _quantiles(model: CatBoostRegressor, rows: Features, levels: np.ndarray) -> Predictive:
    return Predictive.of_fitted(np.asarray(model.predict(pool(rows))), levels)


if __name__ == "__main__":
    drive(table=table_session(answer), classes=classes_session(classify))
