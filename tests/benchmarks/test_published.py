"""MNIST and dropout, cut short."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks import dropout, mnist
from benchmarks.datasets import Split
from benchmarks.mnist_networks import Images

SIDE = 28


def made_images(count: int, seed: int = 0) -> Images:
    """Images that a network learns in a few steps; each digit is as frequent as the others."""
    digits = np.arange(count) % 10
    light = np.random.default_rng(seed).integers(0, 60, (count, SIDE, SIDE))
    for number, digit in enumerate(digits):
        down, right = divmod(int(digit), 5)
        light[number, 2 + 13 * down : 12 + 13 * down, 2 + 5 * right : 7 + 5 * right] += 180
    return Images(light.astype(np.uint8).reshape(count, -1), digits.astype(np.int64))


def write_made_images(directory: Path, training: int, test: int) -> None:
    arrays: dict[str, Any] = {}
    for part, images in (("train", made_images(training)), ("test", made_images(test, seed=1))):
        arrays |= {f"x_{part}": images.pixels.reshape(-1, SIDE, SIDE), f"y_{part}": images.digits.astype(np.uint8)}
    (directory / "mnist").mkdir()
    np.savez_compressed(directory / "mnist" / "mnist.npz", **arrays)


def test_mnist_in_small_keeps_its_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_made_images(tmp_path, training=120, test=40)
    epochs = [f"--{name}=2" for name in ("epochs", "point-epochs", "sparse-epochs", "refit-epochs", "notebook-epochs")]
    words = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--widths", "8", "--validation", "30"]
    parts = ["--parts", "networks,pruning,doubt", "--doubt-images", "10", "--threads", "1"]
    assert mnist.main([*words, *epochs, *parts]) == 0
    said = capsys.readouterr()
    for part in ("bayes-8, weights removed", "mutual information", "bayes-8, served", "dropout-8"):
        assert part in said.out
    found = orjson.loads((tmp_path / "out" / "results.jsonl").read_bytes())
    left = [row[1] for row in found["pruning"]["bayes-8"]]
    weights = 784 * 8 + 8 * 8 + 8 * 10
    assert left == [weights - round(share * weights) for share in mnist.REMOVED]
    names = {path.name for path in (tmp_path / "out" / "mnist" / "checkpoints").iterdir()}
    assert names == {"mnist-8", "mnist-8-pruned"}
    assert mnist.main([*words, *epochs, *parts[2:], "--parts", "doubt"]) == 0
    assert "fitting" not in capsys.readouterr().err  # nothing is fitted again


def numbers_table() -> pa.Table:
    first, second = np.random.default_rng(0).normal(size=(2, 300))
    noise = np.random.default_rng(1).normal(size=300)
    return pa.table({"a": first, "b": second, "y": 100.0 + 10.0 * (first + second + 0.3 * noise)})


@pytest.mark.parametrize("system", dropout.SYSTEMS)
def test_posteriors_learn_and_doubt_more_away_from_the_rows(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, values = dropout.SYSTEMS[system]
    chosen = {"dropout": (0.02, 0.6), "Bayes by Backprop": (0.3, 100.0)}[system]
    assert set(chosen[:1]) <= {*values, 0.02}
    monkeypatch.setitem(dropout.SYSTEMS, system, (fit, chosen))
    report = dropout.measure(numbers_table(), "y", Split(np.arange(240), np.arange(240, 300)), system, 40, 0)
    assert report["chosen"] == chosen[0]  # the other one does not fit
    assert report["log_likelihood"] > -3.5  # of a target of standard deviation 14, with noise of 3
    assert 0.7 < report["90"] <= 1.0
    assert report["entropy 1"] < report["entropy 8"]
