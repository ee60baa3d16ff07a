"""`python -m benchmarks.co2 --data DIR`: extrapolation of a time series.

Monthly CO2 at Mauna Loa (NOAA), trained to the end of 2010 with the defaults, predicted for all later months.
``--features`` chooses the features: ``month``, the decimal date and the month's name, a category; ``date``, the
column of dates as it is. Prints the share of months inside the 95 % band and the width of the band, for each year after
the training rows.
"""

from __future__ import annotations

import sys
from calendar import month_abbr
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.datasets import add_data
from benchmarks.results import Report, command, table
from benchmarks.runner import Task, add_fits, fit_job, fits_of
from murho.model.errors import OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.table_files import read_table

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from numpy.typing import NDArray

    from murho.model.training.train import Trained

FILE = "co2/mauna_loa_monthly_clean.csv"
SOURCE = (
    "monthly means (co2_mm_mlo) of https://gml.noaa.gov/ccgg/trends/data.html, as CSV with the header "
    "date,decimal_date,average_ppm,… and dates as YYYY-MM"
)
TARGET, LAST_YEAR = "co2_ppm", 2010
FEATURES = ("month", "date")
KINDS = ("raw", "calibrated")


def features_of(read: pa.Table, kind: str) -> tuple[pa.Table, NDArray[np.float64]]:
    """Return features and target by the kind of features, and the middle of each month in years, ``[N]``."""
    dates = [str(cell) for cell in read["date"].to_pylist()]
    numbers = np.array([int(date[5:7]) for date in dates])
    decimal = np.array([float(cell) for cell in read["decimal_date"].to_pylist()])
    columns: dict[str, Any]
    columns = {"date": [f"{date[:7]}-15" for date in dates]} if kind == "date" else {"decimal_date": decimal}
    if kind == "month":
        columns["month"] = [month_abbr[number] for number in numbers]
    columns[TARGET] = np.array([float(cell) for cell in read["average_ppm"].to_pylist()])
    return pa.table(columns), decimal


def task(data: Path, kind: str, budget: float | None) -> Task:
    """Split the months at the end of 2010; the report gets dates, truth, mean and bands of all months."""
    path = data / FILE
    if not path.exists():
        raise OptionError(f"{path} does not exist; make it from {SOURCE}")
    months, dates = features_of(read_table(path), kind)
    later = pa.array(dates >= LAST_YEAR + 1)

    def answers(trained: Trained) -> Report:
        columns, posterior = columns_from_table(months, trained.posterior.schema), trained.posterior
        found: Report = {"dates": dates.tolist(), "truth": months[TARGET].to_pylist()}
        for name in KINDS:
            answer = posterior.predict(
                columns, PredictOptions(percentiles=(2.5, 97.5), calibrated=name == "calibrated")
            )
            found |= {"mean": answer.mean.tolist(), f"{name}_band": np.asarray(answer.percentiles).tolist()}
        return found

    training, test = months.filter(pa.compute.invert(later)), months.filter(later)
    return Task(training, test, TARGET, {"budget": budget}, answers)


def render(report: Report) -> str:
    """Return the band's width and coverage in the training years, in each year after, and overall."""
    dates, truth = np.array(report["dates"]), np.array(report["truth"])
    bands = [np.array(report[f"{name}_band"]) for name in KINDS]
    inside = [(band[:, 0] <= truth) & (truth <= band[:, 1]) for band in bands]
    years = np.floor(dates).astype(int)
    groups = {"training": years <= LAST_YEAR} | {
        str(year): years == year for year in range(LAST_YEAR + 1, years.max() + 1)
    }
    rows = [
        [name]
        + [f"{np.ptp(band[chosen], axis=1).mean():.2f}" for band in bands]
        + [f"{100.0 * of[chosen].mean():.0f}" for of in inside]
        for name, chosen in groups.items()
    ]
    headers = ["months of", "raw width, ppm", "calibrated width", "inside raw, %", "inside calibrated, %"]
    later = years > LAST_YEAR
    shares = ", ".join(f"{name} {100.0 * of[later].mean():.1f} %" for name, of in zip(KINDS, inside, strict=True))
    error = np.sqrt(np.mean((np.array(report["mean"]) - truth)[later] ** 2))
    return f"{table(headers, rows)}\n\ninside of the later months: {shares} (aim 85 %); RMSE {error:.2f} ppm"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser)
    parser.add_argument("--features", choices=FEATURES, default=FEATURES[0], help="default month")
    add_fits(parser)


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    kind = options.features
    job = fit_job(f"co2-{kind}-{options.budget}", kind, task, options.data, kind, options.budget)
    ((report,),) = fits_of([job], options).values()
    print(render(report))
    return {"run": report}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
