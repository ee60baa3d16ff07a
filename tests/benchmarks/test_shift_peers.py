"""Peers on shifted splits: a peer of our own making is measured on one, and set beside Murho."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peer_runs, processes, shift_peers
from benchmarks.datasets import SETS, Split
from benchmarks.fits import Job
from benchmarks.peers import Library, Peer
from benchmarks.shift_peers import Beside, peer_reports, render_beside
from tests.benchmarks.stand_ins import make_package

SCRIPT = """
import numpy as np
from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Predictive, table_session

def answer(task):
    def of(rows):
        return Predictive(np.full(rows, task.target.mean()), std=np.full(rows, task.target.std()))
    return Answer(of(len(task.test)), of(len(task.test)), of(int(task.inner.sum())), rounds=1.0)

drive(table=table_session(answer))
"""


def test_a_peer_is_fitted_to_the_rows_of_the_split_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = SETS["yacht"]
    (tmp_path / "uci").mkdir()
    lines = [f"{row},{row % 7},{row / 10.0}" for row in range(dataset.rows)]
    text = "\n".join([f"x,z,{dataset.target}", *lines, ""])
    (tmp_path / dataset.file).write_text(text, encoding="utf-8")
    (make_package(tmp_path) / "own.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    for module in (peer_runs, shift_peers):
        monkeypatch.setattr(module, "environment", lambda *_, **__: Path(sys.executable))
    own = Peer("table", "own", "our own", Library("own", ("own==1",)), most_rows=150)
    monkeypatch.setitem(shift_peers.PEERS, "own", own)
    split = Split(np.arange(100), np.arange(200, 300))
    job = Job("tail-yacht-x", "yacht", split, {})
    larger = Job("tail-yacht-z", "yacht", Split(np.arange(200), np.arange(200, 300)), {})
    reports = peer_reports("own", [job, larger], tmp_path, tmp_path / "kept", cache=tmp_path, workers=1)
    assert list(reports) == ["tail-yacht-x"]  # the other has more rows than the peer takes
    # The peer answers with the mean of the rows that it was given, 4.95; those of the test rows lie from 20 to 29.9.
    expected = np.sqrt(np.mean((np.arange(200, 300) / 10.0 - 4.95) ** 2))
    assert reports["tail-yacht-x"]["rmse"] == pytest.approx(expected)
    assert (tmp_path / "kept" / "own" / "tail-yacht-x.json").exists()


def test_the_better_answer_of_a_peer_is_set_beside_the_calibrated_one() -> None:
    murho = {"quantiles": {"raw": {"crps": 0.1}, "calibrated": {"crps": 1.0}}}
    assert Beside.of("a", murho, {"raw": {"crps": 2.0}, "calibrated": {"crps": 4.0}}).ratio == 0.5
    assert Beside.of("a", murho, {"raw": None, "calibrated": {"crps": 4.0}}).ratio == 0.25


def test_the_summary_has_the_geometric_mean_and_counts_what_is_behind() -> None:
    text = render_beside(
        "lightgbm-quantiles",
        [Beside("tail-a-x", 1.0, 2.0), Beside("tail-b-x", 2.1, 2.0), Beside("tail-c-x", 4.0, 2.0)],
    )
    lines = [line.split() for line in text.splitlines()]
    assert lines[2:5] == [
        ["tail-a-x", "1", "2", "0.50"],
        ["tail-b-x", "2.1", "2", "1.05"],
        ["tail-c-x", "4", "2", "2.00"],
    ]
    assert lines[-1][:6] == ["geometric", "mean", "of", "the", "ratios", "1.02;"]
    assert "more than 10 % behind on 1 of 3 splits, at worst 2.00 times" in text
