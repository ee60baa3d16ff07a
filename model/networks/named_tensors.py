"""Parameters of a network and of its noise, by the names that they have in checkpoints and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from murho.model.networks.bayesian_network import BayesianNetwork

__all__ = [
    "NOISE_RHO",
    "learned_tensors",
    "load_noise_tensors",
    "noise_tensors",
    "tensor_bytes",
    "tensor_problem",
]

_NOISE = "noise."
NOISE_RHO = f"{_NOISE}rho"
"""The tensor of homoscedastic noise, the one kind that has a parameter of its own."""


def noise_tensors(likelihood: nn.Module) -> dict[str, Tensor]:
    """Parameters of the observation model itself, as ``noise.NAME``; views, detached."""
    return {f"{_NOISE}{name}": parameter.detach() for name, parameter in likelihood.named_parameters()}


def load_noise_tensors(likelihood: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copies each ``noise.NAME`` into the observation model. Other tensors are not looked at."""
    for name, parameter in noise_tensors(likelihood).items():
        parameter.copy_(tensors[name])


def learned_tensors(network: BayesianNetwork, likelihood: nn.Module) -> dict[str, Tensor]:
    """Every mu and rho of the network, and `noise_tensors`; views, detached."""
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    return tensors | noise_tensors(likelihood)


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    import safetensors.torch

    content: bytes = safetensors.torch.save(
        {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    )
    return content


def tensor_problem(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """The first thing that is wrong with tensors from a file, or None.

    Args:
        found: By name.
        expected: Tensors of the names, shapes and types that there must be; their values don't matter.
    """
    for name in found:
        if name not in expected:
            return f"tensor {name!r} is not expected"
    for name, template in expected.items():
        tensor = found.get(name)
        if tensor is None:
            return f"tensor {name!r} is missing, expected shape {list(template.shape)}"
        if tensor.dtype != template.dtype:
            return f"tensor {name!r} is {tensor.dtype}, expected {template.dtype}"
        if tensor.shape != template.shape:
            return f"tensor {name!r} has shape {list(tensor.shape)}, expected {list(template.shape)}"
        if not bool(torch.isfinite(tensor).all()):
            return f"tensor {name!r} holds NaN or infinity"
    return None
