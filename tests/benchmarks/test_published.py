"""MNIST and dropout, cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from benchmarks import mnist
from benchmarks.mnist_networks import (
    Images,
    Recipe,
    drawn_answers,
    fit_bayes,
    mean_answers,
    served_scores,
    write_images,
)
from murho.model.bbb.priors import ScaleMixturePrior
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.bbb.network import BayesianNetwork

RECIPE = Recipe((16, 16), ScaleMixturePrior(0.25, 0.37, 0.018), temperature=0.02, epochs=40, batch_size=30)
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
    np.savez_compressed(directory / "mnist.npz", **arrays)


@pytest.fixture(scope="module")
def network() -> BayesianNetwork:
    return fit_bayes(RECIPE, made_images(300))


def test_a_checkpoint_answers_as_the_network(network: BayesianNetwork, tmp_path: Path) -> None:
    path = write_images(tmp_path, "made", RECIPE, network, made_images(300), made_images(150, seed=3))
    posterior = Posterior.load(path, engine="torch")
    assert posterior.spec.metrics["accuracy"] > 0.9
    images = made_images(300)[:20]  # within the training range; others are drawn towards the class shares
    names = [feature.name for feature in posterior.schema.features]
    columns = dict(zip(names, np.ascontiguousarray(images.pixels.astype(np.float64).T), strict=True))

    answer = posterior.predict(columns, PredictOptions(samples=0))
    weight = 1.0 / 301  # of the class shares, which are even here
    expected = (1.0 - weight) * mean_answers(network, images.inputs)[0].exp().numpy() + weight * 0.1
    np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)

    raw = posterior.predict(columns, PredictOptions(samples=512, calibrated=False))
    drawn = drawn_answers(network, images.inputs, draws=2048).exp().mean(dim=0)
    np.testing.assert_allclose(raw.probabilities, drawn.numpy(), atol=0.03)
    assert served_scores(path, images)["set_coverage"] > 0.9


def test_mnist_in_small_keeps_its_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_made_images(tmp_path, training=120, test=40)
    epochs = [f"--{name}=2" for name in ("epochs", "point-epochs", "sparse-epochs", "refit-epochs", "notebook-epochs")]
    words = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--widths", "8", "--validation", "30"]
    assert mnist.main([*words, *epochs, "--doubt-images", "10", "--threads", "1"]) == 0
    said = capsys.readouterr()
    for part in ("bayes-8, weights removed", "doubt, nats", "notebook 784-512-256-10, served", "dropout-8"):
        assert part in said.out
    found = orjson.loads((tmp_path / "out" / "results.jsonl").read_bytes())
    left = [row[1] for row in found["pruning"]["bayes-8"]]
    weights = 784 * 8 + 8 * 8 + 8 * 10
    assert left == [weights - round(share * weights) for share in mnist.REMOVED]
    names = {path.name for path in (tmp_path / "out" / "mnist" / "checkpoints").iterdir()}
    assert names == {"mnist-8", "mnist-8-pruned", "mnist-notebook"}
    assert mnist.main([*words, *epochs, "--parts", "doubt", "--doubt-images", "10", "--threads", "1"]) == 0
    assert "fitting" not in capsys.readouterr().err  # nothing is fitted again
