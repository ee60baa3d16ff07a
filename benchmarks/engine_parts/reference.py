"""Reference answers: in float64 from Murho's own draws, and from an independent Monte Carlo run for all systems."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.engine_parts.murho_posterior import DEFAULT_SEED, ROWS, facts_of, tensors_of
from benchmarks.peers.engine_task import COMPONENTS
from benchmarks.peers.network_task import NOISE
from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import Architecture
from murho.model.predictive.draws import make_draws
from murho.model.predictive.prediction import DEFAULT_PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.peers.engine_task import EngineTask

__all__ = ["Moments", "deviations", "disagreement", "exact_answers", "independent_moments"]

DRAWS = 2048
"""Draws of the independent Monte Carlo run, unless the network is large."""
NUMBERS = 2**28
"""Most random numbers of the independent Monte Carlo run."""
BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the function values, estimated from draws.

    Attributes:
        draws: Number of draws.
        mean: ``[B]``.
        std: ``[B]``.
        kurtosis: Fourth central moment over the squared variance, ``[B]``.
    """

    draws: int
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    kurtosis: NDArray[np.float64]


def exact_answers(task: EngineTask, rows: NDArray[np.float32], samples: int) -> dict[str, NDArray[np.float64]]:
    """Mean, std and percentiles from Murho's draws in double precision; percentiles by bisection.

    Args:
        task: The network.
        rows: ``[B, D]``.
        samples: S.

    Returns:
        ``mean`` and ``std``, ``[B]``, and ``percentiles``, ``[B, K]``, of
        `model.predictive.prediction.DEFAULT_PERCENTILES`.
    """
    described = facts_of(task)["architecture"]
    architecture = Architecture(**(described | {"hidden": tuple(described["hidden"])}))
    draws = make_draws(tensors_of(task), architecture, seed=DEFAULT_SEED, samples=samples)
    outputs = np.empty((samples, len(rows), task.sizes[-1][1]))
    for draw in range(samples):
        layers = [
            (weight[draw].numpy().astype(np.float64), bias[draw].numpy().astype(np.float64))
            for weight, bias in zip(draws.weights, draws.biases, strict=True)
        ]
        outputs[draw] = _network(rows.astype(np.float64), layers)
    means, noise, weights = (torch.from_numpy(part) for part in _components(task, outputs))
    shares = weights / samples
    if task.noise != "fixed":
        means, noise, shares = _beside_wide(means, noise, shares)
    mean, variance = _moments(means, noise, shares)
    percentiles = [_quantile(means, noise, shares, level / 100.0) for level in DEFAULT_PERCENTILES]
    return {
        "mean": mean.numpy(),
        "std": variance.sqrt().numpy(),
        "percentiles": torch.stack(percentiles, dim=1).numpy(),
    }


