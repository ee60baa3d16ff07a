"""`python -m benchmarks.why --data DIR`: shares beside known truth and enumeration, times, and what would help.

*known*: of a made-up table whose function is known, the mean |share| of each feature in the mean and in both variances.
*enumeration*: of 12 features, the sampled shares against those of all 4,096 sets: the root mean square of the
differences, per cent of that of the shares, and how many standard errors it is. *times*: processor time of the shares
of a row, and of a counterfactual, whose goal is a mean one standard deviation of the target higher.

*cells*: two cells of each of many held-out rows are blanked; one is revealed. The forecast fall of the variance against
the real one, for the cell that was named and for one by chance. *labels*: 20 labelled rows, and 10 more in each of
three turns: those named, those of the largest std (of classes, entropy), or some by chance; RMSE, or error and log loss
of classes, on test rows, as a share of that of chance at the end. Two of its tables are made up and have noise that
differs between rows: there the RMSE is that from the true function.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.datasets import SETS, TABULAR, add_data, read_set
from benchmarks.results import Report, add_counts, add_names, command, shown, table
from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.counterfactual import Goal, counterfactuals
from murho.model.evaluation.why import (
    PAIRS,
    Why,
    answer_requests,
    draws_and_noise,
    explain,
    rows_to_label,
    why,
    worth_asking,
)
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import Columns, select_rows
from murho.model.tables.schema_inference import columns_from_table, read_targets
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from numpy.typing import NDArray

    from murho.model.arrays import Bools, Doubles, Ints

Made = TypeVar("Made")
PARTS = ("known", "enumeration", "times", "cells", "labels")
QUICK: dict[str, Any] = {"quick": True}
REAL = ("abalone", "bike", "california")
LABELLED = ("banknote", "wheat_seeds", "yacht", "energy", "noisy half", "noise grows")
NOISY: dict[str, Callable[[Doubles], Doubles]] = {
    "noisy half": lambda x: np.where(x[:, 0] > 0.0, 1.5, 0.1),
    "noise grows": lambda x: 0.05 * np.exp(2.0 * (x[:, 1] + 1.0)),
}
"""Made-up tables: the standard deviation of the noise of rows ``[N, 2]`` in -1 to 1."""
FIRST, MORE, TURNS, POOL, TESTED = 20, 10, 3, 400, 600
PLAIN = {"hidden": (50,), "epochs": 200, "temperature": 0.3, "encoding": "standard", "whiten": "no"}
"""Fits to labelled rows differ by these rows alone, not by what a search chose."""
LEARNED = 2_000


def made_up(rows: int, features: int, seed: int) -> tuple[Doubles, Doubles]:
    """Features ``[N, F]`` and target: x0 adds, x1 x2 interact, x3 drives the noise, x4 and x5 are twins, x6… idle."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, features))
    x[:, 5] = x[:, 4] + 0.1 * generator.normal(size=rows)
    noise = 0.2 * np.exp(0.7 * x[:, 3]) * generator.normal(size=rows)
    return x, 1.5 * x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * (x[:, 4] + x[:, 5]) + noise


def _fitted(rows: pa.Table, target: str = "y", seed: int = 0, **options: object) -> Posterior:
    """Return the posterior of a quick fit, as it is served."""
    posterior = train(rows, target, make_options({**QUICK, **options, "seed": seed}), reporter=Reporter()).posterior
    return Posterior(posterior.spec, posterior.tensors)


def _table(x: Doubles, y: Doubles) -> pa.Table:
    return pa.table({**{f"x{place}": column for place, column in enumerate(x.T)}, "y": y})


def _shares(posterior: Posterior, columns: Columns, pairs: int = PAIRS) -> Why:
    options = PredictOptions()
    answer: Any = posterior.predict(columns, options)
    return answer_requests(why(posterior.schema, columns, answer, options, pairs=pairs), posterior)


def known(options: argparse.Namespace) -> Report:
    """Mean |share| by feature; and the epistemic share of a value far from the training rows."""
    x, y = made_up(1_500, 8, 0)
    posterior = _fitted(_table(x, y))
    columns = columns_from_table(_table(*made_up(options.explained, 8, 1)), posterior.schema)
    found = explain(posterior, columns, PredictOptions()).why
    overall = {name: np.abs(of).mean(axis=0) for name, of in found.shares.items()}
    far = {**select_rows(columns, np.arange(20)), "x0": np.full(20, 9.0)}
    beyond = _shares(posterior, far).shares["epistemic_variance"].mean(axis=0)
    lines = [[name, *(shown(float(of)) for of in values)] for name, values in overall.items()]
    lines.append(["epistemic, x0 = 9", *(shown(float(of)) for of in beyond)])
    print(table(["mean |share|", *found.features], lines))
    return {"overall": overall, "beyond": beyond}


