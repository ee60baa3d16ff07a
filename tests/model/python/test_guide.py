"""The code in docs/estimator.md runs, and does what the text says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "estimator.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(snippets) == 9
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = [sys.executable, "-W", "error", "-c", "\n".join(snippets)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (r2,) = re.findall(r"rows: (0\S+)", done.stdout)
    (coverage,) = re.findall(r"hold (\d+)%", done.stdout)
    (accuracy,) = re.findall(r"accuracy: (\S+)", done.stdout)
    assert float(r2) > 0.8
    assert float(coverage) > 75
    assert float(accuracy) > 0.8
    assert "back again: True" in done.stdout
    shown, printed = (re.search(r"<Miles_per_Gallon of 3 rows: (\S+) ± (\S+),", page) for page in (text, done.stdout))
    assert shown is not None
    assert printed is not None
    # The same but for rounding, which differs between processors.
    assert [float(part) for part in printed.groups()] == pytest.approx(
        [float(part) for part in shown.groups()], rel=0.1
    )
    assert "['Europe' 'Japan' 'USA']" in done.stdout
    assert (tmp_path / "checkpoints" / "cars" / "2" / "model.json").is_file()
