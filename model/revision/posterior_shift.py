"""Shift of a posterior relative to an earlier posterior of the same network: KL and moved weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho.model.networks.posterior_prior import PosteriorPrior, flat, sigmas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.networks.bayesian_network import Architecture

__all__ = ["LayerShift", "PosteriorShift"]


@dataclass(frozen=True, slots=True)
class LayerShift:
    """Shift of the weights or the biases of one layer, over all members.

    Attributes:
        name: Name of the tensor, such as ``layers.0.weight``.
        shift: Mean of ``|mu - mu_old| / sigma_old``.
        moved: Share of the weights (or biases) whose mean moved more than one old sigma.
    """

    name: str
    shift: float
    moved: float


@dataclass(frozen=True, slots=True)
class PosteriorShift:
    """Shift of a posterior.

    Attributes:
        kl: ``KL(new || old)`` of all weights and biases of a member, nats, mean over members: the information gained
            from the new rows.
        moved: Share of the weights and biases whose mean moved more than one old sigma.
        layers: The shift of each layer.
    """

    kl: float
    moved: float
    layers: tuple[LayerShift, ...]

    @classmethod
    def between(cls, old: Mapping[str, Tensor], new: Mapping[str, Tensor], architecture: Architecture) -> Self:
        """The shift between two posteriors, from their tensors by name."""
        names = tuple(architecture.shapes())
        before = PosteriorPrior(
            *(tensor.double() for tensor in (flat(old, names, "mu"), sigmas(flat(old, names, "rho"))))
        )
        mu, sigma = flat(new, names, "mu").double(), sigmas(flat(new, names, "rho").double())
        shift = (mu - before.mean).abs() / before.scale
        sizes = [old[name][0].numel() for name in names if name.endswith(".mu")]
        layers = tuple(
            LayerShift(name.removesuffix(".mu"), float(part.mean()), float((part > 1.0).double().mean()))
            for name, part in zip(
                (name for name in names if name.endswith(".mu")), shift.split(sizes, dim=1), strict=True
            )
        )
        kl = before.kl_of_each(mu, sigma).sum(dim=1).mean()
        return cls(float(kl), float((shift > 1.0).double().mean()), layers)

    def to_json(self) -> dict[str, Any]:
        """The shift, for ``model.json``."""
        return {
            "kl": self.kl,
            "moved": self.moved,
            "layers": [{"name": layer.name, "shift": layer.shift, "moved": layer.moved} for layer in self.layers],
        }
