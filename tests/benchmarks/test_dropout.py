"""The command of the dropout benchmark, on made images and a made copy of a set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.dropout import main
from benchmarks.dropout_parts import images
from tests.benchmarks.mnist_parts.made_images import write_images

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_command_compares_both_posteriors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    columns = ("long_pos", "prismatic_coeff", "length_displacement", "beam_draught", "length_beam", "froude_number")
    made = {name: generator.normal(size=308) for name in columns}
    (tmp_path / "uci").mkdir()
    csv.write_csv(
        pa.table({**made, "residuary_resistance": made["froude_number"] * 3.0}), tmp_path / "uci" / "yacht.csv"
    )
    write_images(tmp_path)
    monkeypatch.setattr(images, "DRAWS", 4)
    monkeypatch.setattr(images, "VALIDATION", 100)
    options = ["--sets", "yacht", "--splits", "1", "--epochs", "3", "--threads", "1", "--width", "12"]
    call = ["--data", str(tmp_path), "--output", str(tmp_path), *options, "--mnist-epochs", "2", "--point-epochs", "2"]
    assert main(call) == 0
    printed = capsys.readouterr().out
    for shown in ("yacht", "dropout", "bayes", "entropy x8", "dropout as a posterior", "Bayes by Backprop"):
        assert shown in printed
    report = json.loads((tmp_path / "dropout.json").read_text())
    assert set(report["sets"]["yacht"]) == {"dropout", "bayes"}
    assert report["mnist"]["dropout, off at prediction"]["mutual_information"]["noise"] == 0.0
    assert report["mnist"]["dropout as a posterior"]["mutual_information"]["noise"] > 0.0


def test_a_missing_set_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--sets", "yacht", "--no-mnist"]) == 1
    assert "yacht.csv does not exist" in capsys.readouterr().err
