"""Tasks for peers and what is kept of their answers, with a peer of our own making."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks import peer_runs
from benchmarks.datasets import DataSet, Split
from benchmarks.distributions import LEVELS, normal_quantiles
from benchmarks.peer_runs import PeerError, features_and_target, inner_rows, run_peer, score, task_of
from benchmarks.peers import ENVIRONMENTS, PEERS, RESULTS, Peer
from benchmarks.peers.table_task import Answer, Predictive, Task, answer_tasks, one_hot, spread
from tests.benchmarks.stand_ins import make_package

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 200


@pytest.fixture
def table() -> pa.Table:
    generator = np.random.default_rng(0)
    return pa.table(
        {
            "x": [
                None if number == 3 else f"{value:.6f}"
                for number, value in enumerate(generator.normal(size=ROWS))
            ],
            "colour": [None if number == 5 else "red" if number % 2 else "blue" for number in range(ROWS)],
            "y": [f"{value:.6f}" for value in generator.normal(10.0, 2.0, size=ROWS)],
        }
    )


@pytest.fixture
def split() -> Split:
    order = np.random.default_rng(1).permutation(ROWS)
    return Split(order[:160], order[160:])


def _normal(task: Task) -> Answer:
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


def test_a_task_has_no_target_of_a_test_row_and_survives_its_file(
    table: pa.Table, split: Split, tmp_path: Path
) -> None:
    features, target = features_and_target(table, "y")
    task = task_of(features, target, split, 0)
    path = tmp_path / "0.task.npz"
    task.save(path)
    read = Task.load(path)
    assert np.array_equal(read.target, target[split.training])
    assert np.array_equal(read.test.categories, features.categories[split.test])
    assert len(read.training) == 160
    assert read.inner.sum() == 24
    with np.load(path) as file:
        assert not any(target[split.test[0]] in file[name] for name in file)


def test_inner_rows_are_the_same_for_every_peer_and_differ_by_split() -> None:
    assert np.array_equal(inner_rows(160, 0), inner_rows(160, 0))
    assert not np.array_equal(inner_rows(160, 0), inner_rows(160, 1))


def test_an_answer_survives_its_file(table: pa.Table, split: Split, tmp_path: Path) -> None:
    features, target = features_and_target(table, "y")
    task = task_of(features, target, split, 2)
    task.save(tmp_path / "002.task.npz")
    answer_tasks(_normal, [str(tmp_path)])
    answer = Answer.load(tmp_path / "002.answer.npz")
    assert answer.raw is not None
    assert answer.raw.quantiles is None
    assert np.array_equal(answer.raw.mean, np.full(40, task.target.mean()))
    assert answer.rounds == 7


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


def test_spread_follows_a_normal_exactly() -> None:
    few = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    many = np.array(LEVELS) / 100.0
    exact = normal_quantiles(np.array([3.0, -1.0]), np.array([2.0, 0.1]))
    places = [LEVELS.index(round(100.0 * level, 6)) for level in few]
    assert np.allclose(spread(few, exact[:, places], many), exact)


def test_unknown_categories_have_no_column() -> None:
    assert one_hot(np.array([0, 2, -1]), 2).tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


class _Bench:
    """A set on disk and a peer that runs in this Python."""

    def __init__(self, data: Path, table: pa.Table, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.results, self.said = data, data / "results", list[str]()
        (data / "tabular").mkdir()
        lines = [",".join(table.column_names)]
        lines += [",".join(str(row[name] or "") for name in table.column_names) for row in table.to_pylist()]
        (data / "tabular" / "small.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        package = make_package(data, "peers")
        (package / "own.py").write_text(script, encoding="utf-8")
        monkeypatch.setattr(peer_runs, "ROOT", data)
        monkeypatch.setattr(peer_runs, "environment", lambda *_, **__: sys.executable)
        monkeypatch.setitem(PEERS, "own", Peer("our own", "own", "own", most_rows=1000))
        monkeypatch.setitem(ENVIRONMENTS, "own", ("own==1",))

    def run(self, count: int) -> dict[int, dict[str, object]]:
        dataset = DataSet("small", "tabular/small.csv", ROWS, "y", "nowhere")
        return run_peer(
            "own",
            dataset,
            self.data,
            count,
            results=self.results,
            cache=self.data,
            say=self.said.append,
        )


# What the exchange module does, with numpy alone: the script runs without this repository on its path.
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
for path in sorted(Path(sys.argv[1]).glob("*.task.npz")):
    name = path.name.removesuffix(".task.npz")
    task = np.load(path)
    if name in {failing!r}:
        sys.exit("out of luck")
    rows, inner = len(task["test_numbers"]), int(task["inner"].sum())
    parts = {{}}
    for part, count in (("raw", rows), ("base", rows), ("inner", inner)):
        parts[part + "_mean"] = np.full(count, task["target"].mean())
        parts[part + "_std"] = np.full(count, task["target"].std())
    np.savez(path.with_name(name + ".answer.npz"), rounds=1.0, seconds=0.5, **parts)
    print(name, flush=True)
"""


def test_a_peer_is_run_once_a_split_and_its_scores_are_kept(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench(tmp_path, table, SCRIPT.format(failing=[]), monkeypatch)
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
    bench = _Bench(tmp_path, table, SCRIPT.format(failing=["001"]), monkeypatch)
    with pytest.raises(PeerError, match="out of luck"):
        bench.run(3)
    assert sorted(peer_runs.kept_runs("own", "small", bench.results)) == [0]


def test_scores_of_other_packages_do_not_count(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench(tmp_path, table, SCRIPT.format(failing=[]), monkeypatch)
    bench.run(1)
    monkeypatch.setitem(ENVIRONMENTS, "own", ("own==2",))
    assert peer_runs.kept_runs("own", "small", bench.results) == {}


def test_a_peer_is_not_given_more_rows_than_it_takes(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench(tmp_path, table, SCRIPT.format(failing=[]), monkeypatch)
    monkeypatch.setitem(PEERS, "own", Peer("our own", "own", "own", most_rows=100))
    assert bench.run(1) == {}


def test_committed_scores_are_of_known_peers_and_pinned_packages() -> None:
    for path in RESULTS.glob("*.json"):
        kept = orjson.loads(path.read_bytes())
        assert path.stem == f"{kept['peer']}-{kept['set']}"
        assert kept["requirements"] == list(ENVIRONMENTS[PEERS[kept["peer"]].environment])
