"""`murho predict --engine ray` on a local Ray: the answers of `murho predict`, and the same bytes whatever happens."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import parquet

from murho.model.predictive.prediction import PredictOptions
from murho.model.python.table_scoring import score_block, score_blocks
from murho.ray.datasets import answers_of_workers
from tests.rents import CHECKPOINTS, RENTS
from tests.support import call_murho

NUMBERS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]
GIVEN = (PredictOptions(samples=64, seed=3),), (RENTS, "cpu", "auto")


@pytest.fixture
def csv_file(rents_table: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "rents.csv"
    pyarrow.csv.write_csv(rents_table, path)
    return path


def workers_of_ray() -> list[int]:
    """Return the processes of the workers that answer, of this process' own Ray."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    mine = [pid for pid, parent in parents.items() if parents.get(parent) == os.getpid()]
    return [pid for pid in mine if b"ray::Worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.usefixtures("local_ray")
def test_the_command_answers_as_without_ray(csv_file: Path, tmp_path: Path) -> None:
    asked = ("--checkpoints", CHECKPOINTS, "--model", "rents", "--samples", 64, "--seed", 3, "--keep-inputs")
    call_murho("predict", csv_file, *asked, "--output", tmp_path / "one.parquet")
    call_murho("predict", csv_file, *asked, "--engine", "ray", "--workers", 2, "--output", tmp_path / "two.parquet")
    expected, found = parquet.read_table(tmp_path / "one.parquet"), parquet.read_table(tmp_path / "two.parquet")
    assert found.column_names == expected.column_names
    assert found["id"].to_pylist() == [str(number) for number in range(3_000)]
    scale = np.maximum(np.abs(expected["mean"].to_numpy()), expected["std"].to_numpy())
    for name in NUMBERS:
        difference = np.abs(found[name].to_numpy() - expected[name].to_numpy()) / scale
        assert difference.max() < 1e-5, name


@pytest.mark.usefixtures("local_ray")
def test_totals_of_workers_are_those_of_one_process(csv_file: Path) -> None:
    asked = ("--checkpoints", CHECKPOINTS, "--model", "rents", "--by", "city", "--samples", 64, "--json")
    one, two = (
        json.loads(call_murho("aggregate", csv_file, *asked, *engine).stdout)
        for engine in ((), ("--engine", "ray", "--workers", 2))
    )
    assert one["groups"] == two["groups"]
    for name in ("mean", "std", "epistemic_std", "aleatoric_std", "rows"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_killed_worker_loses_and_doubles_nothing_and_bytes_do_not_depend_on_workers(rents_table: pa.Table) -> None:
    def answers(workers: int, *, kill: bool) -> list[pa.Table]:
        found: list[pa.Table] = []
        for scored in score_blocks(
            rents_table, lambda blocks: answers_of_workers(score_block, *GIVEN, workers, blocks), 200
        ):
            if kill and not found:
                os.kill(workers_of_ray()[0], signal.SIGKILL)
            found.append(scored.answers)
        return found

    whole, disturbed = answers(1, kill=False), answers(2, kill=True)
    assert len(whole) == 15
    assert all(one.equals(other) for one, other in zip(whole, disturbed, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_cell_that_does_not_fit_far_in_the_table_is_named_and_no_file_is_left(csv_file: Path, tmp_path: Path) -> None:
    lines = csv_file.read_text().replace("two\nlines", "one").splitlines()
    lines[2_501] = lines[2_501].replace(lines[2_501].split(",")[1], "large", 1)
    csv_file.write_text("\n".join(lines))
    asked = ("--checkpoints", CHECKPOINTS, "--model", "rents", "--samples", 8, "--output", tmp_path / "out.parquet")
    said = call_murho("predict", csv_file, *asked, "--engine", "ray", "--workers", 1, code=1).stderr
    assert "rents.csv: column 'sqm', row 2501: 'large'" in said
    assert not (tmp_path / "out.parquet").exists()
