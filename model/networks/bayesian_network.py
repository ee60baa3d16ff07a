"""The Bayesian network: variational layers with activations between them, for M members stacked in one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.errors import OptionError
from murho.model.json_validation import (
    expect_fields,
    expect_flag,
    expect_list,
    expect_text,
    expect_whole,
    option_errors_at,
)
from murho.model.networks.layers import inverse_softplus, local_reparameterisation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ACTIVATIONS", "Architecture", "BayesianNetwork"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
}

INITIAL_RELATIVE_SIGMA = 0.05
"""Initial sigma of a layer as a fraction of the standard deviation of its initial means."""

MAXIMUM_WIDTH = 16_384
MAXIMUM_LAYERS = 16
MAXIMUM_MEMBERS = 64


@dataclass(frozen=True, slots=True)
class Architecture:
    """Layer sizes, activation and number of members of a network.

    Attributes:
        inputs: Encoded features, D.
        hidden: Width of each hidden layer; empty for a linear model.
        outputs: Outputs per row, P, as the likelihood needs.
        activation: A key of `ACTIVATIONS`.
        members: Number of members, M.
        skip: Whether the last layer also reads the inputs, so that linear effects bypass the hidden layers.
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    activation: str = "relu"
    members: int = 1
    skip: bool = False

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise OptionError(f"a network needs at least one input, not {self.inputs}")
        if len(self.hidden) > MAXIMUM_LAYERS:
            raise OptionError(f"hidden: at most {MAXIMUM_LAYERS} layers, not {len(self.hidden)}")
        for width in self.hidden:
            if not 1 <= width <= MAXIMUM_WIDTH:
                raise OptionError(f"hidden: widths lie between 1 and {MAXIMUM_WIDTH}, not {width}")
        if self.activation not in ACTIVATIONS:
            raise OptionError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if not 1 <= self.members <= MAXIMUM_MEMBERS:
            raise OptionError(f"members must lie between 1 and {MAXIMUM_MEMBERS}, not {self.members}")

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """``(inputs, outputs)`` of each layer; with a skip, the network's inputs come last."""
        layers = list(pairwise((self.inputs, *self.hidden, self.outputs)))
        if self.skip and self.hidden:
            layers[-1] = (self.hidden[-1] + self.inputs, self.outputs)
        return tuple(layers)

    def to_json(self) -> dict[str, Any]:
        """Return the architecture as data for ``model.json``."""
        return {
            "inputs": self.inputs,
            "hidden": list(self.hidden),
            "outputs": self.outputs,
            "activation": self.activation,
            "members": self.members,
            "skip": self.skip,
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read the data of `to_json`.

        Raises:
            CheckpointError: A field is missing, unknown, of another type or out of range.
        """
        fields = expect_fields(data, "architecture", tuple(cls.__dataclass_fields__))
        inputs, outputs, members = (
            expect_whole(fields[name], f"architecture.{name}", least=1) for name in ("inputs", "outputs", "members")
        )
        hidden = tuple(
            expect_whole(width, f"architecture.hidden[{index}]", least=1)
            for index, width in enumerate(expect_list(fields["hidden"], "architecture.hidden"))
        )
        activation = expect_text(fields["activation"], "architecture.activation")
        skip = expect_flag(fields["skip"], "architecture.skip")
        with option_errors_at("architecture"):
            return cls(inputs, hidden, outputs, activation, members, skip)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of every tensor, in the order in which draws consume random numbers."""
        shapes: dict[str, tuple[int, ...]] = {}
        for index, (inputs, outputs) in enumerate(self.layers):
            for part, shape in (
                ("weight", (self.members, inputs, outputs)),
                ("bias", (self.members, 1, outputs)),
            ):
                shapes[f"layers.{index}.{part}.mu"] = shape
                shapes[f"layers.{index}.{part}.rho"] = shape
        return shapes


class BayesianNetwork(nn.Module):
    """M independent mean-field networks, with mu and rho of all layers in one flat tensor each.

    With one tensor instead of many, an optimiser step is a handful of operations at any depth. On small networks, the
    number of operations determines the time of a step.

    Attributes:
        mu: Means of all P weights and biases, ``[M, P]``, in the order of `Architecture.shapes`.
        rho: Unconstrained scales, ``[M, P]``, in the same order; ``sigma = softplus(rho)``.
        groups: Index of the tensor of each of the P entries, ``[P]``; the weights of a skip are a group of their own.
        reads: 1 where a member reads an input, else 0, ``[M, 1, D]``; None: every member reads all
            (`model.networks.read_inputs`).
    """

    groups: Tensor
    reads: Tensor | None

    def __init__(
        self,
        architecture: Architecture,
        generator: torch.Generator,
        initial_outputs: Mapping[int, float] | None = None,
        reads: Tensor | None = None,
    ) -> None:
        """Initialise the means as He-normal, and each sigma as a small fraction of their scale.

        With a large initial sigma BBB is known to learn nothing: the noise of the draws dominates the gradient of the
        mean.

        Args:
            architecture: Layer sizes, activation and members.
            generator: Source of the initial means, on the CPU.
            initial_outputs: Output → constant that it starts near (`model.likelihoods.likelihood.Likelihood`).
            reads: Whether each member reads each input, ``[M, D]``, bool; None: all do.
        """
        super().__init__()
        self.architecture = architecture
        last = len(architecture.layers) - 1
        means: list[Tensor] = []
        scales: list[Tensor] = []
        groups: list[Tensor] = []
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
            for part in (weight, bias):
                means.append(part.flatten(start_dim=1))
                scales.append(torch.full_like(means[-1], INITIAL_RELATIVE_SIGMA * scale))
                groups.append(torch.full((means[-1].shape[1],), len(groups)))
        if architecture.skip and architecture.hidden:
            # The weights of the skip form a group of their own, with its own prior scale.
            groups[-2][architecture.hidden[-1] * architecture.outputs :] = len(groups)
        self.mu = nn.Parameter(torch.cat(means, dim=1))
        self.rho = nn.Parameter(inverse_softplus(torch.cat(scales, dim=1)))
        self.register_buffer("groups", torch.cat(groups), persistent=False)
        self.register_buffer("reads", None if reads is None else reads.float().unsqueeze(1), persistent=False)
        self._shapes = [shape for name, shape in architecture.shapes().items() if name.endswith(".mu")]
        self._sizes = [part.shape[1] for part in means]
        self.activation = ACTIVATIONS[architecture.activation]

    def sigma(self) -> Tensor:
        """Return the standard deviations of all weights and biases, ``[M, P]``."""
        return functional.softplus(self.rho)

    def forward(self, rows: Tensor, generator: torch.Generator | None, draws: int = 1) -> Tensor:
        """Compute the outputs of every row, each under its own draws (local reparameterisation).

        The outputs of a single row have exactly the same distribution as under draws of the weights. Rows do not share
        draws; where they must, use `model.engines.draws`.

        Args:
            rows: Encoded rows, ``[B, D]``, or ``[M, B, D]`` with different rows for each member.
            generator: Source of the draws, on the device of the rows.
            draws: Draws per row, S.

        Returns:
            ``[M, S * B, P]``, standardised; draw-major.
        """
        means, variances = self.parts(self.mu), self.parts(self.sigma().square())
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

    def named_tensors(self) -> dict[str, Tensor]:
        """Return every mu and rho by its name in a checkpoint (`Architecture.shapes`), as views."""
        parts = {"mu": self.parts(self.mu), "rho": self.parts(self.rho)}
        tensors = {}
        for index in range(len(self.architecture.layers)):
            for offset, part in enumerate(("weight", "bias")):
                for parameter in ("mu", "rho"):
                    tensors[f"layers.{index}.{part}.{parameter}"] = parts[parameter][2 * index + offset]
        return tensors

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Split ``[M, P]``, any M, into views: ``[M, inputs, outputs]`` per weight, ``[M, 1, outputs]`` per bias."""
        return [
            part.view(-1, *shape[1:])
            for part, shape in zip(torch.split(flat, self._sizes, dim=1), self._shapes, strict=True)
        ]
