"""Ctrl-C at any moment after the first trial: a checkpoint comes, marked as interrupted, and how to go on is said."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from murho.model.training.snapshot_files import INDEX
from tests.e2e.support import MURHO, murho
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CARS = ROOT / "examples" / "cars.csv"
TRAIN = (
    *("train", CARS, "--target", "Miles_per_Gallon", "--hidden", 8, "--epochs", 15, "--budget", 1000),
    *("--members", 4, "--encoding", "standard", "--transform", "none"),
)

SCORED, CALIBRATING = "the first fit is scored", "chose "


def _heed_interrupts() -> None:
    # Where the tests run in the background, signals of the keyboard are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt_at(moment: str, where: Path) -> tuple[int, str, str]:
    """Train, send SIGINT as soon as the first fit is scored, or as a word is said; exit code, stdout and stderr."""
    log = where / "log"
    command = [str(part) for part in (MURHO, *TRAIN, "--checkpoints", where)]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stderr=file, stdout=subprocess.PIPE, preexec_fn=_heed_interrupts) as process,
    ):
        try:
            for _ in range(20_000):
                if moment == SCORED and _has_scored(where):
                    time.sleep(0.2)  # until it is compared with the best one so far
                    break
                if moment in log.read_text():
                    break
                assert process.poll() is None, log.read_text()
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, output.decode(), log.read_text()


def _has_scored(where: Path) -> bool:
    """Whether the snapshot has the outcome of a fit; a log says nothing within ten seconds."""
    index = where / "cars" / ".training" / INDEX
    return index.is_file() and '"finished"' in index.read_text()


@pytest.mark.parametrize("moment", [SCORED, pytest.param(CALIBRATING, marks=pytest.mark.slow)])
def test_ctrl_c_saves_the_best_so_far_and_says_how_to_go_on(tmp_path: Path, moment: str) -> None:
    code, output, said = _interrupt_at(moment, tmp_path)
    assert code == 0, said
    assert "(interrupted)" in output
    assert "interrupted: " in said
    assert "the same command with --resume goes on" in said
    facts = json.loads((tmp_path / "cars" / "1" / "model.json").read_text())
    assert facts["training"]["interrupted"] is True
    assert facts["calibration"] is not None
    if moment == CALIBRATING:
        resumed = murho(*TRAIN, "--checkpoints", tmp_path, "--resume")
        assert "(interrupted)" not in resumed.stdout
        facts = json.loads((tmp_path / "cars" / "2" / "model.json").read_text())
        assert facts["training"]["interrupted"] is False
        assert facts["metrics"]["n"] == 398
        assert sorted(path.name for path in (tmp_path / "cars").iterdir()) == ["1", "2"]
