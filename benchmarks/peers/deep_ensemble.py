"""A deep ensemble (Lakshminarayanan et al. 2017): five 2 x 128 ReLU networks with heteroscedastic Normal output.

Learning rate 3e-3 with a cosine decay over at most 300 epochs (150 above 2,000 rows, 100 above 10,000), weight decay
1e-4 (AdamW), clipped gradients. Each network keeps the epoch with the lowest NLL of the inner rows. There is no
adversarial training, whose gain is small in the paper. The answer is the mixture of the five; its conformal correction
scales by the mixture's standard deviation. Up to 2,000 rows the networks are refitted to all rows, each up to its best
epoch. Inputs and targets are standardised, categories one-hot, missing numbers the mean with an indicator.
"""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import copy
import itertools

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.exchange import drive
from benchmarks.peers.tables import Answer, Features, Predictive, TableTask, table_session

NETWORKS, HIDDEN = 5, 128
SMALL, MEDIUM = 2_000, 10_000
EPOCHS, BATCHES, PATIENCE = (300, 150, 100), (32, 128, 256), 60
"""Most epochs, and rows a step, for small, medium and larger tables."""


def answer(task: TableTask) -> Answer:
    """Fit the networks and predict."""
    torch.set_num_threads(1)
    gaps = np.isnan(task.training.numbers).any(axis=0)
    location, scale = np.nanmean(task.training.numbers, axis=0), np.nanstd(task.training.numbers, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)

    def encoded(features: Features) -> Tensor:
        numbers = np.nan_to_num((features.numbers - location) / scale)
        missing = np.isnan(features.numbers[:, gaps]).astype(np.float64)
        return torch.from_numpy(np.hstack([numbers, missing, features.one_hot(task.training)])).float()

    rows, test, inner = encoded(task.training), encoded(task.test), torch.from_numpy(task.inner)
    centre, unit = float(task.target.mean()), float(task.target.std())
    targets = torch.from_numpy((task.target - centre) / unit).float()
    kind = 0 if len(rows) <= SMALL else 1 if len(rows) <= MEDIUM else 2
    base, refit = [], []
    for number in range(NETWORKS):
        seed = NETWORKS * task.seed + number
        network, epochs = _fit(rows[~inner], targets[~inner], seed, kind, (rows[inner], targets[inner]))
        base.append(network)
        refit.append(_fit(rows, targets, seed, kind, stop=epochs)[0] if kind == 0 else network)

    @torch.inference_mode()
    def mixture(networks: list[nn.Module], inputs: Tensor) -> Predictive:
        outputs = torch.stack([network(inputs).double() for network in networks])
        means, variances = outputs[..., 0], nn.functional.softplus(outputs[..., 1]) + 1e-6
        std = (variances.mean(dim=0) + means.var(dim=0, correction=0)).sqrt()
        grid = torch.special.ndtri((torch.arange(500).double() + 0.5) / 500)[:, None, None]
        points = (means + variances.sqrt() * grid).flatten(0, 1)  # as likely as each other
        quantiles = torch.quantile(points, torch.from_numpy(task.levels), dim=0).T
        mean = means.mean(dim=0).numpy() * unit + centre
        return Predictive(mean, quantiles.numpy() * unit + centre, std.numpy() * unit)

    return Answer(mixture(refit, test), mixture(base, test), mixture(base, rows[inner]))


def _fit(
    rows: Tensor,
    targets: Tensor,
    seed: int,
    kind: int,
    judges: tuple[Tensor, Tensor] | None = None,
    stop: int = 0,
) -> tuple[nn.Module, int]:
    """Train a network to its best epoch by the rows ``judges``, or to ``stop``; return it and the epoch."""
    torch.manual_seed(seed)
    sizes = (rows.shape[1], HIDDEN, HIDDEN)
    hidden = [layer for below, above in itertools.pairwise(sizes) for layer in (nn.Linear(below, above), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(HIDDEN, 2))
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-4)
    minibatches, size = max(1, len(rows) // BATCHES[kind]), BATCHES[kind]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS[kind] * minibatches)
    lowest, best, kept = float("inf"), 0, network
    for epoch in range(1, (stop or EPOCHS[kind]) + 1):
        for chosen in torch.randperm(len(rows))[: minibatches * size].chunk(minibatches):
            optimiser.zero_grad()
            _nll(network, rows[chosen], targets[chosen]).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimiser.step()
            schedule.step()
        if judges is not None:
            with torch.inference_mode():
                judged = float(_nll(network, *judges))
            if judged < lowest:
                lowest, best, kept = judged, epoch, copy.deepcopy(network)
            if epoch >= best + PATIENCE:
                break
    return (network, stop) if judges is None else (kept, best)


def _nll(network: nn.Module, rows: Tensor, targets: Tensor) -> Tensor:
    outputs = network(rows)
    variances = nn.functional.softplus(outputs[:, 1]) + 1e-6
    return nn.functional.gaussian_nll_loss(outputs[:, 0], targets, variances)


if __name__ == "__main__":
    drive(table=table_session(answer))
