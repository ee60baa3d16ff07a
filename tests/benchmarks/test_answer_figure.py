"""The README's picture needs a checkpoint, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import answer_figure

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