def enumeration(_options: argparse.Namespace) -> Report:
    """Return sampled shares against those of all sets."""
    posterior = _fitted(_table(*made_up(1_500, 12, 0)))
    columns = columns_from_table(_table(*made_up(20, 12, 1)), posterior.schema)
    sampled, exact = _shares(posterior, columns), _shares(posterior, columns, 2**11 - 1)
    found, lines = {}, []
    for name, shares in exact.shares.items():
        off = sampled.shares[name] - shares
        errors = np.maximum((sampled.errors or {})[name], 1e-12)
        found[name] = [100.0 * np.sqrt((off**2).mean() / (shares**2).mean()), np.sqrt(((off / errors) ** 2).mean())]
        lines.append([name, *(shown(float(of)) for of in found[name])])
    print(table(["12 features", "error, %", "in standard errors"], lines))
    return found


def times(_options: argparse.Namespace) -> Report:
    """Processor time of shares and counterfactuals, milliseconds a row."""
    found = {}
    for features in (10, 60):
        x, y = made_up(1_500, features, 0)
        posterior = _fitted(_table(x, y))
        columns = columns_from_table(_table(*made_up(4, features, 1)), posterior.schema)
        shares, _ = _milliseconds(partial(_shares, posterior, columns))
        changed, reached = _milliseconds(partial(_reached, posterior, columns, y.std()))
        found[str(features)] = [shares, changed, reached]
    lines = [[name, *map(shown, of)] for name, of in found.items()]
    print(table(["features", "shares, ms a row", "counterfactual, ms", "reached, of 4"], lines))
    return found


def _reached(posterior: Posterior, columns: Columns, higher: float) -> int:
    """For how many of 4 rows a counterfactual has a mean that is so much higher."""
    answer: Any = posterior.predict(columns, PredictOptions())
    reached = 0
    for row in range(4):
        goal = Goal.model_validate({"mean": {"at_least": float(answer.mean[row] + higher)}})
        given, asked = select_rows(columns, np.array([row])), goal.options(posterior.schema)
        asking = counterfactuals(posterior.schema, posterior.encoder.distribution, given, goal, asked)
        reached += len(answer_requests(asking, posterior).distances) > 0
    return reached


def _milliseconds(work: Callable[[], Made]) -> tuple[float, Made]:
    """Processor time of a quarter of some work, the least of three times; and what it made."""
    spent = []
    for _ in range(3):
        begin = time.process_time()
        made = work()
        spent.append(250.0 * (time.process_time() - begin))
    return min(spent), made


def cells(options: argparse.Namespace) -> Report:
    """Return the fall of the variance when a blanked cell is revealed, as a share of the variance before."""
    found, lines = dict[str, dict[str, list[float]]](), []
    for name in options.sets:
        rows, target, generator = read_set(TABULAR[name], options.data), TABULAR[name].target, np.random.default_rng(0)
        order = generator.permutation(rows.num_rows)
        posterior = _fitted(rows.take(order[:LEARNED]), target)
        whole = columns_from_table(rows.take(order[LEARNED : LEARNED + options.rows]), posterior.schema)
        asked, names, count = PredictOptions(percentiles=()), list(whole), len(order[LEARNED : LEARNED + options.rows])
        gone = np.stack([generator.permutation(len(names))[:2] for _ in range(count)])
        blanked = _with(whole, {of: (gone == place).any(axis=1) for place, of in enumerate(names)})
        before: Any = posterior.predict(blanked, asked)
        asking = worth_asking(posterior.encoder.distribution, posterior.schema, blanked, before, asked)
        worth = answer_requests(asking, posterior)
        forecast = {(row, cell["feature"]): cell["fall"] for row, of_row in enumerate(worth) for cell in of_row}
        named = np.array([names.index(of_row[0]["feature"]) for of_row in worth])
        square, found[name] = float(np.mean(before.std**2)), {}
        for how, chosen in (("named", named), ("by chance", gone[:, 0])):
            still = {of: (gone == place).any(axis=1) & (chosen != place) for place, of in enumerate(names)}
            after: Any = posterior.predict(_with(whole, still), asked)
            real = float(np.mean(before.std**2 - after.std**2)) / square
            expected = float(np.mean([forecast[row, names[place]] for row, place in enumerate(chosen)])) / square
            found[name][how] = [expected, real]
            lines.append([name, how, shown(expected), shown(real)])
    print(table(["table", "revealed cell", "forecast fall", "real fall"], lines))
    return found


