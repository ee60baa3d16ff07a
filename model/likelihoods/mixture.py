"""The mixture-density observation model: K Gaussians a row, all set by the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from murho.model.errors import OptionError
from murho.model.likelihoods.gaussian import INITIAL_NOISE, LOG_SQRT_2PI, NOISE_FLOOR
from murho.model.networks.layers import inverse_softplus

__all__ = ["MOST_COMPONENTS", "MixtureNoise"]

MOST_COMPONENTS = 20


class MixtureNoise(nn.Module):
    """``sum_k weight_k N(y; mean_k, noise_k^2)``: means, noises and weights are outputs of the network.

    For targets whose scatter is skewed, heavy-tailed or in several clumps (Bishop 1994, "Mixture density
    networks"). The P = 3 K outputs are K means, then K noises before softplus, then K weights before softmax.
    """

    kind = "mixture"

    def __init__(self, components: int) -> None:
        """Takes the number of components.

        Args:
            components: K, 1 to 20.
        """
        super().__init__()
        if not 1 <= components <= MOST_COMPONENTS:
            raise OptionError(f"a mixture has 1 to {MOST_COMPONENTS} components a row, not {components}")
        self.count = self.means = components
        self.outputs = 3 * components

    @property
    def steady_outputs(self) -> dict[int, float]:
        """See `Likelihood.steady_outputs`: noises and weights start the same for every row."""
        start = float(inverse_softplus(torch.tensor(INITIAL_NOISE)))
        noises = dict.fromkeys(range(self.count, 2 * self.count), start)
        return noises | dict.fromkeys(range(2 * self.count, 3 * self.count), 0.0)

    def components(
        self,
        outputs: Tensor,
        members: Tensor | None = None,  # noqa: ARG002 - all is in the outputs
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `model.likelihoods.gaussian.Likelihood.components`."""
        means, raw, logits = outputs.split(self.count, dim=-1)
        return means, NOISE_FLOOR + functional.softplus(raw), _weights(logits)

    def with_scatter_of(self, outputs: Tensor, others: Tensor) -> Tensor:
        """See `Likelihood.with_scatter_of`: the other mixture, moved by the mean shift of components.

        Weights are scatter, too. Extrapolated they make components count that no training row has set, and whose means
        lie anywhere.
        """
        there, scatter = others[..., : self.count], others[..., self.count :]
        weights = _weights(others[..., 2 * self.count :])
        moved = (weights * (outputs[..., : self.count] - there)).sum(dim=-1, keepdim=True)
        return torch.cat((there + moved, scatter), dim=-1)

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See `model.likelihoods.gaussian.Likelihood.log_density`."""
        joint, _, _ = self._joint(outputs, targets)
        return torch.logsumexp(joint, dim=-1)

    def gradient(
        self, outputs: Tensor, targets: Tensor, factor: float, levelling: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """See `model.likelihoods.gaussian.Likelihood.gradient`; Bishop 1994, equations 35 to 39."""
        joint, residual, noise = self._joint(outputs, targets)
        log_density = torch.logsumexp(joint, dim=-1)
        share = torch.exp(joint - log_density.unsqueeze(-1))  # of each component in the density at the target
        gradient = torch.empty_like(outputs)
        by_mean, by_raw, by_logit = gradient.split(self.count, dim=-1)
        torch.mul(share, residual / noise, out=by_mean)
        if levelling > 0.0:
            weight = noise.pow(2.0 * levelling)
            by_mean.mul_(weight.div_(weight.mean(dim=1, keepdim=True)))
        by_noise = share * (residual.square() - 1.0) / noise
        torch.mul(by_noise, -torch.expm1(NOISE_FLOOR - noise), out=by_raw)
        torch.sub(share, torch.softmax(outputs[..., 2 * self.count :], dim=-1), out=by_logit)
        return log_density, gradient.mul_(factor)

    def _joint(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weight plus log density of each component, the residuals in units of the noise, and the noise."""
        means, raw, logits = outputs.split(self.count, dim=-1)
        noise = NOISE_FLOOR + functional.softplus(raw)
        residual = (targets.unsqueeze(-1) - means) / noise
        density = -0.5 * residual.square() - torch.log(noise) - LOG_SQRT_2PI
        return torch.log_softmax(logits, dim=-1) + density, residual, noise


def _weights(logits: Tensor) -> Tensor:
    """Over the components of many rows side by side, as the engine lays them out: ten times as fast as row by row."""
    return torch.softmax(logits.transpose(-1, -2), dim=-2).transpose(-1, -2)
