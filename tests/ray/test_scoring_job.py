"""Tests of a scoring job on a local Ray: the answers of `murho predict`, and the same bytes whatever happens."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import parquet

from murho.model.errors import OptionError, TableError
from murho.model.predictive.prediction import PredictOptions
from murho.ray.scoring import Scoring
from murho.ray.scoring_job import FINISHED, prepare_job
from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from murho.ray.scoring_job import Job

CHECKPOINTS = ROOT / "tests" / "fixtures" / "checkpoints"
SCORING = Scoring(CHECKPOINTS / "rents" / "1", PredictOptions(samples=64, seed=3))
NUMBERS = ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]


@pytest.fixture
def csv_file(rents_table: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "rents.csv"
    pyarrow.csv.write_csv(rents_table, path)
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("part-*")}


def job_of(data: Path, output: Path, rows: int = 200) -> Job:
    return prepare_job([data], output, SCORING, rows_per_piece=rows)


def workers_of_ray() -> list[int]:
    """The processes of the workers that answer, of this process' own Ray."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    mine = [pid for pid, parent in parents.items() if parents.get(parent) == os.getpid()]
    return [pid for pid in mine if b"ray::MapWorker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.usefixtures("local_ray")
def test_the_command_answers_as_without_ray(csv_file: Path, tmp_path: Path) -> None:
    asked = ("--checkpoints", CHECKPOINTS, "--model", "rents", "--samples", 64, "--seed", 3)
    call_murho("predict", csv_file, *asked, "--output", tmp_path / "one.parquet")
    job = (*asked, "--output", tmp_path / "out", "--rows-per-part", 1_300, "--keep-inputs")
    said = call_murho("predict", "--engine", "ray", csv_file, *job).stderr
    assert "3,000 rows in 3 files" in said
    expected, found = parquet.read_table(tmp_path / "one.parquet"), parquet.read_table(tmp_path / "out")
    assert found["id"].to_pylist() == [str(number) for number in range(3_000)]
    scale = np.maximum(np.abs(expected["mean"].to_numpy()), expected["std"].to_numpy())
    for name in NUMBERS:
        difference = np.abs(found[name].to_numpy() - expected[name].to_numpy()) / scale
        assert difference.max() < 1e-5, name
    assert (tmp_path / "out" / FINISHED).is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_killed_worker_loses_and_doubles_nothing_and_bytes_do_not_depend_on_workers(
    csv_file: Path, tmp_path: Path
) -> None:
    whole = job_of(csv_file, tmp_path / "one")
    whole.run(workers=1)
    killed: list[int] = []

    def kill_once(_rows: int) -> None:
        if not killed:
            killed.extend(workers_of_ray()[:1])
            os.kill(killed[0], signal.SIGKILL)

    disturbed = job_of(csv_file, tmp_path / "two")
    outcome = disturbed.run(workers=2, advance=kill_once)
    assert killed
    assert outcome.rows == 3_000
    assert outcome.parts == 15
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert sorted(path.name for path in (tmp_path / "two").iterdir() if not path.name.startswith("part-")) == [
        "_SUCCESS",
        "_job.json",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_an_interrupted_job_goes_on_where_it_ended(csv_file: Path, tmp_path: Path) -> None:
    def interrupt(_rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job_of(csv_file, tmp_path / "out").run(workers=1, advance=interrupt)
    assert not (tmp_path / "out" / FINISHED).exists()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert before
    assert job_of(csv_file, tmp_path / "out").run(workers=2).rows == 3_000
    assert before.items() <= {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}.items()
    with pytest.raises(OptionError, match="holds a finished job"):
        job_of(csv_file, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_cell_that_does_not_fit_far_in_the_table_is_named(csv_file: Path, tmp_path: Path) -> None:
    lines = csv_file.read_text().replace("two\nlines", "one").splitlines()
    lines[2_501] = lines[2_501].replace(lines[2_501].split(",")[1], "large", 1)
    csv_file.write_text("\n".join(lines))
    with pytest.raises(TableError, match=r"rents\.csv, rows 2401 to 2600: column 'sqm', row 101: .*large"):
        job_of(csv_file, tmp_path / "out").run(workers=1)


def test_a_table_that_does_not_fit_stops_before_the_first_piece(csv_file: Path, tmp_path: Path) -> None:
    csv_file.write_text(csv_file.read_text().replace('"sqm"', '"area"', 1))
    with pytest.raises(TableError, match=r"rents\.csv: the feature 'sqm' is not a column of the table"):
        job_of(csv_file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_of_something_else_is_left_alone(csv_file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(OptionError, match="is not empty: give a new directory"):
        job_of(csv_file, tmp_path / "out")
    job_of(csv_file, tmp_path / "other")
    with pytest.raises(OptionError, match="holds another job that has not finished"):
        job_of(csv_file, tmp_path / "other", rows=100)
