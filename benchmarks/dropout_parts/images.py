"""MNIST: the dropout network of `benchmarks.mnist` with dropout on at prediction, beside Bayes by Backprop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.mnist_parts.images import VALIDATION, noise_images, read_images, rotated
from benchmarks.mnist_parts.point_fit import dropout_of
from benchmarks.mnist_parts.recipes import bayes_recipe, dropout_recipe
from benchmarks.mnist_parts.scores import class_scores, doubt
from benchmarks.mnist_parts.systems import Bench, as_tensors, fitted, fitted_point
from benchmarks.mnist_parts.unlike_images import drawn_answers, point_answers

if TYPE_CHECKING:
    import argparse

    from torch import Tensor

    from benchmarks.mnist_parts.point_fit import PointNetwork, PointRecipe
    from benchmarks.mnist_parts.unlike_images import Answers

__all__ = ["image_systems", "masked_answers"]

DRAWS = 64
DEGREES = 60.0
NOISE_IMAGES = 2000


def masked_answers(network: PointNetwork, recipe: PointRecipe, draws: int = DRAWS) -> Answers:
    """Answers under masks, each row under its own: dropout as a posterior."""

    @torch.no_grad()
    def answers(inputs: Tensor) -> Tensor:
        leave_out = dropout_of(recipe, torch.Generator().manual_seed(0))
        return torch.stack([torch.log_softmax(network(inputs, leave_out), dim=-1) for _ in range(draws)])

    return answers


def image_systems(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Scores and doubt of three posteriors on the test images; fits of `benchmarks.mnist` are used again.

    Args:
        options: ``data``, ``output``, ``width``, ``mnist_epochs``, ``point_epochs`` and ``seed``.
    """
    directory = options.output / "mnist"
    directory.mkdir(parents=True, exist_ok=True)
    training, validation, test = read_images(options.data, VALIDATION)
    bench = Bench(
        training, validation, test, directory, directory / "checkpoints", lambda line: print(line, file=sys.stderr)
    )
    hidden, width = (options.width, options.width), options.width
    network, _ = fitted(bench, f"bayes-{width}", bayes_recipe(hidden, options.mnist_epochs, options.seed))
    recipe = dropout_recipe(hidden, options.point_epochs, options.seed)
    point = fitted_point(bench, f"dropout-{width}", recipe)
    systems = {
        "dropout, off at prediction": point_answers(point),
        "dropout as a posterior": masked_answers(point, recipe),
        "Bayes by Backprop": drawn_answers(network, DRAWS),
    }
    return {name: _judged(answers, bench) for name, answers in systems.items()}


def _judged(answers: Answers, bench: Bench) -> dict[str, Any]:
    inputs, _ = as_tensors(bench.test)
    drawn = answers(inputs)
    scores: dict[str, Any] = dict(class_scores(drawn.exp().mean(dim=0).double().numpy(), bench.test.digits))
    some = bench.test[:NOISE_IMAGES]
    of_images = {
        "digits": drawn[:, : len(some)],
        "turned": answers(as_tensors(rotated(some, DEGREES))[0]),
        "noise": answers(as_tensors(noise_images(len(some), seed=0))[0]),
    }
    scores["entropy"], scores["mutual_information"] = {}, {}
    for kind, log_probabilities in of_images.items():
        entropy, information = doubt(log_probabilities)
        scores["entropy"][kind] = float(entropy.mean())
        scores["mutual_information"][kind] = float(information.mean())
    return scores
