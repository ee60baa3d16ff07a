"""The examples run as their pages say: scripts in a quick setting, the notebook as a whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support import ROOT

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def words(text: str) -> list[list[str]]:
    """Return the words of each line that is printed, without its numbers."""
    return [re.findall(r"[A-Za-z_]+", line) for line in text.splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pricing.py", "active_learning.py", "drift.py", "totals.py", "outcomes.py"])
def test_a_script_prints_what_its_page_says_and_draws_its_figure(script: str, tmp_path: Path) -> None:
    figure = tmp_path / "figure.png"
    last = words(run(script, "--quick", "--figure", figure))
    assert figure.read_bytes().startswith(b"\x89PNG")
    shown = PAGE.read_text()
    assert f"python examples/{script}" in shown
    printed = words(shown)
    # The lines of a quick run are those of the page, apart from their numbers.
    missing = [line for line in last if line not in printed and line[:1] not in [["drew"], ["A"]]]
    assert missing == []


@pytest.mark.slow
def test_scoringbenchs_protocol_runs_on_a_table() -> None:
    printed = run("scoring_bench.py", EXAMPLES / "cars.csv", "Miles_per_Gallon", "--quick")
    assert len(re.findall(r"^fold \d: CRPS", printed, re.M)) == 5
    crps, rmse = map(float, re.findall(r"^CRPS ([\d.]+) ± .*RMSE ([\d.]+) ±", printed, re.M)[0])
    assert crps < rmse < 4.0


def test_the_textbooks_bands_open_where_there_are_no_points() -> None:
    """Blundell et al. 2015: nothing clips, limits or moves a draw of the network, however far out it is asked."""
    factors = {
        name: float(times) for name, times in re.findall(r"^(\w+): .* ([\d.]+) times$", run("textbook.py"), re.M)
    }
    assert factors["sinusoid"] >= 3.0
    assert factors["quartic"] >= 10.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of Jupyter are not ours
def test_the_notebook_runs_from_its_first_cell_to_its_last() -> None:
    notebook = nbformat.read(EXAMPLES / "cars.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}})
    client.execute()  # an error in a cell is an error here
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert "ready: True" in text
    assert "9000 is above the training range" in text
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_the_notebook_shows_its_answers_and_no_error() -> None:
    notebook = nbformat.read(EXAMPLES / "cars.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert str(ROOT) not in nbformat.writes(notebook)
