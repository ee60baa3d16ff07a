"""The README's figure of an answer: predictions of a model of weight alone, also far beyond the training range.

``python -m benchmarks.answer_figure --checkpoints DIR`` draws ``docs/answer.png`` from a checkpoint of
``examples/cars.csv`` that has learned from `Weight_in_lbs` alone (`TRAIN` makes it). With one feature nothing is held
fixed behind the picture: the band at a weight is for all cars of that weight, so it can be compared with the dots. How
many of them it holds is counted and written into the picture. All bands and the mean come from `Posterior.predict`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures import MIDDLE, PALE, Axis, Band, Curve, Points, Span, chart, save
from benchmarks.results import ROOT
from murho.model.checkpoint.checkpoint import default_root, find_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import MurhoError, OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.files import read_table
from murho.model.tables.schema_inference import columns_from_table, target_from_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["TRAIN", "answer_figure", "main"]

FEATURE = "Weight_in_lbs"
OTHERS = ("Cylinders", "Displacement", "Horsepower", "Acceleration", "Year", "Origin")
TRAIN = "murho train examples/cars.csv --config examples/cars.toml --name cars-by-weight --budget 40 " + " ".join(
    f"--ignore {name}" for name in OTHERS
)
LOWEST, HIGHEST = 500.0, 8500.0
STEPS = 241
SAMPLES = 2000
"""Number of draws, enough for smooth edges of the bands."""
LEVELS = (5.0, 95.0)


def answer_figure(posterior: Posterior, path: Path) -> dict[str, Any]:
    """The figure, as a Vega-Lite specification.

    Args:
        posterior: A checkpoint trained on the weights of the cars.
        path: Path of their table.

    Raises:
        MurhoError: The table can't be read, or the checkpoint has other features.
    """
    schema = posterior.schema
    if [feature.name for feature in schema.features] != [FEATURE]:
        raise OptionError(f"the picture needs a checkpoint of {FEATURE!r} alone: {TRAIN}")
    (swept,) = schema.features
    if swept.minimum is None or swept.maximum is None:
        raise OptionError(f"the training rows have no value of {FEATURE!r}")
    table = read_table(path)
    columns, target = columns_from_table(table, schema), target_from_table(table, schema.target)
    known = ~(np.isnan(columns[FEATURE]) | np.isnan(target))
    cars, observed = columns[FEATURE][known], target[known]

    weights = np.linspace(LOWEST, HIGHEST, STEPS)
    new = posterior.predict({FEATURE: weights}, PredictOptions(samples=SAMPLES, percentiles=LEVELS))
    functions = posterior.predict({FEATURE: weights}, PredictOptions(samples=SAMPLES, percentiles=LEVELS, noise=False))
    of_cars = posterior.predict({FEATURE: cars}, PredictOptions(samples=SAMPLES, percentiles=LEVELS))
    if new.percentiles is None or functions.percentiles is None or of_cars.percentiles is None:
        raise OptionError("bands need at least one draw")
    held = int(((of_cars.percentiles[:, 0] <= observed) & (observed <= of_cars.percentiles[:, 1])).sum())

    unit = f" ({schema.target.unit})" if schema.target.unit else ""
    calibrated = "calibrated" if new.calibrated else "raw"
    named, count = schema.target.name, f"{held} of the {len(cars)} cars"
    return chart(
        [
            Band(f"90 % of cars, {calibrated}", weights, *_edges(new.percentiles), PALE),
            Band("90 % of draws of the mean (epistemic)", weights, *_edges(functions.percentiles), MIDDLE),
            Points("training cars", cars, observed, "#444444", size=16.0, opacity=0.55),
            Curve("mean", weights, new.mean),
        ],
        title="The further from the data, the less the model knows",
        subtitle=[f"{named} by weight alone, as Murho answers. The pale band holds {count}."],
        x_axis=Axis(f"{FEATURE} ({swept.unit})" if swept.unit else FEATURE, LOWEST, HIGHEST, format=",.0f"),
        y_axis=Axis(f"{schema.target.name}{unit}", *_padded(np.concatenate([new.percentiles.ravel(), observed]))),
        span=Span("weights of the training cars", swept.minimum, swept.maximum),
        width=800,
        height=400,
    )


def _edges(percentiles: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return percentiles[:, 0], percentiles[:, 1]


def _padded(values: NDArray[np.float64]) -> tuple[float, float]:
    margin = 0.06 * float(np.ptp(values))
    return float(values.min()) - margin, float(values.max()) + 1.5 * margin


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.answer_figure", description="Draws the README's picture of an answer."
    )
    parser.add_argument("--checkpoints", type=Path, default=default_root(), metavar="DIR")
    parser.add_argument("--model", default="cars-by-weight", help="name of the checkpoint (default cars-by-weight)")
    parser.add_argument("--table", type=Path, default=ROOT / "examples" / "cars.csv")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "answer.png", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        posterior = Posterior.load(find_checkpoint(options.checkpoints, options.model))
        figure = answer_figure(posterior, options.table)
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    save(figure, options.output)
    print(f"drew {options.output} from {posterior.name} version {posterior.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
