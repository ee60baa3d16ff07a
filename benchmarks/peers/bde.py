"""sklearn-contrib-bde: a Bayesian deep ensemble, eight 2 x 16 networks sampled by microcanonical Langevin dynamics.

Sommer et al. 2025 (arXiv 2502.06335). All settings are those of the regression example in the library's README: 200
epochs to start from, 5,000 steps of warm-up and 2,000 of sampling, of which every second is kept. The answer is the
mixture of Normals of all networks and draws. Inputs and targets are standardised, categories one-hot, missing numbers
the mean with an indicator.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import numpy as np
from bde import BdeRegressor
from bde.loss import GaussianNLL
from scipy.special import ndtri

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import Answer, Predictive, TableTask, table_session

DRAWS, POINTS = 200, 100
"""Draws of the mixture that quantiles are taken from, and points of each of its Normals."""
PIECE = 500
"""Rows whose quantiles are taken at a time."""


def answer(task: TableTask) -> Answer:
    """Fit the ensembles and predict."""
    rows, test = task.standardised(indicators=True)
    centre, unit = task.target.mean(), task.target.std()
    targets = (task.target - centre) / unit

    def fitted(chosen: np.ndarray) -> BdeRegressor:
        model = BdeRegressor(
            hidden_layers=[16, 16],
            n_members=8,
            seed=task.seed,
            loss=GaussianNLL(),
            epochs=200,
            validation_split=0.15,
            lr=1e-3,
            weight_decay=1e-4,
            warmup_steps=5000,
            n_samples=2000,
            n_thinning=2,
            patience=10,
        )
        model.fit(x=rows[chosen], y=targets[chosen])
        return model

    def mixture(model: BdeRegressor, inputs: np.ndarray) -> Predictive:
        outputs = np.asarray(model.predict(inputs, raw=True), dtype=np.float64).reshape(-1, len(inputs), 2)
        means, stds = outputs[..., 0], np.logaddexp(0.0, outputs[..., 1])
        grid, some = ndtri((np.arange(POINTS) + 0.5) / POINTS), np.linspace(0, len(means) - 1, DRAWS).astype(int)
        pieces = zip(
            *(np.array_split(part[some], -(-len(inputs) // PIECE), axis=1) for part in (means, stds)), strict=True
        )
        quantiles = [
            np.quantile((grid[:, None, None] * std + mean).reshape(-1, mean.shape[1]), task.levels, axis=0).T
            for mean, std in pieces
        ]
        std = np.sqrt(means.var(axis=0) + np.square(stds).mean(axis=0))
        return Predictive(means.mean(axis=0) * unit + centre, np.vstack(quantiles) * unit + centre, std * unit)

    base, every = fitted(~task.inner), fitted(np.ones_like(task.inner))
    return Answer(mixture(every, test), mixture(base, test), mixture(base, rows[task.inner]))


if __name__ == "__main__":
    drive(table=table_session(answer))
