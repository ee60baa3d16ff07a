"""A training that dies resumes to the same checkpoint; another training is refused; no files are left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from murho.model.errors import CheckpointError, FitError, OptionError
from murho.model.posterior.checkpoint import list_checkpoints, write_checkpoint
from murho.model.training import search_budget
from murho.model.training.options import make_options
from murho.model.training.snapshot_files import SnapshotFiles
from murho.model.training.snapshots import DIRECTORY, Snapshots
from murho.model.training.train import train
from tests.e2e.support import MURHO, murho
from tests.model.conftest import QUICK, Notes, make_table
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.fitting.fit_types import Epoch
    from murho.model.training.train import Trained

CARS = ROOT / "examples" / "cars.csv"
TABLE = make_table(rows=90)


class Killed(Exception):  # noqa: N818 - it stands for the end of the process
    """The process is gone."""


class DiesAt(Notes):
    """Ends a training after an epoch of its fit number ``fit``."""

    def __init__(self, epoch: int, fit: int = 1, how: BaseException | None = None) -> None:
        super().__init__()
        self.at, self.how = (fit, epoch), how or Killed()

    def epoch(self, epoch: Epoch) -> None:
        super().epoch(epoch)
        if (len(self.titles), epoch.number) == self.at:
            raise self.how


class Slow(Notes):
    """A busy machine: every epoch takes longer."""

    def epoch(self, epoch: Epoch) -> None:
        super().epoch(epoch)
        time.sleep(0.01)


class FirstEpoch(Notes):
    """Remembers where each fit went on, and where it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}

    def epoch(self, epoch: Epoch) -> None:
        super().epoch(epoch)
        self.first.setdefault(self.titles[-1], epoch.number)
        self.last[self.titles[-1]] = epoch.number


def run(
    home: Path | None,
    notes: Notes | None = None,
    *,
    resume: bool = False,
    table: pa.Table = TABLE,
    seconds: float = 0.0,
    **changes: object,
) -> Trained:
    """A training with snapshots after every epoch; the checkpoint is not written, nor the snapshot removed."""
    options = make_options(QUICK | {"members": 3} | changes)
    with Snapshots(home, resume=resume, seconds=seconds) as snapshots:
        return train(table, "rent", options, reporter=notes or Notes(), snapshots=snapshots)


def die(home: Path, epoch: int = 9, fit: int = 1, **changes: Any) -> None:
    """The same, killed."""
    with pytest.raises(Killed):
        run(home, DiesAt(epoch, fit), **changes)


def _assert_same(first: Trained, second: Trained) -> None:
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name]), name
    assert first.spec.metrics == second.spec.metrics
    assert first.spec.training["epochs"] == second.spec.training["epochs"]


@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic", "mixture"])
def test_a_resumed_training_ends_with_the_same_tensors_bit_for_bit(tmp_path: Path, noise: str) -> None:
    die(tmp_path, noise=noise)
    notes = FirstEpoch()
    resumed = run(tmp_path, notes, resume=True, noise=noise)
    _assert_same(run(None, noise=noise), resumed)
    assert list(notes.first.values()) == [9, 1]  # the state after epoch 8: the ninth died before its snapshot
    assert any(line.startswith("resuming after ") for line in notes.lines)


def test_a_slow_machine_and_an_interruption_change_no_bit_of_a_fit_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_budget, "default_budget", lambda _: 0.08)
    changes: dict[str, Any] = {"noise": "auto", "temperature": None, "epochs": 400}
    quick = run(None, **changes)
    assert quick.spec.training["stopped"] == "budget"  # the schedule was sped up
    slow = Slow()
    _assert_same(quick, run(None, slow, **changes))
    assert not any("a budget in seconds" in line for line in slow.lines)
    die(tmp_path, epoch=4, fit=3, **changes)
    _assert_same(quick, run(tmp_path, resume=True, **changes))


def test_a_budget_in_seconds_says_that_the_fit_depends_on_the_machine() -> None:
    notes = Notes()
    run(None, notes, budget=60.0, epochs=2)
    assert "a budget in seconds: another machine, or a busy one, gives another fit" in notes.lines


def test_finished_fits_are_not_repeated(tmp_path: Path) -> None:
    whole = Notes()
    expected = run(None, whole, noise="auto", temperature=None, epochs=20)
    assert len(whole.titles) > 3
    die(tmp_path, epoch=4, fit=3, noise="auto", temperature=None, epochs=20)
    notes = FirstEpoch()
    resumed = run(tmp_path, notes, resume=True, noise="auto", temperature=None, epochs=20)
    _assert_same(expected, resumed)
    assert notes.titles == whole.titles[2:]
    assert notes.first[notes.titles[0]] == 4
    tried = [
        [{key: value for key, value in one.items() if key != "seconds"} for one in facts["candidates"]]
        for facts in (expected.spec.training, resumed.spec.training)
    ]
    assert tried[0] == tried[1]


