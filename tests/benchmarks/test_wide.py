"""The benchmark of everyday tables: each is fitted, scored as the peers are, and a refused one is named."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
import pytest

from benchmarks import wide
from benchmarks.peers import Peer
from benchmarks.peers.tables import Answer, TableTask
from tests.support import write_table


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generator, folder = np.random.default_rng(0), tmp_path / "wide"
    folder.mkdir()
    length = generator.normal(size=100)
    kind = np.where(length + generator.normal(size=100) > 0.0, "long", "short")
    tables = {"fish": {"length": length, "weight": 3.0 * length}, "same": {"length": length, "weight": np.ones(100)}}
    for name, columns in {**tables, "kinds": {"length": length, "kind": kind}}.items():
        write_table(folder / f"{name}.csv", columns)
    (folder / "targets.json").write_bytes(orjson.dumps({name: {"target": "weight", "n": 100} for name in tables}))
    (folder / "classes.json").write_bytes(orjson.dumps({"kinds": {"target": "kind", "n": 100}}))
    peers = [{"table": name, "method": "line", "crps": crps} for name in tables for crps in (0.7, 0.5)]
    (folder / "peers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, peers)))
    return tmp_path


class Shares:
    """A peer that answers for each row with powers of the shares of the classes in the rows it may learn from."""

    def __init__(self, peer: Peer, *_: object, **__: object) -> None:
        self._power = 2.0 if peer.name == "catboost-classes" else 9.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, task: TableTask) -> dict[str, Any]:
        counts = np.bincount(task.target[~task.inner]) ** self._power
        rows = {"raw": task.test, "base": task.test, "inner": task.training.take(task.inner)}
        answers = {name: np.tile(counts / counts.sum(), (len(of), 1)) for name, of in rows.items()}
        return {"answer": Answer(**answers), "seconds": 1.0}


@pytest.fixture(autouse=True)
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "SystemProcess", Shares)
    monkeypatch.setattr(wide, "RESULTS", tmp_path / "peers.jsonl")
    monkeypatch.setattr(wide, "CLASSES", {})


def test_each_table_is_set_beside_its_best_peer(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", data, "--output", data / "kept", "--budget", 0.5, "--jobs", 1]
    assert wide.main([str(option) for option in options]) == 0
    said = capsys.readouterr().out
    fish = next(line for line in said.splitlines() if line.startswith("fish")).split()
    assert fish[1:5:2] == ["100", "0.5"]
    assert float(fish[5]) == pytest.approx(float(fish[2]) / 0.5, abs=0.006)
    assert "below 300 rows: 1 tables" in said
    assert "refused: same: " in said
    kinds = next(line for line in said.splitlines() if line.startswith("kinds")).split()
    assert kinds[1] == "100"
    assert float(kinds[6]) == pytest.approx(float(kinds[2]) / float(kinds[4]), abs=0.002)
    assert "1 tables of classes: log loss " in said
    assert len((data / "peers.jsonl").read_bytes().splitlines()) == 1


def test_all_systems_have_the_same_split(data: Path) -> None:
    order, lengths = np.random.default_rng(0).permutation(100), {}
    for kind, name in (("numbers", "fish"), ("classes", "kinds")):
        task = wide.task_of(data, wide.sets_of(data, kind)[name], kind, 0, {})
        lengths[name] = [float(cell) for cell in task.test["length"].to_pylist()]
        assert task.training.num_rows == 80
    file = np.loadtxt(data / "wide" / "fish.csv", delimiter=",", skiprows=1)[:, 0]
    assert lengths["fish"] == lengths["kinds"] == file[order[80:]].tolist()


def test_peers_are_as_sure_as_rows_that_they_have_not_learned_from_show(data: Path) -> None:
    kinds = ["long"] * 80 + ["short"] * 20
    write_table(data / "wide" / "kinds.csv", {"length": np.arange(100.0), "kind": np.array(kinds)})
    report = wide.measure_peers(data, wide.sets_of(data, "classes")["kinds"], 0, data)
    for peer in report["peers"].values():
        assert peer["temperature"] > 1.1
        assert peer["calibrated"] < peer["raw"]
    assert report["best"] == "catboost-classes"
    assert np.mean(report["losses"]) == pytest.approx(report["peers"]["catboost-classes"]["calibrated"], rel=1e-3)


def test_many_rows_decide_a_temperature_and_a_few_right_ones_do_not() -> None:
    shares = np.array([0.8, 0.2]) ** 2.0
    probabilities, labels = np.tile(shares / shares.sum(), (10_000, 1)), np.repeat([0, 1], [8_000, 2_000])
    temperature = wide.best_temperature(probabilities, labels)
    assert temperature == pytest.approx(2.0, rel=0.01)
    np.testing.assert_allclose(wide.tempered(probabilities, 2.0)[0], [0.8, 0.2])
    assert wide.best_temperature(np.tile([0.9, 0.1], (80, 1)), np.zeros(80, dtype=np.int64)) > 0.3


def test_each_row_is_in_one_fold_unless_it_is_the_only_one_of_its_class() -> None:
    folds = wide.fold_numbers(np.repeat([0, 1, 2, 3], [50, 1, 2, 30]), 0)
    assert folds[50] == -1
    assert folds[51] != folds[52]
    assert np.bincount(folds[:50]).tolist() == [10] * 5
    assert np.isin(np.delete(folds, 50), range(5)).all()
    assert set(wide.fold_numbers(np.repeat([0, 1], [9_000, 3]), 0)) == {-1, 0}
