"""The histogram of a pruning shows its numbers."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from murho.model.report.charts import charts
from murho.model.training.pruning import HISTOGRAM_EDGES, Cut

REMOVED = [3] + [0] * 9 + [5] * 10 + [2] + [0] * 19
KEPT = [0] * 20 + [7] + [4] * 18 + [1]
HISTOGRAM = {"edges": list(10.0**HISTOGRAM_EDGES), "removed": REMOVED, "kept": KEPT}
CUT = Cut(0.4, 0.334, 160, 20, sum(REMOVED), HISTOGRAM)


def test_bars_stack_to_the_counts_and_the_rule_stands_at_the_threshold() -> None:
    bare = {"held_out": None, "doubt": None, "importance": None, "training": {"curves": None, "temperature": 1.0}}
    (chart,) = charts(bare | {"revision": {"kind": "pruning", **asdict(CUT)}})
    histogram, rule, _ = chart.specification["layer"]
    heights = {"removed": 0, "kept": 0}
    for bar in histogram["data"]["values"]:
        heights[bar["part"]] += bar["weights"]
        assert bar["from"] < bar["to"]
    assert heights == {"removed": sum(REMOVED), "kept": sum(KEPT)}
    (place,) = rule["data"]["values"]
    assert place["from"] == pytest.approx(0.334)