def _moments(means: Tensor, noise: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, ``[B]`` each, of mixtures ``[S, B, K]``."""
    mean = (shares * means).sum(dim=(0, 2))
    return mean, (shares * ((means - mean[:, None]).square() + noise.square())).sum(dim=(0, 2))


def _beside_wide(means: Tensor, noise: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Adds the wide component of docs/statistics.md to mixtures ``[S, B, K]``, as one further draw."""
    mean, variance = _moments(means, noise, shares)
    of_draws = shares.sum(dim=2)
    function_values = (shares * means).sum(dim=2) / of_draws
    aleatoric = variance - (of_draws * (function_values - mean).square()).sum(dim=0)
    spread = (variance + (0.05 * (ROWS + 1) * aleatoric).clamp_max(1.0)).sqrt()
    count, weight = means.shape[2], 1.0 / (ROWS + 1)
    further = (mean, spread, torch.full_like(mean, weight / count))
    others = (means, noise, (1.0 - weight) * shares)
    together = [
        torch.cat((other, part[None, :, None].expand(1, -1, count)))
        for other, part in zip(others, further, strict=True)
    ]
    return together[0], together[1], together[2]


def _components(task: EngineTask, outputs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Means, standard deviations and weights of an observation, ``[..., K]``, from outputs ``[..., P]``."""
    if task.noise == "mixture":
        means, raw, logits = np.split(outputs, [COMPONENTS, 2 * COMPONENTS], axis=-1)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return means, NOISE_FLOOR + np.logaddexp(0.0, raw), weights / weights.sum(axis=-1, keepdims=True)
    means = outputs[..., :1]
    if task.noise == "heteroscedastic":
        return means, NOISE_FLOOR + np.logaddexp(0.0, outputs[..., 1:]), np.ones_like(means)
    return means, np.full_like(means, NOISE), np.ones_like(means)


def _network(rows: NDArray[Any], layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> NDArray[Any]:
    hidden = rows
    for number, (weight, bias) in enumerate(layers):
        if number:
            hidden = hidden / (1.0 + np.exp(-hidden))
        hidden = hidden @ weight + bias
    return hidden


def _quantile(means: Tensor, noise: Tensor, shares: Tensor, level: float) -> Tensor:
    """Quantile ``[B]`` of mixtures of Gaussians ``[S, B, K]``, by bisection."""
    reach = 10.0 * noise
    lower, upper = (means - reach).amin(dim=(0, 2)), (means + reach).amax(dim=(0, 2))
    for _ in range(BISECTIONS):
        middle = 0.5 * (lower + upper)
        tails = 0.5 * torch.erfc((means - middle[:, None]) / (noise * math.sqrt(2.0)))
        below = (shares * tails).sum(dim=(0, 2)) < level
        lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
    return 0.5 * (lower + upper)


def deviations(answer: Mapping[str, Any], exact: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Kind of answer → largest ``|answer - exact| / max(|exact|, std)``."""
    spread = exact["std"]
    largest = {}
    for name, values in exact.items():
        scale = np.maximum(np.abs(values), spread[:, None] if values.ndim == 2 else spread)
        largest[name] = float((np.abs(np.asarray(answer[name]) - values) / scale).max())
    return largest


def independent_moments(
    task: EngineTask, rows: NDArray[np.float32], draws: int | None = None, seed: int = 1
) -> Moments:
    """Moments of function values under draws that no system uses, with numpy alone.

    Args:
        task: The network.
        rows: ``[B, D]``.
        draws: Number of draws; by default `DRAWS`, or fewer so as to need at most `NUMBERS` random numbers.
        seed: Seed of these draws.
    """
    layers, generator = task.posterior(), np.random.default_rng(seed)
    count = draws or max(2, min(DRAWS, NUMBERS // task.parameters))
    values = np.empty((count, len(rows)))
    for draw in range(count):
        drawn = [
            (
                mu + sigma * generator.standard_normal(mu.shape, dtype=np.float32),
                bias_mu + bias_sigma * generator.standard_normal(bias_mu.shape, dtype=np.float32),
            )
            for mu, sigma, bias_mu, bias_sigma in layers
        ]
        means, _, weights = _components(task, _network(rows, drawn))
        values[draw] = (weights * means).sum(axis=-1)
    mean, std = values.mean(axis=0), values.std(axis=0)
    return Moments(count, mean, std, ((values - mean) ** 4).mean(axis=0) / std**4)


def disagreement(answers: Sequence[Mapping[str, Any]], draws: int, other: Moments) -> tuple[float, float]:
    """Deviations of mean and std of the function values from an independent Monte Carlo run.

    Args:
        answers: ``mean`` and ``epistemic_std``, ``[B]`` each, of one or more calls.
        draws: Number of draws of all calls together; calls with the same draws count once.
        other: Independent moments of the same rows.

    Returns:
        Root mean squares over the rows of the differences of the means, and of the logarithms of the stds, in standard
        errors: about 1, and rarely above 3, if the two agree.
    """
    means = np.array([answer["mean"] for answer in answers], dtype=np.float64)
    stds = np.array([answer["epistemic_std"] for answer in answers], dtype=np.float64)
    mean = means.mean(axis=0)
    std = np.sqrt((stds**2 + means**2).mean(axis=0) - mean**2)
    share = 1.0 / draws + 1.0 / other.draws
    of_mean = (mean - other.mean) / (other.std * np.sqrt(share))
    of_std = np.log(std / other.std) / np.sqrt((other.kurtosis - 1.0) / 4.0 * share)
    return float(np.sqrt(np.mean(of_mean**2))), float(np.sqrt(np.mean(of_std**2)))
