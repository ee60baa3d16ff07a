"""`python -m benchmarks.live --data DIR`: bands that follow outcomes, where the world changes.

Murho learns bike sharing of 2011 with the defaults and is asked for each hour of 2012, in which far more bikes were
rented; how many they were is told 0, 24 or 168 hours late. 90 % bands of the same predictions: those of the checkpoint
(``static``), MAPIE's adaptive conformal inference, crepes over the newest 500 outcomes (errors in units of ``std``),
and the two ways of `model.calibration.adaptation`. Prints what they cover in all, in the worst 500 hours on end, and
their mean width in bikes.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import torch

from benchmarks.datasets import SETS, add_data, read_set
from benchmarks.results import Report, command
from benchmarks.runner import Task, add_fits, fit_job, fits_of, mean, one_each
from murho.model.calibration.adaptation import Adaptation, AdaptationMethod
from murho.model.calibration.conformal import AdaptedMap, ConformalMap
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.train import Trained

    Doubles = NDArray[np.float64]

DELAYS = (0, 24, 168)
COVERAGE, WINDOW, STRETCH = 0.9, 500, 500
GAMMA = 0.005
"""MAPIE's step; of 0.001, 0.005 and 0.02 the best."""
SCORES = torch.linspace(-8.0, 8.0, 129, dtype=torch.float64)
"""Normal scores at which the raw predictive of each row is kept."""
NOMINAL = torch.special.ndtri(torch.tensor([0.5 - COVERAGE / 2.0, 0.5 + COVERAGE / 2.0], dtype=torch.float64))


class Asked:
    """Rows in time, with what a model says of each.

    Args:
        posterior: The model.
        rows: Labelled rows.
    """

    def __init__(self, posterior: Posterior, rows: pa.Table) -> None:
        columns = columns_from_table(rows, posterior.schema)
        self.truth = target_from_table(rows, posterior.schema.target)
        levels = tuple((100.0 * torch.special.ndtr(SCORES).numpy()).tolist())
        raw = posterior.predict(columns, PredictOptions(percentiles=levels, calibrated=False))
        static = posterior.predict(columns, PredictOptions(percentiles=(5.0, 95.0)))
        self.mean, self.std, self.static = (np.asarray(each) for each in (raw.mean, static.std, static.percentiles))
        self.quantiles = np.maximum.accumulate(np.asarray(raw.percentiles), axis=1)
        self.base = cast("ConformalMap | None", posterior.calibration)
        raw_scores = torch.from_numpy(_scores(self.quantiles, self.truth))
        self.scores = raw_scores if self.base is None else self.base.nominal_of(raw_scores)
        """Normal score of each outcome under the checkpoint's calibration, ``[N]``."""

    def band(self, row: int, moved: ConformalMap | None) -> Doubles:
        """Return the band of a row as outcomes move it."""
        if moved is None:
            ends: Doubles = self.static[row]
            return ends
        reached = AdaptedMap(moved, self.base).calibrate(NOMINAL).numpy()
        return np.asarray(np.interp(reached, SCORES.numpy(), self.quantiles[row]))


def _scores(quantiles: Doubles, truth: Doubles) -> Doubles:
    """Return normal score of each outcome; that of a value with a probability of its own is drawn from its span."""
    levels, found = torch.special.ndtr(SCORES).numpy(), np.empty(len(truth))
    middles = np.concatenate([levels[:1], 0.5 * (levels[1:] + levels[:-1]), levels[-1:]])
    shares = np.random.default_rng(0).uniform(size=len(truth))
    for row, (value, own) in enumerate(zip(truth, quantiles, strict=True)):
        first, last = np.searchsorted(own, value, "left"), np.searchsorted(own, value, "right")
        level = middles[first] + shares[row] * (middles[last] - middles[first])
        found[row] = torch.special.ndtri(torch.tensor(level)) if last > first else np.interp(value, own, SCORES)
    return found


def _ours(method: AdaptationMethod) -> Callable[[Asked, int], Doubles]:
    def bands(asked: Asked, late: int) -> Doubles:
        state, found = Adaptation(method), np.empty((len(asked.truth), 2))
        states: list[Adaptation] = []
        pits = torch.special.ndtr(asked.scores).numpy()
        for row in range(len(found)):
            if row > late:
                then = states[row - late - 1]
                state = state.update(pits[row - late - 1 : row - late], None if then.drift_map is None else then)
            states.append(state)
            found[row] = asked.band(row, state.drift_map)
            if state.drift_map is not None:
                pits[row] = float(torch.special.ndtr(state.drift_map.nominal_of(asked.scores[row])))
        return found

    return bands


