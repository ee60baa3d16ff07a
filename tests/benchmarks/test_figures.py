"""Figures of the documentation: their charts, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.results import ROOT
from scripts.figures import FEATURE, TARGET, TRAIN, main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_picture_of_an_answer_needs_a_checkpoint_of_the_weight_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answer", "--checkpoints", str(tmp_path / "none"), "--output", str(tmp_path)]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "answer.png").exists()
    header = (ROOT / "examples" / "cars.csv").read_text().splitlines()[0].split(",")
    assert set(header) == {TARGET, FEATURE, *(name.strip() for name in TRAIN.split("--ignore ")[1:])}
