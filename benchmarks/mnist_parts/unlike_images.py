"""Doubt on images that are less and less like digits: upright, turned, and pure noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from benchmarks.mnist_parts.bayes_answers import drawn_log_probabilities
from benchmarks.mnist_parts.images import noise_images, rotated
from benchmarks.mnist_parts.scores import doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from benchmarks.mnist_parts.images import Images
    from murho.model.bbb.network import BayesianNetwork

__all__ = ["ANGLES", "Answers", "doubt_table", "drawn_answers", "point_answers"]

ANGLES = (0, 15, 30, 45, 60, 75, 90, 120, 150, 180)
"""Degrees; some digits, turned by 180 degrees, are another digit or the same one again."""
DRAWS = 64

Answers: TypeAlias = "Callable[[Tensor], Tensor]"
"""Inputs ``[N, D]`` to log probabilities of draws, ``[S, N, C]``."""


def drawn_answers(network: BayesianNetwork, draws: int = DRAWS) -> Answers:
    """Answers of a Bayesian network under draws."""
    return lambda inputs: drawn_log_probabilities(network, inputs, draws, seed=0)


def point_answers(network: Callable[[Tensor], Tensor]) -> Answers:
    """Answers of a network without a posterior: a single draw, of no mutual information."""

    def answers(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.log_softmax(network(inputs), dim=-1).unsqueeze(0)

    return answers


def doubt_table(answers: Answers, images: Images, angles: Sequence[int] = ANGLES, seed: int = 0) -> dict[str, Any]:
    """Mean entropy, mean mutual information, nats, and mean largest probability, of each kind of image.

    Args:
        answers: The network.
        images: Upright digits that it has not seen.
        angles: Degrees by which they are turned.
        seed: Seed of the noise.

    Returns:
        ``{"rotated": {"degrees", "error", "entropy", "mutual_information", "confidence"}, "noise": {…}}``, and
        ``"entropies"``: the entropy of every image, for upright ``digits`` and ``noise``, ``[N]`` each.
    """
    table: dict[str, list[float]] = {"degrees": [], "error": []}
    upright = np.empty(0)
    for angle in angles:
        turned = rotated(images, angle) if angle else images
        scores, entropy, wrong = _doubt(answers, turned)
        table["degrees"].append(float(angle))
        table["error"].append(wrong)
        for name, value in scores.items():
            table.setdefault(name, []).append(value)
        if angle == 0:
            upright = entropy
    scores, noisy, _ = _doubt(answers, noise_images(len(images), seed))
    return {"rotated": table, "noise": scores, "entropies": {"digits": upright, "noise": noisy}}


def _doubt(answers: Answers, images: Images) -> tuple[dict[str, float], Any, float]:
    drawn = answers(torch.from_numpy(images.inputs()))
    entropy, information = doubt(drawn)
    probabilities = drawn.exp().mean(dim=0)
    confidence, chosen = probabilities.max(dim=1)
    scores = {
        "entropy": float(entropy.mean()),
        "mutual_information": float(information.mean()),
        "confidence": float(confidence.mean()),
    }
    return scores, entropy, float((chosen.numpy() != images.digits).mean())
