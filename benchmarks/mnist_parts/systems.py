"""The systems of the benchmark: each is fitted once, kept in the folder of results, and scored on the test images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.mnist_parts.bayes_answers import mean_outputs, mixture_log_probabilities
from benchmarks.mnist_parts.bayes_fit import fit_network
from benchmarks.mnist_parts.checkpoint import (
    calibrated_spec,
    image_columns,
    make_spec,
    write_image_checkpoint,
)
from benchmarks.mnist_parts.point_fit import PointNetwork, fit_point_network
from benchmarks.mnist_parts.scores import class_scores
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from benchmarks.mnist_parts.bayes_fit import Recipe
    from benchmarks.mnist_parts.images import Images
    from benchmarks.mnist_parts.point_fit import PointRecipe
    from murho.model.bbb.network import BayesianNetwork
    from murho.model.checkpoint.spec import ModelSpec

__all__ = ["Bench", "as_tensors", "checkpoint_of", "fitted", "fitted_point", "point_scores", "scores_of"]

DRAWS = 64
"""Draws of the test scores."""


def as_tensors(images: Images) -> tuple[Tensor, Tensor]:
    """Inputs of a network, ``[N, 784]``, and digits, ``[N]``, float32."""
    return torch.from_numpy(images.inputs()), torch.from_numpy(images.digits).float()


@dataclass(frozen=True, slots=True)
class Bench:
    """What all systems share.

    Attributes:
        training: Images to learn from.
        validation: Images that calibrate.
        test: Images that only score.
        directory: For fits, numbers and figures.
        checkpoints: Directory of checkpoints.
        say: Gets lines of progress.
    """

    training: Images
    validation: Images
    test: Images
    directory: Path
    checkpoints: Path
    say: Callable[[str], None]

    def path(self, name: str) -> Path:
        """The file of a fit."""
        return self.directory / f"{name}.safetensors"


def fitted(
    bench: Bench, name: str, recipe: Recipe, initial: BayesianNetwork | None = None
) -> tuple[BayesianNetwork, list[dict[str, float]]]:
    """A Bayesian network, fitted now, resumed or read, and the looks at it while it was fitted."""
    return fit_network(
        recipe,
        as_tensors(bench.training),
        as_tensors(bench.validation),
        initial=initial,
        snapshot=bench.path(name),
        say=lambda line: bench.say(f"{name}: {line}"),
    )


def fitted_point(bench: Bench, name: str, recipe: PointRecipe) -> PointNetwork:
    """A network without a posterior, fitted now or read."""
    import safetensors.torch

    path = bench.path(name)
    network = PointNetwork(bench.training.pixels.shape[1], recipe.hidden, torch.Generator().manual_seed(0))
    if path.exists():
        tensors = safetensors.torch.load_file(path)
        facts = json.loads(path.with_suffix(".json").read_text())
        if facts["recipe"] != repr(recipe):
            raise SystemExit(f"{path}: a fit of another recipe; move it away to start anew")
        for number in range(len(network.weights)):
            network.weights[number] = tensors[f"weight.{number}"]
            network.biases[number] = tensors[f"bias.{number}"]
        return network
    network = fit_point_network(recipe, *as_tensors(bench.training), say=lambda line: bench.say(f"{name}: {line}"))
    parts = [("weight", network.weights), ("bias", network.biases)]
    path.with_suffix(".json").write_text(json.dumps({"recipe": repr(recipe)}))
    safetensors.torch.save_file(
        {f"{kind}.{i}": part.detach() for kind, them in parts for i, part in enumerate(them)}, path
    )
    return network


def checkpoint_of(
    bench: Bench, name: str, recipe: Recipe, network: BayesianNetwork, history: list[dict[str, float]]
) -> tuple[Path, ModelSpec]:
    """Calibrate a network on the validation images and write it as a checkpoint, which ``murho serve`` serves."""
    tensors = {key: tensor.detach() for key, tensor in network.named_tensors().items()}
    facts: dict[str, Any] = {
        "epochs": recipe.epochs,
        "temperature": recipe.temperature,
        "recipe": repr(recipe),
        "seconds": round(history[-1]["processor_seconds"], 1) if history else None,
    }
    spec = make_spec(network.architecture, recipe.prior, bench.training, facts)
    spec = calibrated_spec(spec, tensors, bench.validation)
    return write_image_checkpoint(bench.checkpoints, name, spec, tensors), spec


def scores_of(bench: Bench, network: BayesianNetwork, checkpoint: Path | None) -> dict[str, Any]:
    """Test scores of a network: its means alone, its draws and, with a checkpoint, the answers that are served."""
    inputs, _ = as_tensors(bench.test)
    means = torch.softmax(mean_outputs(network, inputs), dim=1)
    drawn = mixture_log_probabilities(network, inputs, DRAWS, seed=0).exp()
    found: dict[str, Any] = {
        "mean_network": class_scores(means.double().numpy(), bench.test.digits),
        "draws": class_scores(drawn.double().numpy(), bench.test.digits),
    }
    if checkpoint is not None:
        posterior = Posterior.load(checkpoint, engine="torch")
        answer = posterior.predict(image_columns(bench.test), PredictOptions(samples=DRAWS))
        found["served"] = class_scores(answer.probabilities, bench.test.digits)
        found["served"]["set_coverage"] = float(answer.prediction_set[range(len(bench.test)), bench.test.digits].mean())
        found["served"]["set_size"] = float(answer.prediction_set.sum(axis=1).mean())
    return found


def point_scores(bench: Bench, network: PointNetwork) -> dict[str, float]:
    """Test scores of a network without a posterior."""
    with torch.no_grad():
        probabilities = torch.softmax(network(as_tensors(bench.test)[0]), dim=1)
    return class_scores(probabilities.double().numpy(), bench.test.digits)
