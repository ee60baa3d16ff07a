"""The command line from the outside: train, predict, evaluate, and what people get wrong.

`murho` starts a process, as a user does; `call_murho` runs the same from `murho.command_line.main` on, where what a
process adds (the entry point, its exit code and streams, signals, a hash seed of its own) is tested beside it.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from murho.model.training.options import TrainOptions, flag
from tests.e2e.support import MURHO, Service, murho
from tests.service.classifiers import write_classifier
from tests.service.support import ROW
from tests.support import ROOT, call_murho, write_table

CARS = ROOT / "examples" / "cars.csv"
QUICK = "--epochs 10 --noise homoscedastic --hidden 16 --members 2 --encoding standard --no-report".split()  # noqa: SIM905


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_no_help_imports_what_takes_seconds_and_that_of_train_has_every_option() -> None:
    code = (
        "import sys; from murho.command_line import COMMANDS, app\n"
        "for words in (['--help'], *([command, '--help'] for command in COMMANDS)): app(words, standalone_mode=False)\n"
        "print([name for name in ('torch', 'numpy', 'sklearn', 'pyarrow', 'ray', 'fastapi') if name in sys.modules])"
    )
    said = subprocess.run(
        [MURHO.with_name("python"), "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.strip().endswith("[]")
    for name in {flag(name) for name in TrainOptions.model_fields} - {flag("columns")}:
        assert f"  {name} " in said
    for name in ("--target", "--name", "--checkpoints", "--config", "--no-skip"):
        assert f" {name} " in said


def test_training_says_what_it_does_and_the_same_seed_writes_the_same_tensors_in_any_process(tmp_path: Path) -> None:
    arguments = ("train", CARS, "--target", "Miles_per_Gallon", "--checkpoints", tmp_path, "--seed", 5, *QUICK)
    done = murho(*arguments, PYTHONPROFILEIMPORTTIME="1")
    lines = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "torch" in imported
    assert not imported & {"torch._dynamo", "sympy", "pandas"}, "a fit takes no compiler of PyTorch"
    said = [line for line in lines if not line.startswith("import time:")]
    assert any("left out 8 of 406 rows" in line for line in said)
    for word in ("Held-out scores", "RMSE", "NLL", "CRPS", "90 % bands cover", "saved"):
        assert word in done.stdout
    assert any("Weight_in_lbs  " in line for line in said)
    assert len(said) < 22
    again = call_murho(*arguments, "--json")
    assert json.loads(again.stdout)["version"] == "2"
    first, second = ((tmp_path / "cars" / v / "model.safetensors").read_bytes() for v in ("1", "2"))
    assert first == second


def test_predict_writes_one_line_a_row_in_order_imports_no_pandas_and_its_threads_sleep_while_they_wait(
    quick_cars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OMP_")]:
        monkeypatch.delenv(name)
    words = ("predict", CARS, "--model", "cars", "--checkpoints", quick_cars, "--percentiles", "2.5,50,97.5")
    done = murho(*words, OMP_DISPLAY_ENV="true", PYTHONPROFILEIMPORTTIME="1")
    rows = _rows(done.stdout)
    assert len(rows) == 406
    assert list(rows[0]) == ["mean", "std", "epistemic_std", "aleatoric_std", "p2.5", "p50", "p97.5"]
    assert all(float(row["p2.5"]) < float(row["p50"]) < float(row["p97.5"]) for row in rows)
    if sys.platform == "linux":  # only the OpenMP of Linux's PyTorch shows its settings so
        assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
    assert not re.search(r"\| +pandas$", done.stderr, flags=re.MULTILINE)


EVERYTHING = ("--samples", 16, "--seed", 3, "--draws", "--mc-error", "--warnings")


def odd_rows(path: Path, count: int) -> Path:
    """Rows with a cell beyond the training range, one that is missing, and a column that is no feature."""
    rows = [{**ROW, "Weight": 2000 + 10 * index, "id": index} for index in range(count)]
    rows[1]["Weight"], rows[2]["Year"] = 9000, None
    write_table(path, {name: [row[name] for row in rows] for name in rows[0]})
    return path


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("cars", ("--thresholds", "20,30.5", "--percentiles", "0.5,0.9")),
        ("cars", ("--no-noise", "--raw")),
        ("bodies", ("--coverage", 0.8)),
        ("bodies", ("--raw",)),
    ],
)
def test_predict_through_a_service_equals_predict_offline(
    model: str, options: tuple[object, ...], busy: Service, tiny_cars: Path, tmp_path: Path
) -> None:
    write_classifier(tmp_path, "bodies")
    arguments = ("predict", odd_rows(tmp_path / "rows.csv", 6), "--model", model, *EVERYTHING, *options)
    offline, online = (
        call_murho(*arguments, *where)
        for where in (("--checkpoints", tiny_cars if model == "cars" else tmp_path), ("--url", busy.address))
    )
    assert online.stderr == offline.stderr
    assert "note: 1 row is unlike" in online.stderr
    assert ("without a cell" in online.stderr) == (model == "cars")
    assert ("--percentiles: Levels are per cent" in online.stderr) == ("--percentiles" in options)
    assert _rows(online.stdout)[1]["warnings"]
    for ours, theirs in zip(_rows(offline.stdout), _rows(online.stdout), strict=True):
        assert list(ours) == list(theirs)
        for name, value in ours.items():
            if name in ("prediction", "prediction_set", "warnings"):
                assert theirs[name] == value
            else:
                expected, found = (np.array(json.loads(cell or "null"), dtype=float) for cell in (value, theirs[name]))
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_service_lists_the_first_warnings_alone_which_is_said(busy: Service, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_table(path, {name: [9000 if name == "Weight" else cell] * 150 for name, cell in ROW.items()})
    done = call_murho("predict", path, "--model", "cars", "--url", busy.address, "--warnings", "--samples", 2)
    assert "lists the first 100 warnings" in done.stderr


def test_a_mistake_ends_the_process_with_its_code_and_one_line_on_stderr(tmp_path: Path) -> None:
    assert murho("--version").stdout.startswith("murho ")
    for arguments, code in ((("train", CARS), 2), (("predict", CARS, "--model", "boats"), 1)):
        done = murho(*arguments, cwd=tmp_path, code=code)
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_a_terminal_of_80_columns_gets_stage_bar_eta_and_best_score_in_place(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm-256color"
    command = [str(MURHO), "train", str(CARS), "--target", "Miles_per_Gallon", "--checkpoints", str(tmp_path)]
    command += QUICK
    with subprocess.Popen(
        command, stdin=terminal, stderr=terminal, stdout=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(terminal)
        seen = b""
        while True:
            try:
                chunk = os.read(controller, 65_536)
            except OSError:  # the terminal is closed when the process ends
                break
            if not chunk:
                break
            seen += chunk
        process.wait(60)
    os.close(controller)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
    for word in ("homoscedastic noise", "free energy", "KL", "validation nll", "ETA", "epoch", "best so far: CRPS"):
        assert word in text
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= 80


MISTAKES = {
    ("train", "nowhere.csv", "--target", "a"): "nowhere.csv does not exist",
    ("train", "few.csv", "--target", "z", "--name", "few"): "'z' is not a column of the table",
    ("train", "few cars (1).csv", "--target", "a"): "give one, such as --name few-cars-1",
    ("predict", "few.csv", "--model", "nothing"): "has no checkpoint 'nothing'",
    ("update", "nothing", "few.csv", "--epochs", "0"): "--epochs must be at least 1",
}


def test_mistakes_are_answered_without_importing_torch_or_pandas(tmp_path: Path) -> None:
    for name in ("few.csv", "few cars (1).csv"):
        (tmp_path / name).write_text("a,day\n1,2020-01-01\n2,2020-01-02\n")
    code = (
        "import json, sys; from murho.command_line import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['murho', *words]\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "print([name for name in ('torch', 'pandas') if name in sys.modules])"
    )
    command = [str(MURHO.with_name("python")), "-c", code, json.dumps(list(MISTAKES))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    for said, message in zip(done.stderr.splitlines(), MISTAKES.values(), strict=True):
        assert message in said
    assert done.stdout == "[]\n"


TRAIN = (
    *("train", CARS, "--target", "Miles_per_Gallon", "--hidden", 8, "--budget", 1000),
    *("--members", 4, "--encoding", "standard", "--transform", "none", "--no-report"),
)
TALKATIVE = """
from murho.command_line import app
from murho.model.python.terminal_reporter import TerminalReporter
TerminalReporter.epoch = lambda self, _: self.say("an epoch is done")
TerminalReporter.show_scores = lambda self, _: self.say("a fit is scored")
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
        pytest.param("a fit is scored", 15, marks=pytest.mark.slow),
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