def _with(columns: Columns, gone: dict[str, Bools]) -> dict[str, NDArray[Any]]:
    """Columns without some cells."""
    nothing = {name: np.array(None if of.dtype == object else np.nan) for name, of in columns.items()}
    return {name: np.where(gone[name], nothing[name], of) for name, of in columns.items()}


def _noisy(name: str) -> pa.Table:
    """Make a table whose noise differs between rows; the rows after the pool have the true function instead."""
    generator = np.random.default_rng(0)
    features = generator.uniform(-1.0, 1.0, (POOL + TESTED, 2))
    truth = np.sin(3.0 * features[:, 0]) + features[:, 1] ** 2 + features[:, 0] * features[:, 1]
    noise = NOISY[name](features) * generator.standard_normal(len(truth))
    targets = np.where(np.arange(len(truth)) < POOL, truth + noise, truth)
    return pa.table({"a": features[:, 0], "b": features[:, 1], "y": targets})


def labels(options: argparse.Namespace) -> Report:
    """Score on test rows after each turn of labelling, as shares of those of chance at the end; mean over seeds."""
    found, lines = {}, []
    for name in options.labelled:
        is_made_up = name in NOISY
        rows = _noisy(name) if is_made_up else read_set(SETS[name], options.data)
        target = "y" if is_made_up else SETS[name].target
        curves: dict[str, list[list[list[float]]]] = {"named": [], "largest std": [], "by chance": []}
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(POOL if is_made_up else rows.num_rows)
            pool, test = np.split(
                order[: POOL + TESTED], [min(POOL, len(order) if is_made_up else 2 * len(order) // 3)]
            )
            test = np.arange(POOL, POOL + TESTED) if is_made_up else test
            begin = _fitted(rows.take(pool[:FIRST]), target, seed, **PLAIN)
            for how, kept in curves.items():
                generator, labelled, posterior = np.random.default_rng(seed), pool[:FIRST], begin
                curve = [_scores(posterior, rows.take(test))]
                for _ in range(TURNS):
                    others = np.setdiff1d(pool, labelled)
                    best = _chosen(how, posterior, rows.take(others), generator)
                    labelled = np.append(labelled, others[best])
                    posterior = _fitted(rows.take(labelled), target, seed, **PLAIN)
                    curve.append(_scores(posterior, rows.take(test)))
                kept.append(curve)
        found[name] = curves
        units = np.mean(curves["by chance"], axis=0)[-1]
        for how, kept in curves.items():
            means, error = np.mean(kept, axis=0) / units, np.std(kept, axis=0, ddof=1)[-1] / units / len(kept) ** 0.5
            for place, measure in enumerate(("error", "log loss") if len(units) > 1 else ("RMSE",)):
                shares = [f"{mean:.3f}" for mean in means[:, place]]
                lines.append([name, measure, how, *shares, f"{error[place]:.3f}"])
    turns = [str(FIRST + turn * MORE) for turn in range(TURNS + 1)]
    print(table(["table", "measure", "rows labelled", *turns, "±"], lines))
    return {"curves": found}


def _chosen(how: str, posterior: Posterior, rows: pa.Table, generator: np.random.Generator) -> Ints:
    options = PredictOptions(percentiles=(), calibrated=False, draws=True)
    told: Any = posterior.predict(columns_from_table(rows, posterior.schema), options)
    if how == "named":
        return np.array(rows_to_label(*draws_and_noise(told), MORE)[0])
    if how == "largest std":
        return np.argsort(-(told.std if told.classes is None else told.entropy))[:MORE]
    return generator.permutation(rows.num_rows)[:MORE]


def _scores(posterior: Posterior, rows: pa.Table) -> list[float]:
    """RMSE; or of classes the share of wrong ones, and the log loss."""
    answer: Any = posterior.predict(columns_from_table(rows, posterior.schema), PredictOptions(percentiles=()))
    truth = read_targets(rows, posterior.schema.target)
    if answer.classes is None:
        return [float(np.sqrt(np.mean((answer.mean - truth) ** 2)))]
    of_class = answer.probabilities[np.arange(len(truth)), truth.astype(np.int64)]
    return [float(np.mean(answer.prediction != truth)), float(-np.log(of_class).mean())]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_names(parser, parts=PARTS, labelled=LABELLED)
    add_data(parser, TABULAR, REAL)
    add_counts(
        parser,
        explained=(200, "rows whose shares are told"),
        rows=(1_000, "rows whose cells are blanked"),
        seeds=(3, "of the labels"),
    )


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    return {name: globals()[name](options) for name in options.parts}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
