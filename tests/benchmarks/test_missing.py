"""The benchmark of missing cells, without any fit or data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks import missing
from benchmarks.datasets import SETS


def scores(coverage: float) -> dict[str, Any]:
    return {"coverage": {"raw": 0.95, "calibrated": coverage}, "width": 2.0, "crps": 0.5, "alarms": 0.004}


def test_a_share_of_the_cells_is_blanked_but_no_target() -> None:
    rows = pa.table({"a": list(range(1000)), "b": ["x"] * 1000, "y": [1.0] * 1000})
    blanked = missing.blanked(rows, "y", 0.2, seed=1)
    assert blanked["y"].null_count == 0
    assert 150 < blanked["a"].null_count < 250
    assert 150 < blanked["b"].null_count < 250
    assert blanked.equals(missing.blanked(rows, "y", 0.2, seed=1))
    assert missing.blanked(rows, "y", 0.0, seed=1).equals(rows)


def test_one_job_has_complete_training_rows_and_one_a_share_has_not() -> None:
    rows = pa.table({"a": list(range(SETS["abalone"].rows))})
    jobs = missing.jobs_of("abalone", rows, 20.0)
    assert [job.name for job in jobs] == ["missing-abalone-test", "missing-abalone-all-10", "missing-abalone-all-20"]
    assert {len(job.split.training) for job in jobs} == {2000}
    assert jobs[0].options == {"budget": 20.0}


def test_there_is_a_line_for_each_share() -> None:
    runs = {
        "missing-yacht-test": {"shares": {"0": scores(0.9), "10": scores(0.88)}},
        "missing-yacht-all-20": {"shares": {"20": scores(0.91)}},
    }
    lines = [line.split() for line in missing.render(runs).splitlines()]
    assert ["yacht", "test", "10", "%", "95.0", "88.0", "2", "0.5", "0.40"] in lines
    assert ["yacht", "all", "20", "%", "95.0", "91.0", "2", "0.5", "0.40"] in lines
