"""Tasks for peers and what is kept of their answers, with a peer of our own making."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks import peer_runs, processes
from benchmarks.datasets import DataSet, Split
from benchmarks.distributions import LEVELS
from benchmarks.peer_runs import features_and_target, inner_rows, kept_runs, run_peer, score, task_of
from benchmarks.peers import Library, Peer
from benchmarks.peers.table_task import Answer, Predictive, TableTask
from benchmarks.processes import ProcessError
from tests.benchmarks.stand_ins import make_package

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 200
OWN = Peer("table", "own", "our own", Library("own", ("own==1",)), most_rows=1000)


@pytest.fixture
def table() -> pa.Table:
    generator = np.random.default_rng(0)
    return pa.table(
        {
            "x": [None if number == 3 else f"{value:.6f}" for number, value in enumerate(generator.normal(size=ROWS))],
            "colour": [None if number == 5 else "red" if number % 2 else "blue" for number in range(ROWS)],
            "y": [f"{value:.6f}" for value in generator.normal(10.0, 2.0, size=ROWS)],
        }
    )


@pytest.fixture
def split() -> Split:
    order = np.random.default_rng(1).permutation(ROWS)
    return Split(order[:160], order[160:])


def _normal(task: TableTask) -> Answer:
    """Knows the mean and the spread of the training targets."""

    def of(rows: int) -> Predictive:
        return Predictive(np.full(rows, task.target.mean()), std=np.full(rows, task.target.std()))

    return Answer(of(len(task.test)), of(len(task.test)), of(int(task.inner.sum())), rounds=7)


def test_columns_become_numbers_or_categories(table: pa.Table) -> None:
    features, target = features_and_target(table, "y")
    assert features.numbers.shape == (ROWS, 1)
    assert np.flatnonzero(np.isnan(features.numbers[:, 0])).tolist() == [3]
    assert features.categories[:6, 0].tolist() == [0, 1, 0, 1, 0, -1]
    assert target[0] == float(table["y"][0].as_py())
    assert np.isnan(features.joined()[5, 1])


def test_a_task_has_no_target_of_a_test_row(table: pa.Table, split: Split) -> None:
    features, target = features_and_target(table, "y")
    task = task_of(features, target, split, 0)
    np.testing.assert_array_equal(task.target, target[split.training])
    np.testing.assert_array_equal(task.test.categories, features.categories[split.test])
    assert len(task.training) == 160
    assert task.inner.sum() == 24
    told: list[NDArray[np.float64]] = [task.target, task.training.numbers, task.test.numbers]
    assert not any(target[split.test[0]] in array for array in told)


def test_inner_rows_are_the_same_for_every_peer_and_differ_by_split() -> None:
    assert np.array_equal(inner_rows(160, 0), inner_rows(160, 0))
    assert not np.array_equal(inner_rows(160, 0), inner_rows(160, 1))


def test_scores_of_normals_and_of_points(table: pa.Table, split: Split) -> None:
    features, target = features_and_target(table, "y")
    task = task_of(features, target, split, 0)
    report = score(_normal(task), target, split, task.inner)
    truth = target[split.test]
    assert report["rmse"] == pytest.approx(np.sqrt(np.mean((truth - task.target.mean()) ** 2)))
    assert report["raw"]["crps"] == pytest.approx(report["crps_closed"], rel=0.02)
    point = Predictive(np.zeros(40), np.zeros((40, len(LEVELS))))
    inner = Predictive(np.zeros(24), np.zeros((24, len(LEVELS))))
    conformal = score(Answer(None, point, inner, rounds=1), target, split, task.inner)
    assert conformal["raw"] is None
    assert conformal["crps_closed"] is None
    assert conformal["calibrated"]["width"]["50"] > 0.0


class _Bench:
    """A set on disk and a peer that runs in this Python."""

    def __init__(self, data: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch, failing: list[int]) -> None:
        self.data, self.results, self.said = data, data / "results", list[str]()
        (data / "tabular").mkdir()
        lines = [",".join(table.column_names)]
        lines += [",".join(str(row[name] or "") for name in table.column_names) for row in table.to_pylist()]
        (data / "tabular" / "small.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        script = make_package(data) / "own.py"
        script.write_text(SCRIPT.format(failing=failing), encoding="utf-8")
        monkeypatch.setattr(processes, "ROOT", data)
        monkeypatch.setattr(peer_runs, "environment", lambda *_, **__: Path(sys.executable))

    def run(self, count: int, peer: Peer = OWN) -> dict[int, dict[str, object]]:
        dataset = DataSet("small", "tabular/small.csv", ROWS, "y", "nowhere")
        return run_peer(peer, dataset, self.data, count, results=self.results, cache=self.data, say=self.said.append)


SCRIPT = """
import numpy as np
from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Predictive, table_session

def answer(task):
    if task.seed in {failing!r}:
        raise SystemExit("out of luck")
    def of(rows):
        return Predictive(np.full(rows, task.target.mean()), std=np.full(rows, task.target.std()))
    return Answer(of(len(task.test)), of(len(task.test)), of(int(task.inner.sum())), rounds=1.0)

drive(table=table_session(answer))
"""


@pytest.fixture
def bench(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Bench:
    return _Bench(tmp_path, table, monkeypatch, failing=[])


def test_a_peer_is_run_once_a_split_and_its_scores_are_kept(bench: _Bench) -> None:
    assert sorted(bench.run(2)) == [0, 1]
    assert len(bench.said) == 2
    assert sorted(bench.run(3)) == [0, 1, 2]
    assert len(bench.said) == 3  # the third alone was measured
    kept = orjson.loads((bench.results / "own-small.json").read_bytes())
    assert [run["split"] for run in kept["runs"]] == [0, 1, 2]
    assert kept["requirements"] == ["own==1"]


def test_what_was_finished_before_a_failure_is_kept(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench(tmp_path, table, monkeypatch, failing=[1])
    with pytest.raises(ProcessError, match=r"own on small ended with status 1.*\nout of luck"):
        bench.run(3)
    assert sorted(kept_runs(OWN, "small", bench.results)) == [0]


def test_scores_of_other_packages_do_not_count(bench: _Bench) -> None:
    bench.run(1)
    later = Peer("table", "own", "our own", Library("own", ("own==2",)))
    assert kept_runs(later, "small", bench.results) == {}


def test_a_peer_is_not_given_more_rows_than_it_takes(bench: _Bench) -> None:
    assert bench.run(1, Peer("table", "own", "our own", OWN.library, most_rows=100)) == {}
