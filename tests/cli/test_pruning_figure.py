"""The histogram of a pruning shows its numbers."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import pytest

from murho.cli.figures import check_figure, draw_figure
from murho.cli.revision import histogram_lines
from murho.model.errors import OptionError
from murho.model.report.charts import pruning_chart
from murho.model.training.pruning import Cut, Layer

if TYPE_CHECKING:
    from pathlib import Path

REMOVED = tuple([3] + [0] * 9 + [5] * 10 + [2] + [0] * 19)
KEPT = tuple([0] * 20 + [7] + [4] * 18 + [1])
CUT = Cut(
    0.4,
    0.334,
    (Layer("layers.0.weight", 100, 20, sum(REMOVED)), Layer("layers.1.weight", 60, 0, 0)),
    REMOVED,
    KEPT,
)


def test_bars_stack_to_the_counts_and_the_rule_stands_at_the_threshold() -> None:
    drawn = pruning_chart(CUT.to_json(), "cars, version 1")
    histogram, rule, _ = drawn["layer"]
    heights = {"removed": 0, "kept": 0}
    for bar in histogram["data"]["values"]:
        heights[bar["part"]] += bar["weights"]
        assert bar["from"] < bar["to"]
    assert heights == {"removed": sum(REMOVED), "kept": sum(KEPT)}
    (place,) = rule["data"]["values"]
    assert place["from"] == pytest.approx(0.334)
    assert drawn["title"]["text"].endswith("cars, version 1")
    assert any("20 weights" in line for line in drawn["title"]["subtitle"])


def test_it_is_drawn_as_a_png(tmp_path: Path) -> None:
    path = tmp_path / "pruning.png"
    check_figure(path)
    draw_figure(pruning_chart(CUT.to_json(), "cars, version 1"), path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 1400 < width < 2000
    assert 600 < height < 1200


def test_what_can_not_be_drawn_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"--figure: .*\.png"):
        check_figure(tmp_path / "pruning.svg")
    with pytest.raises(OptionError, match="does not exist"):
        check_figure(tmp_path / "nowhere" / "pruning.png")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(OptionError, match=r"--figure needs vl_convert: run pip install '\.\[charts\]' in a clone"):
        check_figure(tmp_path / "pruning.png")


def test_the_histogram_in_text_adds_up_too() -> None:
    lines = histogram_lines(CUT)[1:]
    counts = [int(line.split()[-1].replace(",", "")) for line in lines]
    assert sum(counts) == sum(REMOVED) + sum(KEPT)
    assert lines[0].startswith("below ")
    assert lines[-1].startswith("above ")
    assert "█" not in lines[0]
    mixed = lines[5]
    assert "·" in mixed
    assert "█" in mixed
