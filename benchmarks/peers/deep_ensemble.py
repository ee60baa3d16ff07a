"""A deep ensemble (Lakshminarayanan et al. 2017): five 2 x 128 ReLU networks with heteroscedastic Normal output.

Each network has its own initial weights and minibatches; all are trained as one stack of tensors, which changes only
the speed. Learning rate 3e-3 with a cosine decay over at most 300 epochs (150 above 2,000 rows, 100 above 10,000),
weight decay 1e-4 (AdamW), clipped gradients. Each network keeps the epoch with the lowest NLL of the inner rows. There
is no adversarial training, whose gain is small in the paper. The answer is the mixture of the five; its conformal
correction scales by the mixture's standard deviation. Up to 2,000 rows the networks are refitted to all rows, each up
to its best epoch. Inputs and targets are standardised, categories one-hot, missing numbers the mean with an indicator.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Features, Predictive, TableTask, table_session

NETWORKS, HIDDEN = 5, 128
LEARNING_RATE, WEIGHT_DECAY, FLOOR = 3e-3, 1e-4, 1e-6
SMALL, MEDIUM = 2_000, 10_000
EPOCHS, PATIENCE = (300, 150, 100), 60
"""Most epochs for small, medium and larger tables."""


class Ensemble(torch.nn.Module):
    """Five networks side by side: ``[networks, B, D]`` to mean and variance ``[networks, B]``."""

    def __init__(self, inputs: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [inputs, HIDDEN, HIDDEN, 2]
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for before, after in pairwise(sizes):
            bound = 1.0 / math.sqrt(before)  # PyTorch's own initialisation of a linear layer
            for shape, parameters in (
                ((NETWORKS, before, after), self.weights),
                ((NETWORKS, 1, after), self.biases),
            ):
                parameters.append(torch.nn.Parameter((2.0 * torch.rand(shape, generator=generator) - 1.0) * bound))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the standardised target, ``[networks, B]`` each."""
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            rows = torch.baddbmm(bias, rows, weight)
            if place < len(self.weights) - 1:
                rows = rows.relu()
        return rows[..., 0], torch.nn.functional.softplus(rows[..., 1]) + FLOOR


def answer(task: TableTask) -> Answer:
    """Fits the networks and predicts."""
    torch.set_num_threads(1)
    gaps = np.isnan(task.training.numbers).any(axis=0)
    location, scale = np.nanmean(task.training.numbers, axis=0), np.nanstd(task.training.numbers, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)

    def encoded(features: Features) -> Tensor:
        numbers = np.nan_to_num((features.numbers - location) / scale)
        missing = np.isnan(features.numbers[:, gaps]).astype(np.float64)
        codes = features.one_hot(task.training)
        return torch.from_numpy(np.hstack([numbers, missing, codes])).float()

    rows, test = encoded(task.training), encoded(task.test)
    centre, unit = float(task.target.mean()), float(task.target.std())
    targets = torch.from_numpy((task.target - centre) / unit).float()
    inner = torch.from_numpy(task.inner)

    base, best = _fit(rows[~inner], targets[~inner], task.seed, judges=(rows[inner], targets[inner]))
    refit = _fit(rows, targets, task.seed, stops=best)[0] if len(rows) <= SMALL else base
    levels = torch.from_numpy(task.levels)

    def mixture(model: Ensemble, inputs: Tensor) -> Predictive:
        with torch.inference_mode():
            means, variances = (part.double() for part in model(inputs.expand(NETWORKS, -1, -1)))
            std = (variances.mean(dim=0) + means.var(dim=0, correction=0)).sqrt()
            quantiles = _quantiles(means, variances.sqrt(), levels)
        mean = means.mean(dim=0).numpy() * unit + centre
        return Predictive(mean, quantiles.numpy() * unit + centre, std.numpy() * unit)

    return Answer(
        raw=mixture(refit, test),
        base=mixture(base, test),
        inner=mixture(base, rows[inner]),
        rounds=float(np.mean(best)),
    )


def _fit(
    rows: Tensor,
    targets: Tensor,
    seed: int,
    *,
    judges: tuple[Tensor, Tensor] | None = None,
    stops: list[int] | None = None,
) -> tuple[Ensemble, list[int]]:
    """Trains the networks to their best epochs by the rows ``judges``, or to ``stops``; returns them and the epochs."""
    generator = torch.Generator().manual_seed(seed)
    model = Ensemble(rows.shape[1], generator)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    count = len(rows)
    kind = 0 if count <= SMALL else 1 if count <= MEDIUM else 2
    size, epochs = (32, 128, 256)[kind], EPOCHS[kind]
    minibatches = max(1, count // size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * minibatches)
    lowest = torch.full((NETWORKS,), math.inf)
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    best = [0] * NETWORKS
    for epoch in range(1, epochs + 1):
        orders = torch.stack([torch.randperm(count, generator=generator) for _ in range(NETWORKS)])
        for chosen in orders[:, : minibatches * size].chunk(minibatches, dim=1):
            mean, variance = model(rows[chosen])
            loss = 0.5 * (variance.log() + (targets[chosen] - mean).square() / variance).mean(dim=1).sum()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
            schedule.step()
        if judges is not None:
            with torch.inference_mode():
                mean, variance = model(judges[0].expand(NETWORKS, -1, -1))
                judged = 0.5 * (variance.log() + (judges[1] - mean).square() / variance).mean(dim=1)
            better = judged < lowest
            lowest = torch.where(better, judged, lowest)
        else:
            better = torch.tensor([epoch == stop for stop in stops or ()])
        for number in torch.nonzero(better).flatten().tolist():
            best[number] = epoch
            for name, parameter in model.named_parameters():
                kept[name][number] = parameter.detach()[number]
        if epoch >= (max(best) + PATIENCE if stops is None else max(stops)):
            break
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(kept[name])
    return model, best


def _quantiles(means: Tensor, scales: Tensor, levels: Tensor) -> Tensor:
    """Quantiles ``[B, K]`` of mixtures of Normals with equal weights, by bisection."""
    reach = 8.0 * scales.amax(dim=0)
    shape = (means.shape[1], len(levels))
    lower = (means.amin(dim=0) - reach).unsqueeze(1).expand(shape)
    upper = (means.amax(dim=0) + reach).unsqueeze(1).expand(shape)
    for _ in range(50):
        middle = (lower + upper) / 2.0
        below = torch.zeros(shape, dtype=torch.float64)
        for mean, scale in zip(means, scales, strict=True):
            below += torch.special.ndtr((middle - mean.unsqueeze(1)) / scale.unsqueeze(1))
        low = below / len(means) < levels
        lower, upper = torch.where(low, middle, lower), torch.where(low, upper, middle)
    return (lower + upper) / 2.0


if __name__ == "__main__":
    drive(table=table_session(answer))
