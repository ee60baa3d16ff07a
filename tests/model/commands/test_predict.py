"""The command `murho predict` (as a process: tests/e2e/test_commands.py)."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from murho.model.commands.predict import predict
from tests.model.posterior.test_older_checkpoints import CHECKPOINTS, RECORDED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("raw", [False, True])
def test_raw_leaves_std_and_percentiles_uncalibrated(raw: bool, tmp_path: Path) -> None:
    source, output = tmp_path / "rents.csv", tmp_path / "scored.csv"
    with source.open("w", newline="") as file:
        writer = csv.DictWriter(file, RECORDED["rows"][0])
        writer.writeheader()
        writer.writerows(RECORDED["rows"])
    predict(source, "rents", CHECKPOINTS, raw=raw, output=output)
    with output.open(newline="") as file:
        first = next(csv.DictReader(file))
    then = RECORDED["cases"][0]["answer"]
    assert float(first["mean"]) == pytest.approx(then["mean"][0], rel=1e-5)
    assert (float(first["std"]) == pytest.approx(then["std"][0], rel=1e-4)) is raw
    assert (float(first["p95"]) == pytest.approx(then["percentiles"][0][2], rel=1e-4)) is not raw
