"""Murho as a model of ScoringBench, the benchmark of probabilistic regression (arXiv:2603.29928).

`MurhoWrapper` is the one class that ScoringBench asks for. `python examples/scoring_bench.py TABLE TARGET` runs its
protocol on a table without it: at most 3,000 rows, five folds, the CRPS, RMSE and coverage of 90 % bands.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from pyarrow import csv
from sklearn.model_selection import KFold

from murho import BBBRegressor

try:
    from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper
except ImportError:  # the protocol below does without it
    ProbabilisticWrapper = object

LEVELS = np.arange(1, 100) / 100
MOST_ROWS, FOLDS, SEED = 3_000, 5, 42


class MurhoWrapper(ProbabilisticWrapper):
    """A training with the defaults, or with options of `murho.BBBRegressor`."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def fit(self, X: Any, y: Any) -> MurhoWrapper:
        """Fit to a frame or a matrix ``[N, D]`` and targets ``[N]``."""
        self._y_train_range = float(np.min(y)), float(np.max(y))
        self.model = BBBRegressor(random_state=SEED, **self.options).fit(X, y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the mean of each row, ``[B]``."""
        return self.model.predict(X)

    def predict_distribution(self, X: Any) -> Any:
        """Return the 99 percentiles of each row, as ScoringBench's distribution."""
        answer = self.model.predict_dist(X)
        return DistributionPrediction.from_multi_quantile(
            answer.ppf(LEVELS[:, None]).T, LEVELS, answer.mean, train_range=self._y_train_range
        )


def main() -> None:
    """Run the protocol on a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="a CSV file")
    parser.add_argument("target")
    parser.add_argument("--quick", action="store_true", help="quick fits")
    options = parser.parse_args()
    table = csv.read_csv(options.table)
    table = table.filter(table[options.target].is_valid())
    if table.num_rows > MOST_ROWS:
        table = table.take(np.random.default_rng(SEED).permutation(table.num_rows)[:MOST_ROWS])
    features, target = table.drop_columns([options.target]), table[options.target].to_numpy().astype(float)
    folds = []
    for training, test in KFold(FOLDS, shuffle=True, random_state=SEED).split(target):
        model = MurhoWrapper(quick=options.quick).fit(features.take(training), target[training])
        answer, truth = model.model.predict_dist(features.take(test)), target[test]
        error = truth - answer.ppf(LEVELS[:, None])
        lower, upper = answer.interval(0.9)
        crps = 2.0 * np.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1.0) * error).mean()
        rmse, covered = np.sqrt(np.square(truth - answer.mean).mean()), ((lower <= truth) & (truth <= upper)).mean()
        folds.append((crps, rmse, covered))
        print(f"fold {len(folds)}: CRPS {crps:.4g}, RMSE {rmse:.4g}, 90 % bands {covered:.1%}")
    (crps, rmse, covered), errors = np.mean(folds, axis=0), np.std(folds, axis=0, ddof=1) / FOLDS**0.5
    print(f"CRPS {crps:.4g} ± {errors[0]:.2g}, RMSE {rmse:.4g} ± {errors[1]:.2g}, 90 % bands {covered:.1%}")


if __name__ == "__main__":
    main()
