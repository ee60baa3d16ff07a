"""The README's figure of an answer: predictions for one car at many weights, also far beyond the training range.

``python -m benchmarks.answer_figure --checkpoints DIR`` draws ``docs/answer.png`` from a trained checkpoint of
``examples/cars.csv``. All bands and the mean come from `Posterior.predict`.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures import MIDDLE, PALE, Axis, Band, Curve, Points, Span, chart, save
from benchmarks.results import ROOT
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import columns_from_table, target_from_table
from murho.model.data.tables import read_table
from murho.model.engines.prediction import PredictOptions
from murho.model.errors import MurhoError, OptionError
from murho.model.posterior.checkpoint import default_root, find_checkpoint
from murho.model.posterior.posterior import Posterior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Feature, Schema

__all__ = ["answer_figure", "main"]

SWEPT = "Weight_in_lbs"
LOWEST, HIGHEST = 1000.0, 9000.0
POINTS_OF_THE_SWEEP = 241
SAMPLES = 2000
"""Number of draws, enough for smooth edges of the bands."""
LEVELS = (5.0, 95.0)


def answer_figure(posterior: Posterior, path: Path) -> dict[str, Any]:
    """The figure, as a Vega-Lite specification.

    Args:
        posterior: A checkpoint trained on the table of cars.
        path: Path of the table.

    Raises:
        MurhoError: The table can't be read, or the checkpoint was trained on another table.
    """
    schema = posterior.schema
    table = read_table(path)
    columns = columns_from_table(table, schema)
    target = target_from_table(table, schema.target.name)
    swept = next((feature for feature in schema.features if feature.name == SWEPT), None)
    if swept is None or swept.minimum is None or swept.maximum is None:
        raise OptionError(f"the checkpoint has no numeric feature {SWEPT!r}: train it on examples/cars.csv")
    car = _typical_row(posterior, columns, target)

    weights = np.linspace(LOWEST, HIGHEST, POINTS_OF_THE_SWEEP)
    sweep = {name: np.repeat(column[car : car + 1], len(weights)) for name, column in columns.items()}
    sweep[SWEPT] = weights
    observed = posterior.predict(sweep, PredictOptions(samples=SAMPLES, percentiles=LEVELS))
    functions = posterior.predict(sweep, PredictOptions(samples=SAMPLES, percentiles=LEVELS, noise=False))
    if observed.percentiles is None or functions.percentiles is None:
        raise OptionError("bands need at least one draw")

    unit = f" ({schema.target.unit})" if schema.target.unit else ""
    everything = np.concatenate([observed.percentiles.ravel(), target[~np.isnan(target)]])
    calibrated = "calibrated" if observed.calibrated else "raw"
    return chart(
        [
            Band(f"90 % of new observations, {calibrated}", weights, *_edges(observed.percentiles), PALE),
            Band("90 % of functions (epistemic)", weights, *_edges(functions.percentiles), MIDDLE),
            Points("all cars", columns[SWEPT], target, "#555555", size=16.0, opacity=0.55),
            Curve("mean", weights, observed.mean),
            Points("this car", columns[SWEPT][[car]], target[[car]], "#d9480f", size=110.0),
        ],
        title="The further from the data, the wider the answer",
        subtitle=[
            f"Murho's answers for one car whose weight alone is varied, {LOWEST:,.0f} to {HIGHEST:,.0f} lb. The car:",
            _description(schema, columns, car),
        ],
        x_axis=Axis(f"{SWEPT} ({swept.unit})" if swept.unit else SWEPT, LOWEST, HIGHEST, format=",.0f"),
        y_axis=Axis(f"{schema.target.name}{unit}", *_padded(everything)),
        span=Span("weights of the training rows", swept.minimum, swept.maximum),
        width=800,
        height=400,
    )


def _edges(percentiles: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return percentiles[:, 0], percentiles[:, 1]


def _padded(values: NDArray[np.float64]) -> tuple[float, float]:
    margin = 0.06 * float(np.ptp(values))
    return float(values.min()) - margin, float(values.max()) + 1.5 * margin


def _typical_row(posterior: Posterior, columns: Columns, target: NDArray[np.float64]) -> int:
    """The row with a target that is closest to the medians of the encoded features, by the sum of distances."""
    rows = posterior.encoder.encode(columns)
    distance = np.abs(rows - np.median(rows, axis=0)).sum(axis=1)
    return int(np.where(np.isnan(target), np.inf, distance).argmin())


def _description(schema: Schema, columns: Columns, row: int) -> str:
    return ", ".join(
        f"{feature.name} {_shown(feature, columns[feature.name][row])}"
        for feature in schema.features
        if feature.name != SWEPT
    )


def _shown(feature: Feature, value: Any) -> str:
    if feature.kind is FeatureKind.DATE:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=float(value)):%Y}"
    if feature.kind is FeatureKind.CATEGORICAL:
        return str(value)
    return f"{value:g} {feature.unit}" if feature.unit else f"{value:g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.answer_figure", description="Draws the README's picture of an answer."
    )
    parser.add_argument("--checkpoints", type=Path, default=default_root(), metavar="DIR")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
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
