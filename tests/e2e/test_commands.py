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
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from murho.model.training.options import TrainOptions, flag
from tests.e2e.support import MURHO, murho, serve
from tests.support import ROOT, call_murho, made_once

if TYPE_CHECKING:
    from pathlib import Path

CARS = ROOT / "examples" / "cars.csv"
QUICK = ("--epochs", 20, "--noise", "homoscedastic", "--hidden", 16, "--members", 5, "--encoding", "standard")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ROOT / "examples" / "cars.toml"

    def train(root: Path) -> None:
        call_murho("train", CARS, "--config", config, "--checkpoints", root, *QUICK)

    return made_once(tmp_path_factory, "quick cars", train)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_help_answers_and_names_the_commands() -> None:
    text = murho("--help").stdout
    for command in ("train", "serve", "predict", "evaluate"):
        assert command in text
        assert f"Usage: murho {command}" in murho(command, "--help").stdout


def test_help_imports_neither_room() -> None:
    code = (
        "import sys; from murho.command_line import app; app(['--help'], standalone_mode=False); "
        "rooms = ('torch', 'fastapi', 'murho.cli.train', 'murho.service.commands'); "
        "print([name for name in rooms if name in sys.modules])"
    )
    done = subprocess.run(
        [MURHO.with_name("python"), "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip().endswith("[]")


def test_help_of_train_has_every_option_and_imports_neither_numpy_nor_torch() -> None:
    code = (
        "import sys; from murho.command_line import app; app(['train', '--help'], standalone_mode=False); "
        "print([name for name in ('torch', 'numpy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [MURHO.with_name("python"), "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip().endswith("[]")
    for name in set(TrainOptions.model_fields) - {"columns"}:
        assert f"  {flag(name)} " in done.stdout
    for name in (
        "--target",
        "--name",
        "--checkpoints",
        "--config",
        "--no-skip",
    ):
        assert f" {name} " in done.stdout


def test_version_is_printed() -> None:
    assert murho("--version").stdout.startswith("murho ")


def test_training_says_what_it_does_and_the_same_seed_writes_the_same_tensors_in_any_process(tmp_path: Path) -> None:
    arguments = ("train", CARS, "--target", "Miles_per_Gallon", "--checkpoints", tmp_path, "--seed", 5, *QUICK)
    done = murho(*arguments)
    assert "left out 8 of 406 rows" in done.stderr
    for word in ("rows that it has not seen", "RMSE", "NLL", "CRPS", "90 % bands cover", "saved"):
        assert word in done.stdout
    assert "Weight_in_lbs  " in done.stderr
    assert len(done.stderr.splitlines()) < 22
    again = call_murho(*arguments, "--json")
    assert json.loads(again.stdout)["version"] == "2"
    first, second = ((tmp_path / "cars" / v / "model.safetensors").read_bytes() for v in ("1", "2"))
    assert first == second


def test_predict_writes_one_line_a_row_in_order(checkpoints: Path) -> None:
    done = murho("predict", CARS, "--model", "cars", "--checkpoints", checkpoints, "--percentiles", "2.5,50,97.5")
    rows = _rows(done.stdout)
    assert len(rows) == 406
    assert list(rows[0]) == ["mean", "std", "epistemic_std", "aleatoric_std", "p2.5", "p50", "p97.5"]
    assert all(float(row["p2.5"]) < float(row["p50"]) < float(row["p97.5"]) for row in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="only the OpenMP of Linux's PyTorch shows its settings so")
def test_a_command_imports_no_pandas_and_its_threads_sleep_while_they_wait(checkpoints: Path) -> None:
    command = [MURHO, "predict", CARS, "--model", "cars", "--checkpoints", checkpoints, "--samples", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    said = subprocess.run(
        [str(word) for word in command],
        env=environment | {"OMP_DISPLAY_ENV": "true", "PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in said.stderr
    imported = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert "torch" in imported
    assert "pandas" not in imported


def test_predict_without_samples_leaves_the_spread_empty(checkpoints: Path) -> None:
    rows = _rows(call_murho("predict", CARS, "--model", "cars", "--checkpoints", checkpoints, "--samples", 0).stdout)
    assert rows[0]["mean"]
    assert rows[0]["std"] == rows[0]["p5"] == ""


def test_predict_keeps_inputs_and_writes_parquet(checkpoints: Path, tmp_path: Path) -> None:
    output = tmp_path / "scored.parquet"
    call_murho("predict", CARS, "--model", "cars", "--checkpoints", checkpoints, "--output", output, "--keep-inputs")
    table = pq.read_table(output)
    assert table.num_rows == 406
    assert table.column_names[:2] == ["Miles_per_Gallon", "Cylinders"]
    assert table.column_names[-3:] == ["p5", "p50", "p95"]


def test_predict_through_a_service_equals_predict_offline(checkpoints: Path, tmp_path: Path) -> None:
    # Neither needs the name of the only model.
    arguments = ("predict", CARS, "--samples", 64, "--seed", 3, "--thresholds", "20,30.5", "--percentiles", "0.5,0.9")
    offline = _rows(call_murho(*arguments, "--checkpoints", checkpoints).stdout)
    with serve(checkpoints, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        done = call_murho(*arguments, "--url", service.address)
    assert "note: --percentiles: Levels are per cent" in done.stderr
    online = _rows(done.stdout)
    assert len(online) == len(offline)
    assert list(online[0]) == list(offline[0])
    assert list(online[0])[-2:] == ["exceedance_20", "exceedance_30.5"]
    for ours, theirs in zip(offline, online, strict=True):
        for name, value in ours.items():
            assert float(theirs[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-6)


def test_evaluate_prints_the_contracts_keys(checkpoints: Path) -> None:
    done = call_murho("evaluate", CARS, "--model", "cars", "--checkpoints", checkpoints, "--json")
    report = json.loads(done.stdout)
    assert {"n", "rmse", "mae", "nll", "crps", "raw", "calibrated"} <= set(report)
    assert report["n"] == 398
    for kind in ("raw", "calibrated"):
        assert set(report[kind]["coverage"]) == set(report[kind]["width"]) == {"50", "80", "90", "95"}
    assert "left out 8 rows" in done.stderr
    assert "CRPS" in call_murho("evaluate", CARS, "--model", "cars", "--checkpoints", checkpoints).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("train", CARS), 2, "--target"),
        (("train", CARS, "--target", "Miles_per_Galon"), 1, "Miles_per_Gallon"),
        (("train", "nowhere.csv", "--target", "x"), 1, "nowhere.csv"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--name", "a/b"), 1, "'a/b'"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--hidden", "wide"), 2, "--hidden"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--prior-pi", "2"), 2, "--prior-pi"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--ignore", "Colour"), 2, "Colour"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--checkpoints", CARS), 1, "can't write"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--device", "tpu"), 2, "--device"),
        (("predict", CARS, "--model", "boats"), 1, "boats"),
        (("predict", CARS, "--model", "cars", "--percentiles", "0,50"), 2, "--percentiles"),
        (("predict", CARS, "--model", "cars", "--url", "http://127.0.0.1:9"), 1, "can't be reached"),
        (("evaluate", CARS, "--model", "../cars"), 1, "name"),
    ],
)
def test_mistakes_get_one_line_that_says_what_is_wrong(
    tmp_path: Path, arguments: tuple[object, ...], code: int, message: str
) -> None:
    done = call_murho(*arguments, cwd=tmp_path, code=code)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.glob("checkpoints/*/*"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("train", CARS), 2),
        (("predict", CARS, "--model", "boats"), 1),
    ],
)
def test_a_mistake_ends_the_process_with_its_code_and_one_line_on_stderr(
    tmp_path: Path, arguments: tuple[object, ...], code: int
) -> None:
    done = murho(*arguments, cwd=tmp_path, code=code)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("x,y\n", "y"),
        ("x,y\n1,2\n", "row"),
        ("x,y\n1,2\n2,2\n3,2\n", "in every row"),
        ("x,y\n1,\n2,\n", "y"),
        ("x,y\n" + "1,2\n2,3\n" * 20 + "oops,4\n", "row 41"),
        ("x,y\n1,2\n2,inf\n3,4\n", "row 2"),
        ("x,y\n1,2\n1,3\n1,4\n", "feature"),
        ("x,y\n1,2\n1,3,9\n", "line 3"),
    ],
)
def test_tables_that_can_not_be_used_are_refused_by_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    done = call_murho("train", path, "--target", "y", "--checkpoints", tmp_path / "checkpoints", code=1)
    assert "table.csv" in done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert not list((tmp_path / "checkpoints").glob("*/*"))


