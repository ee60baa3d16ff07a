"""The README's picture needs a checkpoint, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import answer_figure
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_without_a_checkpoint_it_draws_nothing_and_says_where_it_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "answer.png"
    checkpoints = tmp_path / "checkpoints"
    assert answer_figure.main(["--checkpoints", str(checkpoints), "--output", str(picture)]) == 1
    assert str(checkpoints) in capsys.readouterr().err
    assert not picture.exists()


def test_a_checkpoint_of_other_features_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = ROOT / "tests" / "fixtures" / "checkpoints"
    picture = tmp_path / "answer.png"
    assert answer_figure.main(["--checkpoints", str(checkpoints), "--model", "rents", "--output", str(picture)]) == 1
    assert "murho train examples/cars.csv" in capsys.readouterr().err
    assert not picture.exists()


def test_the_command_leaves_out_every_feature_but_the_weight() -> None:
    header = (ROOT / "examples" / "cars.csv").read_text().splitlines()[0].split(",")
    assert set(header) == {"Miles_per_Gallon", answer_figure.FEATURE, *answer_figure.OTHERS}
