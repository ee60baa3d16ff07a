"""LightGBM with the quantile objective: a model for each of 23 levels, with a conformal correction by the benchmark.

Each model has up to 2000 trees of 31 leaves with learning rate 0.05, stopped after 50 trees without gain on the inner
rows; above 10,000 rows it has up to 1000 trees with learning rate 0.1, stopped after 30. Up to 10,000 rows it is
refitted to all rows. The mean is the mean of the quantiles. Levels between the 23 are interpolated linearly on the
scale of Normal scores.

Classes are one model of the same trees with the log loss, always refitted.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import FITTED_LEVELS, REFIT_UP_TO, Answer, Features, Predictive, TableTask, table_session

ROWS_FOR_FULL_LEAVES = 1_000
"""With fewer rows, leaves may have 5 rows instead of 20, as its documentation advises for small tables."""


def answer(task: TableTask) -> Answer:
    """Fit the models and predict."""
    inner, small = task.training.take(task.inner), len(task.training) <= REFIT_UP_TO
    fits = [_fits(task, {"objective": "quantile", "alpha": float(level)}, refitted=small) for level in FITTED_LEVELS]
    base, refit = ([fit[place] for fit in fits] for place in (0, 1))
    return Answer(
        raw=_quantiles(refit, task.test, task.levels),
        base=_quantiles(base, task.test, task.levels),
        inner=_quantiles(base, inner, task.levels),
    )


def classify(task: TableTask) -> Answer:
    """Fit a classifier and predict."""
    count = int(task.target.max()) + 1
    objective = {"objective": "binary"} if count == 2 else {"objective": "multiclass", "num_class": count}
    base, refit = _fits(task, objective, refitted=True)

    def probabilities(model: lightgbm.Booster, rows: Features) -> np.ndarray:
        found = model.predict(rows.joined())
        return np.stack([1.0 - found, found], axis=1) if count == 2 else found

    return Answer(
        raw=probabilities(refit, task.test),
        base=probabilities(base, task.test),
        inner=probabilities(base, task.training.take(task.inner)),
    )


def _fits(task: TableTask, objective: dict[str, Any], *, refitted: bool) -> tuple[lightgbm.Booster, lightgbm.Booster]:
    """Return the model that the inner rows stop, and the one refitted to all rows; without a refit the first again."""
    small = len(task.training) <= REFIT_UP_TO
    places = list(range(task.training.numbers.shape[1], task.training.joined().shape[1]))

    def data(features: Features, labels: np.ndarray, reference: lightgbm.Dataset | None) -> lightgbm.Dataset:
        return lightgbm.Dataset(
            features.joined(),
            labels,
            categorical_feature=places,
            reference=reference,
            free_raw_data=False,
            params={"verbosity": -1},
        )

    others = data(task.training.take(~task.inner), task.target[~task.inner], None)
    options = {
        "learning_rate": 0.05 if small else 0.1,
        "num_leaves": 31,
        "min_data_in_leaf": 20 if len(task.training) >= ROWS_FOR_FULL_LEAVES else 5,
        "num_threads": 1,
        "verbosity": -1,
        "seed": task.seed,
        "deterministic": True,
        **objective,
    }
    base = lightgbm.train(
        options,
        others,
        num_boost_round=2000 if small else 1000,
        valid_sets=[data(task.training.take(task.inner), task.target[task.inner], others)],
        callbacks=[lightgbm.early_stopping(50 if small else 30, verbose=False)],
    )
    if not refitted:
        return base, base
    everything = data(task.training, task.target, None)
    return base, lightgbm.train(options, everything, num_boost_round=max(1, base.best_iteration))


def _quantiles(models: list[lightgbm.Booster], rows: Features, levels: np.ndarray) -> Predictive:
    joined = rows.joined()
    return Predictive.of_fitted(np.stack([model.predict(joined) for model in models], axis=1), levels)


if __name__ == "__main__":
    drive(table=table_session(answer), classes=table_session(classify))