def test_a_training_may_die_more_than_once(tmp_path: Path) -> None:
    die(tmp_path, epoch=4)
    die(tmp_path, epoch=11, resume=True)
    _assert_same(run(None), run(tmp_path, resume=True))


def test_ctrl_c_keeps_the_best_so_far_and_the_snapshot(tmp_path: Path) -> None:
    notes = DiesAt(9, how=KeyboardInterrupt())
    interrupted = run(tmp_path, notes)
    assert interrupted.spec.training["interrupted"] is True
    assert any("--resume goes on" in line for line in notes.lines)
    resumed = run(tmp_path, resume=True)
    assert resumed.spec.training["interrupted"] is False
    _assert_same(run(None), resumed)


def test_ctrl_c_before_the_first_snapshot_promises_nothing(tmp_path: Path) -> None:
    notes = DiesAt(9, how=KeyboardInterrupt())
    run(tmp_path / "rent", notes, seconds=1e6)
    assert not any("--resume" in line for line in notes.lines)
    assert not (tmp_path / "rent").exists()


def test_another_table_is_refused_and_what_differs_is_said(tmp_path: Path) -> None:
    die(tmp_path)
    size = TABLE.column("size").to_pylist()
    size[5] = 33.0
    other = TABLE.set_column(0, "size", pa.array(size))
    with pytest.raises(OptionError, match=r"column 'size' has other values\. Give the same table"):
        run(tmp_path, resume=True, table=other)
    _assert_same(run(None), run(tmp_path, resume=True))  # nothing is lost by the refusal


def test_other_options_are_refused_by_name(tmp_path: Path) -> None:
    die(tmp_path)
    with pytest.raises(OptionError, match=r"--hidden was \[8\], is \[9\]; --seed was 0, is 4"):
        run(tmp_path, resume=True, seed=4, hidden=(9,))


def test_nothing_to_resume_is_said_and_trains_from_the_start(tmp_path: Path) -> None:
    notes = Notes()
    _assert_same(run(None), run(tmp_path, notes, resume=True))
    assert "nothing to resume: training from the start" in notes.lines


def test_what_is_left_is_said_and_replaced(tmp_path: Path) -> None:
    die(tmp_path)
    notes = Notes()
    run(tmp_path, notes, seconds=1e6)
    (said,) = (line for line in notes.lines if "of this table lies in" in line)
    assert str(tmp_path / DIRECTORY) in said
    assert "add --resume to go on with it (0 s with 0 finished fits); starting anew" in said
    notes = FirstEpoch()
    run(tmp_path, notes, resume=True)
    assert notes.first == {}  # the fit of the second training is finished; that of the first is gone
    run(tmp_path, notes, seed=7)
    assert any("with another table or other options lies in" in line for line in notes.lines)


def test_until_its_first_snapshot_a_training_leaves_the_one_before_it(tmp_path: Path) -> None:
    die(tmp_path, epoch=9)
    die(tmp_path, epoch=5, seconds=1e6)
    notes = FirstEpoch()
    _assert_same(run(None), run(tmp_path, notes, resume=True))
    assert list(notes.first.values()) == [9, 1]  # then it settles


@pytest.mark.parametrize("pattern", ["training.json", "*.safetensors"])
def test_a_damaged_snapshot_is_refused_before_anything_is_fitted(tmp_path: Path, pattern: str) -> None:
    die(tmp_path)
    (file,) = (tmp_path / DIRECTORY).glob(pattern)
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    notes = Notes()
    with pytest.raises(CheckpointError, match=f"{file.name}: the snapshot is damaged .*leave out --resume"):
        run(tmp_path, notes, resume=True)
    assert notes.titles == []
    _assert_same(run(None), run(tmp_path))  # as the message advises


def test_a_fit_that_fails_keeps_its_last_state_for_smaller_steps(tmp_path: Path) -> None:
    failing = DiesAt(9, how=FitError("the fit became non-finite in epoch 9 (noise.rho)"))
    with pytest.raises(FitError, match=r"The last good state, of epoch 8, is kept: --resume --learning-rate 0\.0025"):
        run(tmp_path, failing)
    again = Notes()
    with pytest.raises(FitError, match=r"epoch 9 \(noise\.rho\)"):
        run(tmp_path, again, resume=True)
    assert again.titles == []  # the same steps would fail again
    notes = FirstEpoch()
    smaller = run(tmp_path, notes, resume=True, learning_rate=0.0025)
    assert list(notes.first.values()) == [9, 1]  # then it settles
    assert any("--learning-rate was 0.01, is 0.0025" in line for line in notes.lines)
    assert np.isfinite(smaller.spec.metrics["nll"])


