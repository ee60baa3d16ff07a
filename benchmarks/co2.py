"""`python -m benchmarks.co2 --data DIR`: extrapolation of a time series.

Monthly CO2 at Mauna Loa (NOAA), trained to the end of 2010 with the defaults, predicted for all later months.
``--features`` chooses the features: ``month``, the decimal date and the month's name, a category; ``sine``, the decimal
date and sine and cosine of the month; ``date``, the column of dates as it is. Prints the share of months inside the
95 % band and the width of the band, for each year after the training rows, and draws the band.
"""

from __future__ import annotations

import argparse
import sys
from calendar import month_abbr
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import add_options
from benchmarks.figures import MIDDLE, PALE, Axis, Band, Curve, Points, Span, chart, save
from benchmarks.fits import timed_fit
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError, OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.files import read_table
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior

__all__ = ["features_of", "figure", "main", "measure", "widths_by_distance"]

FILE = "co2/mauna_loa_monthly_clean.csv"
SOURCE = (
    "monthly means (co2_mm_mlo) of https://gml.noaa.gov/ccgg/trends/data.html, as CSV with the header "
    "date,decimal_date,average_ppm,… and dates as YYYY-MM"
)
TARGET, LAST_YEAR = "co2_ppm", 2010
FEATURES = ("month", "sine", "date")
LEVELS = (2.5, 97.5)
AIM = 0.85


