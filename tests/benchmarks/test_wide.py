"""The benchmark of everyday tables: each is fitted, scored as the peers are, and a refused one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import wide
from tests.support import write_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generator, folder = np.random.default_rng(0), tmp_path / "wide"
    folder.mkdir()
    length = generator.normal(size=100)
    kind = np.where(length + generator.normal(size=100) > 0.0, "long", "short")
    tables = {"fish": {"length": length, "weight": 3.0 * length}, "same": {"length": length, "weight": np.ones(100)}}
    for name, columns in {**tables, "kinds": {"length": length, "kind": kind}}.items():
        write_table(folder / f"{name}.csv", columns)
    (folder / "targets.json").write_bytes(orjson.dumps({name: {"target": "weight"} for name in tables}))
    (folder / "classes.json").write_bytes(orjson.dumps({"kinds": {"target": "kind"}}))
    peers = [{"table": name, "method": "line", "crps": crps} for name in tables for crps in (0.7, 0.5)]
    (folder / "peers.jsonl").write_bytes(b"\n".join(map(orjson.dumps, peers)))
    return tmp_path


def test_each_table_is_set_beside_its_best_peer(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", data, "--output", data / "kept", "--budget", 0.5, "--jobs", 1]
    assert wide.main([str(option) for option in options]) == 0
    said = capsys.readouterr().out
    fish = next(line for line in said.splitlines() if line.startswith("fish")).split()
    assert fish[1:5:2] == ["100", "0.5"]
    assert float(fish[5]) == pytest.approx(float(fish[2]) / 0.5, abs=0.006)
    assert "below 300 rows: 1 tables" in said
    assert "refused: same: " in said
    assert next(line for line in said.splitlines() if line.startswith("kinds")).split()[1] == "100"


def test_all_systems_have_the_same_split(data: Path) -> None:
    task = wide.task_of(data, "fish", "weight", {})
    order = np.random.default_rng(0).permutation(100)
    lengths = np.loadtxt(data / "wide" / "fish.csv", delimiter=",", skiprows=1)[:, 0]
    assert [float(cell) for cell in task.test["length"].to_pylist()] == lengths[order[80:]].tolist()
    assert task.training.num_rows == 80
