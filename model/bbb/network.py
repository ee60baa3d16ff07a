"""The variational network: mu and rho of its layers as named tensors, local reparameterisation, what each member reads.

Every weight has the posterior ``N(mu, softplus(rho)^2)`` (Blundell et al. 2015). Training draws pre-activations instead
of weights (Kingma, Salimans and Welling 2015, "Variational dropout and the local reparameterization trick").

Half of the members of a mixed encoding do without the bins. Networks that read the same rows in two ways err on
different rows, so their mixture is better than either kind alone, as mixtures of networks with other hyperparameters
are (Wenzel et al. 2020, "Hyperparameter ensembles for robustness and uncertainty quantification").

All members have the same shapes. The architecture says which weights are absent all the same: those from inputs that
their member does not read, and those that a pruning has removed. No draw has them, whatever mu and rho say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from murho.model.json_validation import Count, MisfitError, Stored, one_of


def inverse_softplus(values: Tensor) -> Tensor:
    """Return ``rho`` such that ``softplus(rho) = values``, for positive values of any shape."""
    return values + torch.log(-torch.expm1(-values))


def local_reparameterisation(
    inputs: Tensor,
    weight_mu: Tensor,
    weight_variance: Tensor,
    bias_mu: Tensor,
    bias_variance: Tensor,
    generator: torch.Generator | None,
    draws: int = 1,
) -> Tensor:
    """Sample a layer's outputs, independently for every row.

    The outputs of a row are Gaussian with mean ``x W_mu + b_mu`` and variance ``x^2 W_sigma^2 + b_sigma^2``. Sampling
    outputs instead of weights gives each row its own draw, and a gradient of far lower variance (Kingma, Salimans &
    Welling 2015, equation 6).

    Args:
        inputs: ``[M, B, inputs]``.
        weight_mu: ``[M, inputs, outputs]``.
        weight_variance: ``sigma^2``, ``[M, inputs, outputs]``.
        bias_mu: ``[M, 1, outputs]``.
        bias_variance: ``sigma^2``, ``[M, 1, outputs]``.
        generator: Source of the draws, on the device of the inputs.
        draws: Draws per row, S; all share one computation of mean and variance.

    Returns:
        ``[M, S * B, outputs]``; draw-major.
    """
    mean = torch.baddbmm(bias_mu, inputs, weight_mu)
    variance = torch.baddbmm(bias_variance, inputs.square(), weight_variance)
    if draws > 1:
        mean, variance = mean.repeat(1, draws, 1), variance.repeat(1, draws, 1)
    epsilon = torch.empty_like(mean).normal_(generator=generator)
    return torch.addcmul(mean, variance.sqrt(), epsilon)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
}

INITIAL_RELATIVE_SIGMA = 0.05
"""Initial sigma of a layer as a fraction of the standard deviation of its initial means."""

_AtLeastOne = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Architecture(Stored):
    """Layer sizes, activation and number of members of a network, and which weights are absent.

    Attributes:
        inputs: Encoded features, D.
        hidden: Width of each hidden layer; empty for a linear model.
        outputs: Outputs per row, P, as the likelihood needs.
        activation: A key of `ACTIVATIONS`.
        members: Number of members, M.
        skip: Whether the last layer also reads the inputs, so that linear effects bypass the hidden layers.
        unread: For each member the numbers of the inputs that it does not read; empty: all members read all.
        removed: One bit for each weight, layer by layer in the order of `shapes`, without biases: 1 where a pruning has
            removed it. The first weight has the highest bit of the first byte. Empty: there is no such weight.
    """

    inputs: _AtLeastOne
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=16_384)], ...], Field(max_length=16)]
    outputs: _AtLeastOne
    activation: Annotated[str, one_of(*ACTIVATIONS)] = "relu"
    members: Annotated[int, Field(ge=1, le=64)] = 1
    skip: bool = False
    unread: tuple[tuple[Count, ...], ...] = ()
    removed: bytes = b""

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless ``unread`` and ``removed`` are of these members and weights."""
        if self.unread and len(self.unread) != self.members:
            raise MisfitError("unread", f"none or {self.members} lists, one a member", len(self.unread))
        if max((0, *chain.from_iterable(self.unread))) >= self.inputs:
            raise MisfitError("unread", f"numbers of inputs below {self.inputs}", self.unread)
        found, size = len(self.removed), -(-self.weights // 8)
        if found not in {0, size}:
            raise MisfitError("removed", f"nothing or {size} bytes, a bit for each weight", f"{found} bytes")

    @property
    def weights(self) -> int:
        """Number of all weights, without biases."""
        return self.members * sum(inputs * outputs for inputs, outputs in self.layers)

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """``(inputs, outputs)`` of each layer; with a skip, the network's inputs come last."""
        layers = list(pairwise((self.inputs, *self.hidden, self.outputs)))
        if self.skip and self.hidden:
            layers[-1] = (self.hidden[-1] + self.inputs, self.outputs)
        return tuple(layers)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of every tensor, in the order in which draws consume random numbers."""
        return {
            f"layers.{index}.{part}.{parameter}": (self.members, rows, outputs)
            for index, (inputs, outputs) in enumerate(self.layers)
            for part, rows in (("weight", inputs), ("bias", 1))
            for parameter in ("mu", "rho")
        }


class BayesianNetwork(nn.Module):
    """M independent mean-field networks, with mu and rho of all layers in one flat tensor each.

    With one tensor instead of many, an optimiser step is a handful of operations at any depth. On small networks, the
    number of operations determines the time of a step.

    Attributes:
        mu: Means of all P weights and biases, ``[M, P]``, in the order of `Architecture.shapes`.
        rho: Unconstrained scales, ``[M, P]``, in the same order; ``sigma = softplus(rho)``.
        groups: Group of each of the P entries, whose prior has one scale, ``[P]``: entries of a group lie side by side.
            Each tensor is a group, and so are the weights of a skip. The weights of the first hidden layer may be
            several groups, one for each feature that they are of: automatic relevance determination (MacKay 1994,
            "Bayesian nonlinear modeling for the prediction competition"; Neal 1996).
        alike: Whether members differ in what they read by chance alone, if at all, and not as two kinds.
        reads: 1 where a member reads an input, else 0, ``[M, 1, D]``; None: every member reads all.
        removed: Mask of the weights that a pruning has removed, ``[M, P]``; None: there are none.
    """

    groups: Tensor
    reads: Tensor | None
    removed: Tensor | None

    def __init__(
        self,
        architecture: Architecture,
        generator: torch.Generator,
        initial_outputs: Mapping[int, float] | None = None,
        *,
        alike: bool = True,
        feature_of_input: Sequence[int] = (),
    ) -> None:
        """Initialise the means as He-normal, and each sigma as a small fraction of their scale.

        With a large initial sigma BBB is known to learn nothing: the noise of the draws dominates the gradient of the
        mean.

        Args:
            architecture: Layer sizes, activation and members.
            generator: Source of the initial means, on the CPU.
            initial_outputs: Output → constant that it starts near (`model.bbb.likelihood.Likelihood`).
            alike: Whether members differ in what they read by chance alone, if at all, and not as two kinds.
            feature_of_input: Number of the feature that each input is of, rising, ``[D]``; empty: not known.
        """
        super().__init__()
        self.architecture, self.alike = architecture, alike
        last, reads = len(architecture.layers) - 1, None
        if architecture.unread:
            reads = (~unread_inputs(architecture)).float()
        means, scales = list[Tensor](), list[float]()
        for index, (inputs, outputs) in enumerate(architecture.layers):
            scale = (1.0 if index == last else 2.0**0.5) / inputs**0.5
            weight = torch.randn((architecture.members, inputs, outputs), generator=generator) * scale
            if index == 0 and reads is not None:
                # He's scale is that of the inputs which a member reads.
                weight = weight * (inputs / reads.sum(dim=1).clamp_min(1)).sqrt()[:, None, None]
            bias = torch.zeros(architecture.members, 1, outputs)
            if index == last:
                for output, start in (initial_outputs or {}).items():
                    weight[..., output] *= 0.1
                    bias[..., output] = start
            means += (weight.flatten(start_dim=1), bias.flatten(start_dim=1))
            scales += (INITIAL_RELATIVE_SIGMA * scale,) * 2
        self._sizes = [part.shape[1] for part in means]
        groups = torch.arange(len(means)).repeat_interleave(torch.tensor(self._sizes))
        self.mu = nn.Parameter(torch.cat(means, dim=1))
        self.rho = nn.Parameter(inverse_softplus(torch.tensor(scales)[groups].expand_as(self.mu)))
        if architecture.skip and architecture.hidden:
            # The weights of the skip form a group of their own, with its own prior scale.
            end = len(groups) - architecture.outputs
            groups[end - architecture.inputs * architecture.outputs : end] = len(means)
        if feature_of_input and architecture.hidden:
            # Below 0, so that they are none of the others; then all are numbered from 0.
            groups[: self._sizes[0]] = -1 - torch.tensor(feature_of_input).repeat_interleave(architecture.hidden[0])
            groups = torch.unique(groups, return_inverse=True)[1]
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("reads", None if reads is None else reads.unsqueeze(1), persistent=False)
        removed = None
        if architecture.removed:
            # A bias, which follows the weights of its layer, is never removed.
            layers = (functional.pad(layer, (0, 0, 0, 1)) for layer in removed_weights(architecture))
            removed = torch.cat([layer.flatten(start_dim=1) for layer in layers], dim=1)
        self.register_buffer("removed", removed, persistent=False)
        self._shapes = [shape for name, shape in architecture.shapes().items() if name.endswith(".mu")]
        self.activation = ACTIVATIONS[architecture.activation]

    def sigma(self) -> Tensor:
        """Return the standard deviations of all weights and biases, ``[M, P]``."""
        return functional.softplus(self.rho)

    def without_removed(self, values: Tensor) -> Tensor:
        """Return numbers of all weights and biases, ``[M, P]``, with 0 for the weights that a pruning has removed."""
        return values if self.removed is None else values.masked_fill(self.removed, 0.0)

    def forward(self, rows: Tensor, generator: torch.Generator | None, draws: int = 1) -> Tensor:
        """Compute the outputs of every row, each under its own draws (local reparameterisation).

        The outputs of a single row have exactly the same distribution as under draws of the weights. Rows do not share
        draws; where they must, use `model.predictive.draws`.

        Args:
            rows: Encoded rows, ``[B, D]``, or ``[M, B, D]`` with different rows for each member.
            generator: Source of the draws, on the device of the rows.
            draws: Draws per row, S.

        Returns:
            ``[M, S * B, P]``, standardised; draw-major.
        """
        means, variances = map(self.parts, map(self.without_removed, (self.mu, self.sigma().square())))
        inputs = rows.expand(self.architecture.members, -1, -1)
        if self.reads is not None:
            inputs = inputs * self.reads
        hidden = local_reparameterisation(inputs, means[0], variances[0], means[1], variances[1], generator, draws)
        for first in range(2, len(means), 2):
            hidden = self.activation(hidden)
            if self.architecture.skip and first == len(means) - 2:
                hidden = torch.cat((hidden, inputs.repeat(1, draws, 1)), dim=2)
            hidden = local_reparameterisation(
                hidden, means[first], variances[first], means[first + 1], variances[first + 1], generator
            )
        return hidden

    def name_views(self, mu: Tensor, rho: Tensor) -> dict[str, Tensor]:
        """Return views of two tensors ``[M, P]`` by the names of `Architecture.shapes`."""
        pairs = zip(self.parts(mu), self.parts(rho), strict=True)
        return dict(zip(self.architecture.shapes(), chain.from_iterable(pairs), strict=True))

    def named_tensors(self) -> dict[str, Tensor]:
        """Return every mu and rho by its name in a checkpoint (`Architecture.shapes`): detached views."""
        return self.name_views(self.mu.detach(), self.rho.detach())

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Split ``[M, P]``, any M, into views: ``[M, inputs, outputs]`` per weight, ``[M, 1, outputs]`` per bias."""
        return [
            part.view(-1, *shape[1:])
            for part, shape in zip(torch.split(flat, self._sizes, dim=1), self._shapes, strict=True)
        ]


def noise_tensors(likelihood: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the observation model as ``noise.NAME``: detached views."""
    return {f"noise.{name}": parameter.detach() for name, parameter in likelihood.named_parameters()}


def load_tensors(views: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy each tensor of that name into a view, such as `noise_tensors` returns."""
    for name, view in views.items():
        view.copy_(tensors[name])


def learned_tensors(network: BayesianNetwork, likelihood: nn.Module) -> dict[str, Tensor]:
    """Return what a checkpoint holds of a fit."""
    return without_absent(network.named_tensors() | noise_tensors(likelihood), network.architecture)


def without_absent(tensors: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """Return tensors by the names of `Architecture.shapes`, and others, with 0 for mu and rho of all absent weights."""
    changed = dict(tensors)
    for layer, absent in enumerate(absent_weights(architecture)):
        for name in (f"layers.{layer}.weight.mu", f"layers.{layer}.weight.rho"):
            changed[name] = changed[name].masked_fill(absent, 0.0)
    return changed


def absent_weights(architecture: Architecture) -> list[Tensor]:
    """Return masks of the absent weights, ``[M, inputs, outputs]`` for each layer."""
    removed, unread = removed_weights(architecture), unread_inputs(architecture)
    return [mask | weights_from_inputs(architecture, layer, unread) for layer, mask in enumerate(removed)]


def removed_weights(architecture: Architecture) -> list[Tensor]:
    """Return masks of the weights that a pruning has removed, ``[M, inputs, outputs]`` for each layer."""
    shapes = [(architecture.members, *layer) for layer in architecture.layers]
    packed = architecture.removed or bytes(architecture.weights // 8 + 1)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=architecture.weights)
    parts = torch.from_numpy(bits).bool().split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def unread_inputs(architecture: Architecture) -> Tensor:
    """Mask of the inputs that each member does not read, ``[M, D]``."""
    unread = torch.zeros(architecture.members, architecture.inputs, dtype=torch.bool)
    for own, numbers in zip(unread, architecture.unread, strict=False):
        own[list(numbers)] = True
    return unread


def weights_from_inputs(architecture: Architecture, index: int, inputs: Tensor) -> Tensor:
    """Mask of the weights of a layer that come from given inputs, ``[M, inputs of the layer, outputs]``.

    Args:
        architecture: The network's sizes.
        index: Number of the layer.
        inputs: Mask of the inputs of each member, ``[M, D]``.
    """
    width, outputs = architecture.layers[index]
    found = torch.zeros(architecture.members, width, outputs, dtype=torch.bool, device=inputs.device)
    # The first layer reads the inputs alone; with a skip, the weights of the inputs come last in the last layer.
    before = 0 if index == 0 else architecture.hidden[index - 1]
    found[:, before:] = inputs[:, : width - before, None]
    return found