def features_of(read: pa.Table, kind: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """The table of features and target.

    Args:
        read: The content of the file.
        kind: One of `FEATURES`.

    Returns:
        A table of features and target, and the year of each row, ``[N]``.
    """
    dates = [str(cell) for cell in read["date"].to_pylist()]
    numbers = np.array([int(date[5:7]) for date in dates])
    columns: dict[str, Any] = {}
    if kind == "date":
        columns["date"] = [f"{date[:7]}-15" for date in dates]
    else:
        columns["decimal_date"] = decimal_dates(read)
    if kind == "month":
        columns["month"] = [month_abbr[number] for number in numbers]
    if kind == "sine":
        angle = 2.0 * np.pi * numbers / 12.0
        columns |= {"month_sine": np.sin(angle), "month_cosine": np.cos(angle)}
    columns[TARGET] = np.array([float(cell) for cell in read["average_ppm"].to_pylist()])
    return pa.table(columns), np.array([int(date[:4]) for date in dates])


def decimal_dates(read: pa.Table) -> NDArray[np.float64]:
    """Middle of each month in years, ``[N]``."""
    return np.array([float(cell) for cell in read["decimal_date"].to_pylist()])


def measure(
    posterior: Posterior, months: pa.Table, years: NDArray[np.int64], dates: NDArray[np.float64]
) -> dict[str, Any]:
    """Predictions for all months, and their coverage.

    Args:
        posterior: The posterior, trained to the end of 2010.
        months: Features and target of all months.
        years: Year of each month, ``[N]``.
        dates: Middle of each month, in years, ``[N]``.

    Returns:
        ``decimal_date``, ``truth``, ``mean``, ``later`` (whether a month is after the training rows), and ``raw`` and
        ``calibrated``, each with ``band`` ``[N, 2]``, ``inside`` (share of the later months inside the band) and
        ``by_year`` (`widths_by_distance`).
    """
    columns = columns_from_table(months, posterior.schema)
    truth = months[TARGET].to_numpy()
    later = years > LAST_YEAR
    report: dict[str, Any] = {
        "decimal_date": dates,
        "truth": truth,
        "later": later,
    }
    for kind in ("raw", "calibrated"):
        answer = posterior.predict(columns, PredictOptions(percentiles=LEVELS, calibrated=kind == "calibrated"))
        if answer.percentiles is None:
            raise AssertionError("256 samples have percentiles")
        band = answer.percentiles
        inside = (band[:, 0] <= truth) & (truth <= band[:, 1])
        report["mean"] = answer.mean
        report[kind] = {
            "band": band,
            "inside": float(inside[later].mean()),
            "inside_training": float(inside[~later].mean()),
            "by_year": widths_by_distance(years, band, inside),
        }
    report["rmse_later"] = float(np.sqrt(np.mean((report["mean"] - truth)[later] ** 2)))
    return report


def widths_by_distance(
    years: NDArray[np.int64], band: NDArray[np.float64], inside: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Mean width of the band and share of months inside it, for the training years and each year after them."""
    groups = [("training", years <= LAST_YEAR)] + [
        (str(year), years == year) for year in np.unique(years[years > LAST_YEAR])
    ]
    return [
        {
            "year": name,
            "width": float(np.mean(band[rows, 1] - band[rows, 0])),
            "inside": float(inside[rows].mean()),
        }
        for name, rows in groups
    ]


def figure(report: dict[str, Any]) -> dict[str, Any]:
    """The series and its bands, as a Vega-Lite specification."""
    dates, later = np.asarray(report["decimal_date"]), np.asarray(report["later"])
    shown = dates >= 1990.0
    x = dates[shown]
    bands = {kind: np.asarray(report[kind]["band"])[shown] for kind in ("calibrated", "raw")}
    truth = np.asarray(report["truth"])
    everything = np.concatenate([band.ravel() for band in bands.values()] + [truth[shown]])
    low, high = float(everything.min()), float(everything.max())
    # The wider band is drawn first, behind the narrower one.
    order = sorted(bands, key=lambda kind: -float(np.mean(bands[kind][:, 1] - bands[kind][:, 0])))
    colours = dict(zip(order, (PALE, MIDDLE), strict=True))
    return chart(
        [
            *(Band(f"95 % band, {kind}", x, bands[kind][:, 0], bands[kind][:, 1], colours[kind]) for kind in order),
            Curve("mean", x, np.asarray(report["mean"])[shown], width=1.6),
            Points("observed, training", dates[shown & ~later], truth[shown & ~later], "#555555", size=9.0),
            Points("observed, later", dates[later], truth[later], "#d9480f", size=12.0),
        ],
        title="CO2 at Mauna Loa: trained to 2010, asked for the years since",
        subtitle=[
            f"{100.0 * report['raw']['inside']:.0f} % of the later months lie in the raw 95 % band, "
            f"{100.0 * report['calibrated']['inside']:.0f} % in the calibrated one"
        ],
        x_axis=Axis("year", 1990.0, float(np.ceil(dates.max())), format="d"),
        y_axis=Axis("CO2 (ppm)", low - 3.0, high + 0.12 * (high - low)),
        span=Span("training rows, from 1958", 1990.0, float(dates[~later].max())),
        width=800,
    )


def render(report: dict[str, Any]) -> str:
    """A table of the band's width and the share of months inside it, by year, raw and calibrated."""
    rows = [
        [
            str(raw["year"]),
            *(f"{part['width']:.2f}" for part in (raw, calibrated)),
            *(f"{100.0 * part['inside']:.0f}" for part in (raw, calibrated)),
        ]
        for raw, calibrated in zip(report["raw"]["by_year"], report["calibrated"]["by_year"], strict=True)
    ]
    headers = ["months of", "raw width, ppm", "calibrated width", "inside raw, %", "inside calibrated, %"]
    shares = "   ".join(f"{kind} {100.0 * report[kind]['inside']:.1f} %" for kind in ("raw", "calibrated"))
    return (
        f"{table(headers, rows)}\n\nmonths after {LAST_YEAR} inside the 95 % band: {shares} "
        f"(aim: {100.0 * AIM:.0f} %); RMSE {report['rmse_later']:.2f} ppm"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table, writes the JSON and draws the figure; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.co2", description=str(__doc__).splitlines()[0])
    add_options(parser, ())
    parser.add_argument("--features", choices=FEATURES, default=FEATURES[0], help="default month")
    parser.add_argument("--seed", type=int, default=0, help="seed of the fit (default 0)")
    options = parser.parse_args(arguments)
    path = options.data / FILE
    try:
        if not path.exists():
            raise OptionError(f"{path} does not exist; make it from the {SOURCE}")
        read = read_table(path)
        months, years = features_of(read, options.features)
        training = months.filter(pa.array(years <= LAST_YEAR))
        posterior, seconds = timed_fit(training, TARGET, {"seed": options.seed})
        report = measure(posterior, months, years, decimal_dates(read))
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{render(report)}; trained in {seconds:.0f} s")
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    save(figure(report), output / "co2.png")
    write_json(
        output / "co2.json",
        {"benchmark": "co2", **facts(), "seed": options.seed, "features": options.features, **report},
    )
    print(f"wrote {output / 'co2.json'} and {output / 'co2.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
