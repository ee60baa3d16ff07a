"""A checkpoint for tests that need one at once, ``tests/fixtures/checkpoints/rents``, and rows to ask it.

Dates, categories, missing cells, a piecewise encoding, whitening, a logarithm, mixture noise, a wide component,
calibration, three members, and no report. ``python -m tests.rents`` makes it again, where the format has changed.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINTS = ROOT / "tests" / "fixtures" / "checkpoints"
RENTS = CHECKPOINTS / "rents" / "1"
ROWS: list[dict[str, Any]] = [
    {"sqm": 83.5, "rooms": 3.0, "city": "Basel", "parking": "yes", "listed": "2024-03-11"},
    {"sqm": 31.0, "rooms": None, "city": "Zug", "parking": "no", "listed": "2025-01-06"},
    {"sqm": 205.0, "rooms": 6.0, "city": "Genf", "parking": "no", "listed": "2023-07-30"},
    {"sqm": 420.0, "rooms": 12.0, "city": "Bern", "parking": "yes", "listed": "2027-01-01"},
    {"sqm": 60.0, "rooms": 2.0, "city": "Lugano", "parking": "no", "listed": "2024-12-24"},
]
OPTIONS = {
    "hidden": (8,),
    "members": 3,
    "encoding": "piecewise",
    "whiten": "yes",
    "noise": "mixture",
    "noise_components": 2,
    "transform": "log",
    "temperature": 0.3,
    "epochs": 60,
    "missing": "refuse",
    "columns": {"parking": {"kind": "categorical"}},
}


def _table(rows: int = 400) -> pa.Table:
    generator = np.random.default_rng(0)
    sqm = np.round(np.clip(generator.gamma(6.5, 13.5, rows), 14.0, 230.0), 1)
    count = np.clip(np.round(sqm / 28.0 + generator.normal(0.0, 0.5, rows)), 1, 8)
    city = generator.integers(0, 4, rows)
    parking = generator.random(rows) < 0.4
    day = generator.integers(0, 900, rows)
    level = 5.2 + 0.85 * np.log(sqm / 20.0) + 0.12 * city + 0.06 * parking + 1e-4 * day
    return pa.table(
        {
            "sqm": sqm,
            "rooms": pa.array(count, mask=generator.random(rows) < 0.05),
            "city": np.array(["Basel", "Bern", "Genf", "Zug"])[city],
            "parking": np.where(parking, "yes", "no"),
            "listed": np.datetime64("2023-01-02") + day.astype("timedelta64[D]"),
            "rent": np.round(np.exp(level + generator.standard_t(4, rows) * 0.12)),
        }
    )


def _make(root: Path) -> None:
    trained = train(_table(), "rent", make_options(OPTIONS), reporter=Reporter())
    trained.posterior.save(root, "rents")


if __name__ == "__main__":
    shutil.rmtree(CHECKPOINTS, ignore_errors=True)
    _make(CHECKPOINTS)
