"""Figures of the documentation: their charts, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson

from benchmarks.results import ROOT
from scripts.figures import FEATURE, TARGET, TRAIN, Axis, Layer, chart, main, save

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_layer_of_a_chart_is_in_its_legend(tmp_path: Path) -> None:
    x = np.linspace(0.0, 4.0, 5)
    layers = [
        Layer("band", "a band", x, x - 1.0, x + 1.0),
        Layer("line", "a curve", x, np.stack([x, x + 1.0]), colour="#111111"),
        Layer("points", "some points", x, x, colour="#222222", size=20.0),
    ]
    drawn = chart(layers, Axis("weight (lb)", (0.0, 4.0)), Axis("way"), title="A title", rules={1.0: "rows"})
    text = orjson.dumps(drawn.to_dict()).decode()
    for words in ("a band", "a curve", "some points", "A title", "weight (lb)", "rows"):
        assert words in text
    save(drawn, tmp_path / "made" / "chart.png")
    assert (tmp_path / "made" / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_an_answer_needs_a_checkpoint_of_the_weight_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answer", "--checkpoints", str(tmp_path / "none"), "--output", str(tmp_path)]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "answer.png").exists()
    header = (ROOT / "examples" / "cars.csv").read_text().splitlines()[0].split(",")
    assert set(header) == {TARGET, FEATURE, *(name.strip() for name in TRAIN.split("--ignore ")[1:])}
