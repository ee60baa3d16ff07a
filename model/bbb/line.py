"""The start of a fit of numbers: a line through the training rows, in closed form.

A network with a skip contains the linear model. Where a line explains much, steps with minibatches need thousands of
passes to find it as exactly as linear algebra does at once. So the weights of the skip start at the posterior of
Bayesian linear regression, and the hidden layers have what the line leaves to learn. The precisions of the weights and
of the noise maximise the evidence (MacKay 1992, "Bayesian interpolation"; Bishop 2006, "Pattern Recognition and Machine
Learning", equations 3.91 to 3.95).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.network import BayesianNetwork, inverse_softplus

MOST_ITERATIONS, TOLERANCE = 100, 1e-6
LEAST_VARIANCE = 1e-12
"""Least variance of the noise, as a share of that of the targets: what rounding leaves of an exact line."""
HIDDEN_SHARE = 0.1
"""Factor of the initial weights from the last hidden layer to the means: a line is the start, no random function."""
LEAST_SIGMA, LARGEST_SIGMA = 1e-6, 0.1
"""Limits of the initial standard deviation of a weight of the skip."""


@dataclass(frozen=True, slots=True)
class Line:
    """The posterior of a linear model with Gaussian noise.

    Attributes:
        weights: Posterior means of the weights, ``[D]``.
        deviations: Standard deviation of each weight given all others, ``[D]``: those of the best mean-field posterior.
        intercept: Value where all inputs are 0.
        noise: Standard deviation of the noise.
    """

    weights: Tensor
    deviations: Tensor
    intercept: float
    noise: float


def fit_line(inputs: Tensor, targets: Tensor, row_weights: Tensor | None = None) -> Line:
    """Fit a linear model, with the precisions of weights and noise that maximise the evidence.

    Args:
        inputs: ``[N, D]``, float64.
        targets: ``[N]``, float64.
        row_weights: Weight of each row, ``[N]``, of mean 1; None: all are 1.
    """
    rows, shares = len(targets), torch.ones_like(targets) if row_weights is None else row_weights.to(targets)
    shares = shares / shares.sum()
    centre, mean, root = shares @ inputs, shares @ targets, (rows * shares).sqrt()
    centred, apart = (inputs - centre) * root.unsqueeze(1), (targets - mean) * root
    left, singular, right = torch.linalg.svd(centred, full_matrices=False)
    squares, projected = singular.square(), left.T @ apart
    outside = float((apart - left @ projected).square().sum())
    variance = max(float(apart.square().mean()), torch.finfo(torch.float64).tiny)
    # From little noise: from much, the weights can get stuck at 0.
    noise, scale = 0.1 * variance, variance
    for _ in range(MOST_ITERATIONS):
        kept = squares / (squares + noise / scale)
        found = kept * projected / singular.clamp_min(torch.finfo(torch.float64).tiny)
        error = outside + float(((1.0 - kept) * projected).square().sum())
        before, effective = noise, float(kept.sum())
        noise = max(error / max(rows - effective, 1.0), LEAST_VARIANCE * variance)
        scale = max(float(found.square().sum()) / max(effective, 1.0), LEAST_VARIANCE * variance)
        if abs(noise - before) <= TOLERANCE * before:
            break
    weights = right.T @ found
    deviations = (noise / (centred.square().sum(dim=0) + noise / scale)).sqrt()
    return Line(weights, deviations, float(mean - centre @ weights), math.sqrt(noise))


@torch.no_grad()
def start_at_line(network: BayesianNetwork, means: int, rows: Rows) -> None:
    """Let all means of each member start at the line of the rows that it learns from.

    Args:
        network: A network before its fit. Its last layer reads the inputs.
        means: Number of the first outputs, which are means, K.
        rows: Training rows.
    """
    inputs, seen = network.architecture.inputs, rows.seen_by(network.architecture.members)
    weight, bias = network.parts(network.mu)[-2:]
    rho = network.parts(network.rho)[-2]
    weight[:, :-inputs, :means] *= HIDDEN_SHARE
    for member in range(network.architecture.members):
        own = seen.rows[member % len(seen.rows)][: seen.counts[member % len(seen.counts)]]
        features = rows.features[own].double()
        if network.reads is not None:
            features = features * network.reads[member]
        line = fit_line(features, rows.targets[own].double(), None if rows.weights is None else rows.weights[own])
        weight[member, -inputs:, :means] = line.weights.float().unsqueeze(1)
        bias[member, :, :means] += line.intercept
        of_line = inverse_softplus(line.deviations.clamp(LEAST_SIGMA, LARGEST_SIGMA)).float().unsqueeze(1)
        start = rho[member, -inputs:, :means]
        rho[member, -inputs:, :means] = torch.minimum(start, of_line)
