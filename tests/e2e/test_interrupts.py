"""Ctrl-C at any moment after the first epoch: a checkpoint comes, and is marked as interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from pathlib import Path

CARS = ROOT / "examples" / "cars.csv"
TRAIN = (
    *("train", CARS, "--target", "Miles_per_Gallon", "--hidden", 8, "--budget", 1000),
    *("--members", 4, "--encoding", "standard", "--transform", "none", "--no-report"),
)
TALKATIVE = """
from murho.command_line import app
from murho.model.python.progress import TerminalReporter
TerminalReporter.epoch = lambda self, _: self.say("an epoch is done")
TerminalReporter.scored = lambda self, _: self.say("a fit is scored")
app()
"""
"""The command line; its log, which has a line every ten seconds, says more."""


def _heed_interrupts() -> None:
    # Where the tests run in the background, signals of the keyboard are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("moment", "epochs"),
    [
        ("an epoch is done", 1_000_000),
        ("a fit is scored", 15),
        pytest.param("chose ", 15, marks=pytest.mark.slow),  # it calibrates
    ],
)
def test_ctrl_c_saves_the_best_so_far(tmp_path: Path, moment: str, epochs: int) -> None:
    log = tmp_path / "log"
    arguments = (*TRAIN, "--epochs", epochs, "--patience", epochs, "--checkpoints", tmp_path)
    command = [sys.executable, "-c", TALKATIVE, *(str(part) for part in arguments)]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stderr=file, stdout=subprocess.PIPE, preexec_fn=_heed_interrupts) as process,
    ):
        try:
            while moment not in log.read_text():
                assert process.poll() is None, log.read_text()
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    said = log.read_text()
    assert process.returncode == 0, said
    assert "(interrupted)" in output.decode()
    assert "interrupted: " in said
    facts = json.loads((tmp_path / "cars" / "1" / "model.json").read_text())
    assert facts["training"]["interrupted"] is True
    assert facts["calibration"] is not None
    assert sorted(path.name for path in (tmp_path / "cars").iterdir()) == ["1"]
    answers = call_murho("predict", CARS, "--model", "cars", "--checkpoints", tmp_path).stdout
    assert len(answers.splitlines()) == 407
