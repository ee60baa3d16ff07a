"""`python -m benchmarks.why`: shares against a known truth and against enumeration, times, and what would help.

*known*: of a made-up table whose function is known, the mean |share| of each feature in the mean and in both variances.
*enumeration*: of 12 features, the sampled shares against those of all 4,096 sets: the root mean square of the
differences, per cent of that of the shares, and how many standard errors it is. *times*: processor time of a row.
*cells*: two cells of held-out rows are blanked; of each row one is revealed. The forecast fall of the variance against
the real one, for the cell that was named and for one by chance. *labels*: 60 labelled rows, and 20 more in each of
three turns: those named, those of the largest epistemic std, or some by chance; RMSE on test rows.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.results import Report, add_counts, add_names, command, shown, table
from murho.model.evaluation import why as module
from murho.model.evaluation.why import Why, answered, explain, rows_to_label, why, worth_asking
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.columns import select_rows
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.tables.schema import Columns

__all__ = ["main"]

PARTS = ("known", "enumeration", "times", "cells", "labels")
QUICK: dict[str, Any] = {"budget": 20.0}


def made_up(rows: int, features: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features ``[N, F]`` and target: x0 adds, x1 x2 interact, x3 drives the noise, x4 and x5 are twins, x6… idle."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, features))
    x[:, 5] = x[:, 4] + 0.1 * generator.normal(size=rows)
    noise = 0.2 * np.exp(0.7 * x[:, 3]) * generator.normal(size=rows)
    return x, 1.5 * x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * (x[:, 4] + x[:, 5]) + noise


def _fitted(x: NDArray[np.float64], y: NDArray[np.float64]) -> Posterior:
    return train(_table(x, y), "y", make_options(QUICK), reporter=Reporter()).posterior


def _table(x: NDArray[np.float64], y: NDArray[np.float64]) -> pa.Table:
    return pa.table({**{f"x{place}": column for place, column in enumerate(x.T)}, "y": y})


def _shares(posterior: Posterior, columns: Columns, options: PredictOptions) -> Why:
    return answered(why(posterior.schema, columns, posterior.predict(columns, options), options), posterior)


def known(options: argparse.Namespace) -> Report:
    """Mean |share| by feature; and the epistemic share of a value far from the training rows."""
    x, y = made_up(1_500, 8, 0)
    posterior = _fitted(x, y)
    columns = columns_from_table(_table(*made_up(options.rows, 8, 1)), posterior.schema)
    found = explain(posterior, columns, PredictOptions()).why
    overall = {name: np.abs(of).mean(axis=0) for name, of in found.shares.items()}
    far = {**select_rows(columns, np.arange(20)), "x0": np.full(20, 9.0)}
    beyond = _shares(posterior, far, PredictOptions()).shares["epistemic_variance"].mean(axis=0)
    lines = [[name, *(shown(float(of)) for of in values)] for name, values in overall.items()]
    lines.append(["epistemic, x0 = 9", *(shown(float(of)) for of in beyond)])
    print(table(["mean |share|", *found.features], lines))
    return {"overall": overall, "beyond": beyond}


def enumeration(options: argparse.Namespace) -> Report:
    """Sampled shares against those of all sets."""
    posterior = _fitted(*made_up(1_500, 12, 0))
    columns = columns_from_table(_table(*made_up(min(options.rows, 20), 12, 1)), posterior.schema)
    sampled, pairs = _shares(posterior, columns, PredictOptions()), module.PAIRS
    try:
        module.PAIRS = 2**11 - 1
        module._sets.cache_clear()
        exact = _shares(posterior, columns, PredictOptions())
    finally:
        module.PAIRS = pairs
        module._sets.cache_clear()
    found, lines = {}, []
    for name, shares in exact.shares.items():
        off = sampled.shares[name] - shares
        errors = np.maximum((sampled.errors or {})[name], 1e-12)
        found[name] = [100.0 * np.sqrt((off**2).mean() / (shares**2).mean()), np.sqrt(((off / errors) ** 2).mean())]
        lines.append([name, *(shown(float(of)) for of in found[name])])
    print(table(["12 features", "error, %", "in standard errors"], lines))
    return found


def times(options: argparse.Namespace) -> Report:
    """Processor time of shares, milliseconds a row."""
    found = {}
    for features in options.features:
        posterior = _fitted(*made_up(1_500, features, 0))
        columns = columns_from_table(_table(*made_up(4, features, 1)), posterior.schema)
        answer, spent = posterior.predict(columns, PredictOptions()), []
        for _ in range(3):
            begin = time.process_time()
            answered(why(posterior.schema, columns, answer, PredictOptions()), posterior)
            spent.append(1_000.0 * (time.process_time() - begin) / 4)
        found[str(features)] = min(spent)
    print(table(["features", "ms a row"], [[name, shown(of)] for name, of in found.items()]))
    return found


def cells(options: argparse.Namespace) -> Report:
    """The fall of the variance when a blanked cell is revealed."""
    x, y = made_up(1_500, 8, 0)
    posterior = _fitted(x, y)
    asked, generator = PredictOptions(percentiles=()), np.random.default_rng(0)
    whole = columns_from_table(_table(*made_up(options.rows, 8, 1)), posterior.schema)
    names, count = list(whole), options.rows
    gone = np.stack([generator.permutation(8)[:2] for _ in range(count)])
    blanked = {name: np.where((gone == place).any(axis=1), np.nan, whole[name]) for place, name in enumerate(names)}
    before = posterior.predict(blanked, asked)
    worth = answered(worth_asking(posterior.encoder.distribution, posterior.schema, blanked, before, asked), posterior)
    forecast = {(row, cell["feature"]): cell["fall"] for row, of_row in enumerate(worth) for cell in of_row}
    named = [names.index(of_row[0]["feature"]) for of_row in worth]
    found, lines = {}, []
    for how, chosen in (("named", np.array(named)), ("by chance", gone[:, 0])):
        revealed = {name: np.where(chosen == place, whole[name], blanked[name]) for place, name in enumerate(names)}
        real = float((before.std**2 - posterior.predict(revealed, asked).std ** 2).mean())
        expected = float(np.mean([forecast[row, names[place]] for row, place in enumerate(chosen)]))
        found[how] = [expected, real]
        lines.append([how, shown(expected), shown(real)])
    print(table(["revealed cell", "forecast fall", "real fall"], lines))
    return found


def labels(options: argparse.Namespace) -> Report:
    """RMSE on test rows after each turn of labelling, mean over seeds."""
    curves: dict[str, list[list[float]]] = {"named": [], "largest std": [], "by chance": []}
    for seed in range(options.seeds):
        x, y = made_up(600, 8, seed)
        test, truth = made_up(1_000, 8, 100 + seed)
        for how, kept in curves.items():
            generator, labelled, curve = np.random.default_rng(seed), list(range(60)), list[float]()
            for _ in range(4):
                posterior = _fitted(x[labelled], y[labelled])
                answer = posterior.predict(columns_from_table(_table(test, truth), posterior.schema), PredictOptions())
                curve.append(float(np.sqrt(np.mean((answer.mean - truth) ** 2))))
                pool = np.setdiff1d(np.arange(600), labelled)
                of_pool = columns_from_table(_table(x[pool], y[pool]), posterior.schema)
                told = posterior.predict(of_pool, PredictOptions(percentiles=(), calibrated=False, draws=True))
                best = generator.permutation(len(pool))[:20]
                if how == "named":
                    best = np.array(rows_to_label(told.draws, told.aleatoric_std**2, 20)[0])
                elif how == "largest std":
                    best = np.argsort(-told.std)[:20]
                labelled += pool[best].tolist()
            kept.append(curve)
    means = {how: np.mean(kept, axis=0).tolist() for how, kept in curves.items()}
    print(table(["rows labelled", "60", "80", "100", "120"], [[how, *map(shown, of)] for how, of in means.items()]))
    return {"curves": curves}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_names(parser, parts=PARTS)
    add_counts(parser, rows=(200, "rows that are explained, or whose cells are blanked"), seeds=(2, "of the labels"))
    parser.set_defaults(features=(10, 60))


def run(options: argparse.Namespace) -> Report:
    """Measures and prints."""
    return {name: globals()[name](options) for name in options.parts}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
