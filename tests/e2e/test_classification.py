"""The page on classes, from its first command to its last, with a quick fit: what it shows is what happens."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.test_docs import block_after
from tests.support import ROOT, call_murho

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "classification.md"
QUICK = ("--epochs", 25, "--members", 5, "--hidden", 16, "--encoding", "standard", "--temperature", 0.1)
"""Options of the training beside those of the page, which take seconds."""


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the commands of the page in order, and what each printed; ``directory`` is where."""
    directory: Path = tmp_path_factory.mktemp("penguins")
    shutil.copytree(ROOT / "examples", directory / "examples")
    said = {"directory": str(directory)}
    blocks = re.findall(r"<!-- typed -->\n```sh\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        name, *words = shlex.split(line)
        if name == "murho":
            more = QUICK if words[0] == "train" else ("--epochs", 20) if words[0] == "update" else ()
            done = call_murho(*words, *more, cwd=directory)
            said[line] = done.stderr + done.stdout
        else:
            subprocess.run(["bash", "-c", line], cwd=directory, check=True, timeout=100)
    return said


def said_by(typed: dict[str, str], command: str) -> str:
    (said,) = (text for line, text in typed.items() if line.startswith(f"murho {command} "))
    return said


def shapes(text: str) -> set[str]:
    """Return the lines of a table without their numbers, which another fit changes."""
    lines = [
        re.sub(r"-?\d[\d.,x]*(?:e[-+]?\d+)?(?: ± [\d.]+)?", "0", re.sub(r" +", " ", line)).strip()
        for line in text.splitlines()
    ]
    return {line.replace("few rows", "").strip() for line in lines if line and not line.startswith("layers")}


@pytest.mark.parametrize("mark", ["trained", "judged"])
def test_the_page_shows_what_is_printed(typed: dict[str, str], mark: str) -> None:
    command = {"trained": "train", "judged": "evaluate"}[mark]
    said, shown = shapes(said_by(typed, command)), shapes(block_after(PAGE, mark))
    # Notes in brackets, and what the search chose, depend on the fit.
    differ = {line for line in shown - said if not line.startswith(("(", "0 %", "chose"))}
    assert differ == set()


def test_predictions_are_written_as_the_page_says(typed: dict[str, str]) -> None:
    directory = Path(typed["directory"])
    with (directory / "scored.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 69
    table = pq.read_table(directory / "scored.parquet")
    right = 0
    for row, larger in zip(rows, table.column("prediction_set").to_pylist(), strict=True):
        held = json.loads(row["prediction_set"])
        assert row["prediction"] in held
        assert set(held) <= set(larger)
        right += row["species"] == row["prediction"]
    assert right / len(rows) > 0.9


def test_a_new_species_is_refused_by_an_update_and_counted_by_an_evaluation(
    typed: dict[str, str], tmp_path: Path
) -> None:
    directory = Path(typed["directory"])
    odd = tmp_path / "odd.csv"
    odd.write_text((directory / "new.csv").read_text() + "Macaroni,Dream,40,17,190,3500,male,2008\n")
    done = call_murho("update", "penguins", odd, cwd=directory, code=1)
    assert "row 70: 'Macaroni' is none of the 3 classes" in " ".join(done.stderr.split())
    report = json.loads(call_murho("evaluate", odd, "--model", "penguins", "--json", cwd=directory).stdout)
    assert report["unknown"]["classes"] == {"Macaroni": 1}
