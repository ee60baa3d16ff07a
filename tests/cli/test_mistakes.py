"""Mistakes in a command line: one line on stderr, a code, and nothing written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rents import CHECKPOINTS
from tests.support import ROOT, call_murho

CARS = ROOT / "examples" / "cars.csv"
IN = ("--checkpoints", CHECKPOINTS)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("train", CARS), 2, "--target"),
        (("train", ".", "--target", "rent"), 1, ". is a directory: give a file"),
        (("train", CARS, "--target", "Miles_per_Galon"), 1, "Miles_per_Gallon"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--name", "a/b"), 1, "'a/b'"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--hidden", "wide"), 2, "--hidden"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--prior-pi", "2"), 2, "--prior-pi"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--ignore", "Colour"), 2, "Colour"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--checkpoints", CARS), 1, "can't write"),
        (("predict", CARS, "--model", "cars", "--percentiles", "0,50"), 2, "--percentiles"),
        (("predict", CARS, "--model", "cars", "--url", "http://127.0.0.1:9"), 1, "can't be reached"),
        (("evaluate", CARS, "--model", "../cars"), 1, "name"),
        (("prune", "rents", "--fraction", 1, *IN), 2, "--fraction must lie strictly between 0 and 1, not 1"),
        (("prune", "rents", "--fraction", 0.5, "--version", 99, *IN), 1, "no version '99'"),
        (("update", "rents", CARS, "--learning-rate", -1, *IN), 2, "--learning-rate must be above 0, not -1"),
        (
            ("export", "rents", "--to", "onnx", "--percentiles", "101", *IN),
            2,
            "--percentiles: expected numbers strictly",
        ),
        (("export", "rents", "--to", "onnx", "--output", CARS, *IN), 1, "cars.csv can't be written: File exists"),
        (("quality", "rents", "--store", "typo.db"), 2, "no store typo.db"),
        (("adaptation", "rents", "--store", "typo.db"), 2, "no store typo.db"),
        (("learn", "rents", "--store", "typo.db", *IN), 2, "no store typo.db"),
        (("explain", "rows.csv", "rents", *IN), 2, "rows.csv is a file, and rents is not: did you swap NAME and DATA?"),
        (("predict", "rents", *IN), 2, "'rents' is a model; also give the file"),
        (("train", CARS, "--target", "Miles_per_Gallon", "--members", "100"), 2, "--members must be 1 to 64, not 100"),
        (("explain", "rents", "rows.csv", *IN), 1, "rows.csv: the table has no rows to explain"),
        (("train", "rows.csv", "--target", "sqm"), 1, "rows.csv: the table has no rows: at least two are needed"),
        (("train", "bare.csv", "--target", "sqm"), 1, "is the line with the column names missing?"),
        (("update", "rents", CARS, *IN), 1, "cars.csv: the target 'rent' is not a column"),
    ],
)
def test_mistakes_get_one_line_that_says_what_is_wrong(
    tmp_path: Path, arguments: tuple[object, ...], code: int, message: str
) -> None:
    (tmp_path / "rows.csv").write_text("sqm,rooms,city,parking,listed\n")
    (tmp_path / "bare.csv").write_text("83.5,3,Basel\n31,2,Zug\n")
    done = call_murho(*arguments, cwd=tmp_path, code=code)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert not [*tmp_path.glob("checkpoints/*/*"), *tmp_path.glob("*.db")]


def test_a_full_disk_behind_stdout_is_said_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "murho", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: output: No space left on device\n")