def test_a_failure_without_a_state_leaves_nothing(tmp_path: Path) -> None:
    failing = DiesAt(9, how=FitError("the fit became non-finite"))
    with pytest.raises(FitError, match=r"non-finite$"):
        run(tmp_path / "rent", failing, seconds=1e6)
    assert not (tmp_path / "rent").exists()


@pytest.mark.parametrize("spent", [6e5, 2e6])
def test_a_budget_counts_the_time_before_the_interruption(tmp_path: Path, spent: float) -> None:
    die(tmp_path, epochs=400, budget=1e6)
    files = SnapshotFiles(tmp_path / DIRECTORY)
    assert files.acquire()
    index = files.read_index()
    assert index is not None
    assert index["seconds"] > 0.0
    entries = index["fits"].values()
    for entry in entries:
        entry["numbers"]["seconds"] = spent
    files.write_index(index | {"seconds": spent}, [entry["file"] for entry in entries])
    files.release()
    notes = FirstEpoch()
    training = run(tmp_path, notes, resume=True, epochs=400, budget=1e6).spec.training
    last = notes.last[notes.titles[0]]
    assert last < 400  # with time left it hurries, without it ends at once
    assert (last == 9) == (spent > 1e6)
    assert training["seconds"] > spent
    assert training["candidates"][0]["seconds"] > spent


def test_two_trainings_of_one_name_do_not_mix(tmp_path: Path) -> None:
    first = SnapshotFiles(tmp_path / DIRECTORY)
    assert first.acquire()
    first.write_index({}, [])
    notes = Notes()
    _assert_same(run(None), run(tmp_path, notes))
    assert any("is running: this one keeps no snapshots" in line for line in notes.lines)
    assert first.read_index() == {}
    with pytest.raises(OptionError, match="is running"):
        run(tmp_path, resume=True)


def test_a_full_disk_does_not_end_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    notes = Notes()
    _assert_same(run(None), run(tmp_path, notes))
    assert [line for line in notes.lines if "snapshot" in line] == [
        "no snapshot could be written: No space left on device; the fit goes on without"
    ]


def test_between_snapshots_there_is_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [0.0]
    with Snapshots(tmp_path, seconds=30.0, clock=lambda: now[0]) as snapshots:
        snapshots.begin({}, lambda _: None)
        now[0] = 29.9
        assert not snapshots.due()
        now[0] = 30.0
        assert snapshots.due()
        monkeypatch.setattr(SnapshotFiles, "write_tensors", lambda *_: (now.__setitem__(0, 31.0), ("a", "b"))[1])
        snapshots.keep("fit", _state())
        now[0] = 31.0 + 199.0  # one that took a second is not made again for 200
        assert not snapshots.due()
        now[0] = 31.0 + 200.0
        assert snapshots.due()


def _state() -> Any:
    from murho.model.fitting.fit_state import FitState

    return FitState({}, {"history": []})


def test_lists_of_checkpoints_pass_over_snapshots(tmp_path: Path) -> None:
    trained = run(tmp_path / "rent")
    assert (tmp_path / "rent" / DIRECTORY / "training.json").exists()
    write_checkpoint(tmp_path, "rent", trained.spec, trained.tensors)
    (found,) = list_checkpoints(tmp_path)
    assert (found.name, found.version, found.problem) == ("rent", "1", None)


def _wait_for_a_fit_under_way(directory: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert process.poll() is None, "the training has ended before it was killed"
        try:
            fits = json.loads((directory / "training.json").read_text())["content"]["fits"].values()
        except FileNotFoundError:
            fits = []
        done = any(fit["status"] == "finished" for fit in fits)
        if done and any(fit["status"] == "under way" for fit in fits):
            return
        time.sleep(0.05)
    raise AssertionError("no snapshot was written")


@pytest.mark.slow
def test_a_killed_process_is_resumed_to_the_same_file(tmp_path: Path) -> None:
    where = ("--checkpoints", tmp_path, "--target", "Miles_per_Gallon")
    arguments = ("train", CARS, *where, "--hidden", "8", "--epochs", "60", "--members", "2", "--name")
    murho(*arguments, "whole")
    with subprocess.Popen(
        [MURHO, *map(str, arguments), "cut", "--snapshot-every", "0"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        _wait_for_a_fit_under_way(tmp_path / "cut" / DIRECTORY, process)
        os.kill(process.pid, signal.SIGKILL)
    done = murho(*arguments, "cut", "--resume")
    assert "finished fit" in done.stderr
    tensors = [(tmp_path / name / "1" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert tensors[0] == tensors[1]
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["1"]  # the snapshot is gone
    assert "nothing to resume" in murho(*arguments, "cut", "--resume").stderr
