"""The README's table of options is the one that the command prints, and has every option of `murho train`."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

from pydantic import Field

from murho.model.training.options import TrainOptions
from tests.support import ROOT

markdown_table = runpy.run_path(str(ROOT / "scripts" / "options_table.py"))["markdown_table"]


class Further(TrainOptions):
    """One option more."""

    dropout: float = Field(default=0.25, ge=0.0, lt=1.0, description="Share of units left out of a step.")


def test_the_readme_has_what_the_command_prints() -> None:
    (command, table) = re.findall(
        r"<!-- options: printed by `python (\S+)` -->\n\n(.*?)\n<!-- end of options -->",
        (ROOT / "README.md").read_text(),
        flags=re.DOTALL,
    )[0]
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, check=True, cwd=ROOT)
    assert table == done.stdout, f"put what `python {command}` prints into the README"


def test_every_row_has_as_many_cells_as_the_head() -> None:
    lines = markdown_table().splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    named = re.findall(r"^\| `--([a-z0-9-]+)`", markdown_table(), flags=re.MULTILINE)
    assert len(named) == len(set(named))
    assert {"target", "config", "device", "hidden", "seed"} <= set(named)


def test_a_further_field_is_a_further_row() -> None:
    assert markdown_table(Further) == markdown_table() + (
        "| `--dropout` | Share of units left out of a step. | at least 0, below 1 | 0.25 |\n"
    )
