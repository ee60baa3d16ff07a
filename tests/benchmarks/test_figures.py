"""Charts say what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import figures
from benchmarks.figures import Axis, Band, Curve, Points, Span
from benchmarks.legend import Key, legend

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(0.0, 4.0, 5)


def test_every_layer_has_its_key_in_the_legend(x: np.ndarray, tmp_path: Path) -> None:
    chart = figures.chart(
        [
            Band("a band", x, x - 1.0, x + 1.0),
            Curve("a curve", x, np.stack([x, x + 1.0])),
            Points("points", x, x),
        ],
        title="A title",
        subtitle=["Below it"],
        x_axis=Axis("weight (lb)", 0.0, 4.0),
        y_axis=Axis("way (mi)", -1.0, 5.0),
        span=Span("rows", 1.0, 3.0),
    )
    text = orjson.dumps(chart).decode()
    for words in ("a band", "a curve", "points", "A title", "Below it", "weight (lb)", "way (mi)", "rows"):
        assert f'"{words}"' in text
    figures.save(chart, tmp_path / "chart.png", scale=1.0)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_keys_that_do_not_fit_go_to_another_row() -> None:
    keys = [Key("a key of some length", "line", "#000000")] * 4
    assert legend(keys, width=2000).height < legend(keys, width=200).height
