"""The command of the MNIST benchmark, on made images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.mnist import main
from murho.model.checkpoint.checkpoint import read_stored
from tests.benchmarks.mnist_parts.made_images import write_images

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_command_writes_tables_figures_and_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path)
    options = [
        "--widths",
        "12",
        "--epochs",
        "2",
        "--sparse-epochs",
        "1",
        "--point-epochs",
        "2",
        "--validation",
        "100",
        "--doubt-images",
        "20",
    ]
    call = ["--data", str(tmp_path), "--output", str(tmp_path), "--threads", "1", *options]
    assert main([*call, "--parts", "networks,weights,pruning,doubt"]) == 0
    printed = capsys.readouterr().out
    for shown in (
        "bayes-12, means",
        "bayes-12, draws",
        "bayes-12, served",
        "sgd-12",
        "dropout-12",
        "95 %",
        "pure noise",
    ):
        assert shown in printed
    folder = tmp_path / "mnist"
    for figure in ("weights.png", "pruning-bayes-12.png", "pruning-sparse-12.png", "doubt.png"):
        assert (folder / figure).read_bytes().startswith(b"\x89PNG")
    report = json.loads((folder / "mnist.json").read_text())
    assert report["systems"]["bayes-12"]["epochs"] == 2
    tensors = read_stored(folder / "checkpoints" / "mnist-12-pruned" / "1").tensors
    weights = [tensor for name, tensor in tensors.items() if name.endswith("weight.mu")]
    assert sum(int((weight == 0.0).sum()) for weight in weights) >= 0.95 * sum(weight.numel() for weight in weights) - 1

    # A second call fits nothing anew.
    assert main([*call, "--parts", "pruning"]) == 0
    assert "epoch" not in capsys.readouterr().err
