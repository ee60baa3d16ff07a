"""The network that a checkpoint's ``model.json`` describes: its sizes, its observation model, its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho.model.errors import CheckpointError, OptionError
from murho.model.likelihoods.registry import make_likelihood
from murho.model.networks.bayesian_network import Architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.likelihoods.likelihood import Likelihood

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the tensors of a checkpoint are put into.

    Attributes:
        architecture: The network's sizes.
        likelihood: The observation model, its parameters not yet read.
    """

    architecture: Architecture
    likelihood: Likelihood

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Reads ``architecture`` and ``likelihood`` of ``model.json``.

        Raises:
            CheckpointError: One of them is malformed, or they don't fit each other.
        """
        try:
            described = facts["architecture"]
            architecture = Architecture(
                inputs=_whole(described["inputs"]),
                hidden=tuple(_whole(width) for width in described["hidden"]),
                outputs=_whole(described["outputs"]),
                activation=described["activation"],
                members=_whole(described["members"]),
                skip=described["skip"] is True,
            )
            likelihood = make_likelihood(
                facts["likelihood"]["kind"],
                members=architecture.members,
                sigma=facts["likelihood"].get("sigma"),
                components=facts["likelihood"].get("components"),
            )
        except (KeyError, TypeError, ValueError, OptionError) as error:
            raise CheckpointError(f"architecture or likelihood is malformed: {error}") from error
        if likelihood.outputs != architecture.outputs:
            raise CheckpointError(
                f"architecture.outputs is {architecture.outputs}, "
                f"but {likelihood.kind} noise takes {likelihood.outputs}"
            )
        return cls(architecture, likelihood)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the checkpoint has."""
        parameters = self.likelihood.named_parameters()
        return self.architecture.shapes() | {
            f"noise.{name}": tuple(parameter.shape) for name, parameter in parameters
        }


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value
