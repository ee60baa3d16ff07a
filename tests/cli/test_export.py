"""`murho export --to onnx`: the graph and the encoding beside it answer as Murho does, in a few lines of NumPy."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.proof import typical_rows
from murho.model.predictive.prediction import PredictOptions
from tests.support import ROOT, call_murho

RENTS = ROOT / "tests" / "fixtures" / "checkpoints"
READERS = ROOT / "examples"


@pytest.mark.parametrize("noise", ["rents", "heteroscedastic", "homoscedastic"])
def test_onnxruntime_answers_as_murho_does(tmp_path: Path, noise: str) -> None:
    root, name = RENTS, "rents"
    if noise != "rents":
        root, name = tmp_path / "made", "cars"
        options = ("--noise", noise, "--quick", "--epochs", 3, "--checkpoints", root, "--name", name)
        call_murho("train", ROOT / "examples" / "cars.csv", "--target", "Miles_per_Gallon", *options)
    words = ("--to", "onnx", "--checkpoints", root, "--output", tmp_path / "out", "--samples", 64)
    call_murho("export", name, *words, "--percentiles", "10,50,99")
    posterior: Posterior[Any] = Posterior.load(max((root / name).iterdir()))
    names = [feature.name for feature in posterior.schema.features]
    columns = typical_rows(posterior.schema)
    encoded = posterior.encoder.encode(columns)
    expected = posterior.predict(columns, PredictOptions(64, (10.0, 50.0, 99.0)))
    records = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    encode = runpy.run_path(str(READERS / "read_onnx.py"))["encode"]
    encoding = json.loads((tmp_path / "out" / "encoding.json").read_text())
    assert encoding["target"] in ("rent", "Miles_per_Gallon")
    cells = [{name: None if cell != cell else cell for name, cell in record.items()} for record in records]
    rows = [[encode(row, to) for to in encoding["columns"]] for row in cells]
    np.testing.assert_allclose(rows, encoded.inputs, atol=2e-6)
    usual = ~encoded.out_of_range
    assert usual.any()
    commands: list[tuple[str | Path, ...]] = [(sys.executable, READERS / "read_onnx.py")]
    if (modules := _node_modules()) is not None:
        (tmp_path / "node_modules").symlink_to(modules)
        shutil.copy(READERS / "read_onnx.mjs", tmp_path)  # which finds its packages beside it
        commands.append(("node", "read_onnx.mjs"))
    for command in commands:
        line = (*command, tmp_path / "out", json.dumps(cells))
        answer = json.loads(subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
        for told in ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles"):
            known = getattr(expected, told)
            found = np.reshape(answer[told], known.shape)
            assert (np.abs(found - known)[usual].T / expected.std[usual]).max() < 1e-4, told


def _node_modules() -> Path | None:
    """Where npm has onnxruntime-web (``npm install --global onnxruntime-web``); None: nowhere."""
    if shutil.which("npm") is None:
        return None
    found = subprocess.run(("npm", "root", "--global"), capture_output=True, text=True, check=True).stdout.strip()
    return Path(found) if (Path(found) / "onnxruntime-web").is_dir() else None


def test_classes_are_refused(tmp_path: Path) -> None:
    options = ("--quick", "--epochs", 1, "--checkpoints", tmp_path)
    call_murho("train", ROOT / "examples" / "penguins.csv", "--target", "species", *options)
    done = call_murho("export", "--to", "onnx", "--checkpoints", tmp_path, code=2)
    assert "only numbers" in done.stderr


def test_without_onnx_the_command_says_what_to_install() -> None:
    """`find_spec` finds nothing of a module that is None: so Python names one that can't be imported."""
    code = "import sys; sys.modules['onnx'] = None; from murho.command_line import main; main()"
    words = [sys.executable, "-c", code, "export", "rents", "--to", "onnx", "--checkpoints", str(RENTS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: murho export needs the extra: pip install 'murho[onnx]'\n"
