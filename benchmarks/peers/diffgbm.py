"""DiffGBM with its defaults (Koemen 2026): a diffusion model whose score is learned by LightGBM, given the features.

The residuals of cross-fitted boosted means are perturbed 30 times each; LightGBM learns to remove the noise. It stops
by a tenth of the rows it is given, so the inner rows serve only for the conformal correction. Up to 10,000 rows it is
refitted to all rows. Its quantiles are those of 100 samples a row, 50 solver steps each; so few samples raise the CRPS
by about 1 %. The results published for it were tuned for each table with 40 trials; these are not.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import numpy as np
from diffgbm import DiffGBM

from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import REFIT_UP_TO, Answer, Features, Predictive, TableTask, table_session

SAMPLES = 100


def answer(task: TableTask) -> Answer:
    """Fits the models and samples."""
    places = list(range(task.training.numbers.shape[1], task.training.joined().shape[1]))

    def fitted(rows: Features, target: np.ndarray) -> DiffGBM:
        model = DiffGBM(seed=task.seed, n_jobs=1, extra_residualizer_params={"n_jobs": 1})
        return model.fit(rows.joined(), target, cat_idx=places)

    base = fitted(task.training.take(~task.inner), task.target[~task.inner])
    of_base = _quantiles(base, task.test, task)
    small = len(task.training) <= REFIT_UP_TO
    return Answer(
        raw=_quantiles(fitted(task.training, task.target), task.test, task) if small else of_base,
        base=of_base,
        inner=_quantiles(base, task.training.take(task.inner), task),
        rounds=float(np.mean(base.n_estimators_true)),
    )


def _quantiles(model: DiffGBM, rows: Features, task: TableTask) -> Predictive:
    samples = model.sample(rows.joined(), n_samples=SAMPLES, seed=task.seed)
    return Predictive(mean=samples.mean(axis=0), quantiles=np.quantile(samples, task.levels, axis=0).T)


if __name__ == "__main__":
    drive(table=table_session(answer))
