"""Peers: their registry, environments, processes and turns, their tasks and scores."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import peers
from benchmarks.comparison import task_of
from benchmarks.datasets import Split
from benchmarks.peers import CALIBRATOR, PEERS

FOLDER = Path(peers.__file__).parent
SHARED = ("exchange", "tables", "networks")
SERVICE = {"posterior_rows", "with_litserve", "with_mlserver"}
SCRIPTS = sorted({peer.script for peer in (*PEERS, CALIBRATOR) if peer.script})
ROWS = 200


def test_every_script_is_of_a_peer_and_every_environment_is_pinned() -> None:
    others = {"__init__", "murho_fit", "murho_predictions", *SHARED, *SERVICE}
    assert {path.stem for path in FOLDER.glob("*.py")} - others == set(SCRIPTS)
    assert len({(peer.benchmark, peer.name) for peer in PEERS}) == len(PEERS)
    for peer in (*PEERS, CALIBRATOR):
        assert peer.packages
        assert all("==" in package for package in peer.packages)
        if peer.script:
            text = (FOLDER / f"{peer.script}.py").read_text(encoding="utf-8")
            assert re.search(rf"drive\(.*\b{peer.benchmark}=", text)


@pytest.fixture
def table() -> pa.Table:
    generator = np.random.default_rng(0)
    kinds = ["b", "a", "b", "c"] * (ROWS // 4)
    kinds[17] = "rare"
    return pa.table(
        {
            "x": [None if number == 3 else f"{value:.6f}" for number, value in enumerate(generator.normal(size=ROWS))],
            "colour": [None if number == 5 else "red" if number % 2 else "blue" for number in range(ROWS)],
            "y": [f"{value:.6f}" for value in generator.normal(10.0, 2.0, size=ROWS)],
            "kind": kinds,
        }
    )


@pytest.fixture
def split() -> Split:
    rest = np.delete(np.arange(ROWS), 17)
    return Split(rest[:160], np.array([*rest[160:], 17]))


def test_a_task_has_no_target_of_a_test_row(table: pa.Table, split: Split) -> None:
    task, truth = task_of(table, "y", split, 0)
    numbers = np.array([float(cell) for cell in table["y"].to_pylist()])
    np.testing.assert_array_equal(task.target, numbers[split.training])
    np.testing.assert_array_equal(truth, numbers[split.test])
    assert len(task.training) == 160
    assert task.inner.sum() == 24
    assert not any(truth[0] in told for told in (task.target, task.training.numbers, task.test.numbers))
