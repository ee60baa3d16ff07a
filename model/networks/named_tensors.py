"""Parameters of a network and of its observation model, by their names in checkpoints."""

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
"""Name of the tensor of homoscedastic noise, the only noise model with a parameter of its own."""


def noise_tensors(likelihood: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the observation model as ``noise.NAME``: detached views."""
    return {f"{_NOISE}{name}": parameter.detach() for name, parameter in likelihood.named_parameters()}


def load_noise_tensors(likelihood: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy each ``noise.NAME`` into the observation model; other tensors are ignored."""
    for name, parameter in noise_tensors(likelihood).items():
        parameter.copy_(tensors[name])


def learned_tensors(network: BayesianNetwork, likelihood: nn.Module) -> dict[str, Tensor]:
    """Return every mu and rho of the network, and the `noise_tensors`: detached views."""
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    return tensors | noise_tensors(likelihood)


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the tensors as the content of a safetensors file."""
    import safetensors.torch

    content: bytes = safetensors.torch.save(
        {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    )
    return content


def tensor_problem(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """Describe the first problem of tensors from a file, or return None if there is none.

    Args:
        found: Name → tensor of the file.
        expected: Name → tensor with the expected shape and type; its values are ignored.
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