def test_a_terminal_of_80_columns_gets_stage_bar_eta_and_best_score_in_place(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm-256color"
    command = [str(MURHO), "train", str(CARS), "--target", "Miles_per_Gallon", "--checkpoints", str(tmp_path)]
    command += [str(word) for word in QUICK]
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere.csv", "--target", "a"), "nowhere.csv does not exist"),
        (("train", "few.csv", "--target", "z", "--name", "few"), "'z' is not a column of the table"),
        (("train", "few.csv", "--target", "day", "--name", "few"), "has date cells"),
        (("train", "few.csv", "--target", "a", "--device", "gpu"), "--device must be auto, cpu or cuda"),
        (("train", "few cars (1).csv", "--target", "a"), "give one, such as --name few-cars-1"),
        (("predict", "few.csv", "--model", "nothing"), "has no checkpoint 'nothing'"),
        (("evaluate", "few.csv", "--model", "nothing"), "has no checkpoint 'nothing'"),
        (("update", "nothing", "few.csv", "--epochs", "0"), "--epochs: Input should be greater than or equal to 1"),
        (("report", "nothing"), "has no checkpoint 'nothing'"),
    ],
)
def test_mistakes_are_answered_without_importing_torch_or_pandas(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for name in ("few.csv", "few cars (1).csv"):
        (tmp_path / name).write_text("a,day\n1,2020-01-01\n2,2020-01-02\n")
    code = (
        "import sys; from murho.command_line import main; sys.argv = ['murho', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit: print([name for name in ('torch', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [MURHO.with_name("python"), "-c", code, *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert message in done.stderr
    assert done.stdout == "[]\n"