def _static(asked: Asked, _late: int) -> Doubles:
    return asked.static


def _crepes(asked: Asked, late: int) -> Doubles:
    from crepes import ConformalRegressor

    found = asked.static.copy()
    for row in range(len(found)):
        if (known := row - late) >= 20:
            newest = slice(max(0, known - WINDOW), known)
            errors, regressor = asked.truth[newest] - asked.mean[newest], ConformalRegressor()
            regressor.fit(errors, sigmas=asked.std[newest])
            own = slice(row, row + 1)
            found[row] = regressor.predict_int(asked.mean[own], sigmas=asked.std[own], confidence=COVERAGE, y_min=0.0)[
                0
            ]
    return found


def _mapie(asked: Asked, late: int) -> Doubles:
    from mapie.regression import TimeSeriesRegressor
    from sklearn.base import BaseEstimator, RegressorMixin

    class Predicted(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        """Predictions that were made."""

        fitted_ = True

        def fit(self, _x: Doubles, _y: Doubles) -> Predicted:
            return self

        def predict(self, x: Doubles) -> Doubles:
            return x[:, 0]

    found, rows = asked.static.copy(), asked.mean[:, None]
    fitted: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in range(len(found)):
            known = row - late
            if known < 20:
                continue
            if fitted is None or known == WINDOW:
                fitted = TimeSeriesRegressor(Predicted().fit(rows, asked.truth), method="aci", cv="prefit")
                fitted.fit(rows[:known], asked.truth[:known])
            else:
                newest = slice(known - 1, known)
                fitted.adapt_conformal_inference(
                    rows[newest], asked.truth[newest], gamma=GAMMA, confidence_level=COVERAGE
                )
                fitted.update(rows[newest], asked.truth[newest])
            _, ends = fitted.predict(rows[row : row + 1], confidence_level=COVERAGE, allow_infinite_bounds=True)
            found[row] = ends[0, :, 0].clip(0.0, 2.0 * asked.truth[:known].max())  # of few outcomes they are infinite
    return found


WAYS: dict[str, Callable[[Asked, int], Doubles]] = {
    "static": _static,
    "MAPIE, ACI": _mapie,
    "crepes, newest 500": _crepes,
    **{f"Murho, {method}": _ours(method) for method in get_args(AdaptationMethod)},
}


COLUMNS = {
    "cover, %": mean("coverage", 100.0),
    "worst 500, %": mean("worst", 100.0),
    "width, bikes": mean("width"),
}


def scores(bands: Doubles, truth: Doubles) -> Report:
    """Coverage in all and in the worst 500 rows on end, and mean width."""
    inside = (bands[:, 0] <= truth) & (truth <= bands[:, 1])
    counts = np.concatenate([[0], np.cumsum(inside)])
    stretch = min(STRETCH, len(truth))
    worst = (counts[stretch:] - counts[:-stretch]).min() / stretch
    return {"coverage": float(inside.mean()), "worst": float(worst), "width": float(np.ptp(bands, axis=1).mean())}


def bands_of(asked: Asked) -> Report:
    """Way → delay in hours → scores."""
    return {name: {str(late): scores(way(asked, late), asked.truth) for late in DELAYS} for name, way in WAYS.items()}


def task(data: Path, budget: float | None) -> Task:
    """Return the hours of 2011, and those of 2012."""
    read = read_set(SETS["bike"], data)
    later = np.array([int(year) == 1 for year in read["yr"].to_pylist()])
    hours, target = read.drop_columns(["yr"]), SETS["bike"].target
    test = hours.filter(later)

    def live(trained: Trained) -> Report:
        return {"live": bands_of(Asked(trained.posterior, test))}

    return Task(hours.filter(~later), test, target, {"budget": budget}, live)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser)
    add_fits(parser)


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    job = fit_job(f"live-{options.budget}", "bike", task, options.data, options.budget)
    ((report,),) = fits_of([job], options).values()
    ways = report["live"].items()
    lines = {f"{name}, {late} h late": found for name, delays in ways for late, found in delays.items()}
    print(one_each("90 % bands", COLUMNS, lines))
    return {"run": report}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
