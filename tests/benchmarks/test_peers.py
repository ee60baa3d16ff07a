"""Peers: their registry, environments, processes and turns, their tasks and scores."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import peers, processes
from benchmarks.comparison import task_of
from benchmarks.datasets import Split
from benchmarks.peers import CALIBRATOR, PEERS, Peer
from benchmarks.processes import SystemProcess, Turns

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


SCRIPT = """
import sys
from benchmarks.peers.exchange import drive

def session(task):
    if task == "at once":
        raise SystemExit("out of luck")
    asked = []
    def answer(request):
        asked.append(request)
        if task == "later" and len(asked) == 2:
            raise SystemExit("lost patience")
        print("a library talks")
        return task, asked
    return sys.argv[2], answer

drive(step=session)
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which ``benchmarks.peers`` has one more script, which runs in this Python."""
    package = tmp_path / "benchmarks" / "peers"
    package.mkdir(parents=True)
    for directory, real in ((package.parent, FOLDER.parent), (package, FOLDER)):
        (directory / "__init__.py").write_text(f"__path__.append({str(real)!r})\n", encoding="utf-8")
    (package / "steady.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    monkeypatch.setattr(processes, "environment", lambda *_: Path(sys.executable))
    return tmp_path


def started(folder: Path, *tasks: str) -> dict[str, Any]:
    peer = partial(Peer, "step", title="", script="steady")
    return {task: partial(SystemProcess, peer(name=task), task, cache=folder) for task in tasks}


def test_one_that_fails_is_asked_no_more_and_has_no_answers(scripts: Path) -> None:
    with Turns(started(scripts, "at once", "later", "one")) as turns:
        assert list(turns.ready) == ["later", "one"]
        assert list(turns.ask("a", rounds=1)) == ["later", "one"]
        assert list(turns.ask("b", rounds=3)) == ["one"]
    assert list(turns.failed) == ["at once", "later"]
    assert turns.failed["at once"].endswith("out of luck")
    assert turns.failed["later"].endswith("lost patience")


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
