"""What fits compute in closed form, written plainly: divergences of priors, and the free energy of a minibatch.

And the weights and biases in the layout of draws.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

from murho.model.bbb.free_energy import FreeEnergy
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import BayesianNetwork
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, Prior, ScaleMixturePrior
from murho.model.predictive.draws import Draws


def kl(prior: Prior, mu: Tensor, sigma: Tensor, groups: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """``KL(q || prior)`` of all weights of each member, ``[M]``; of a scale mixture its estimate from one draw."""
    posterior = Normal(mu, sigma)
    if isinstance(prior, ScaleMixturePrior):
        epsilon = torch.randn(mu.shape, generator=generator, dtype=mu.dtype, device=mu.device)
        log_ratio: Tensor = -posterior.entropy() - scale_mixture(prior, mu).log_prob(mu + sigma * epsilon)
        return log_ratio.sum(dim=1)
    if isinstance(prior, PosteriorPrior):
        return kl_divergence(posterior, Normal(prior.mean, prior.scale)).sum(dim=1)
    if isinstance(prior, GaussianPrior):
        return kl_divergence(posterior, Normal(torch.zeros_like(mu), prior.sigma)).sum(dim=1)
    assert isinstance(prior, EmpiricalBayesPrior)
    variance = best_variance(prior, mu, sigma, groups)
    divergence = kl_divergence(posterior, Normal(torch.zeros_like(mu), variance.sqrt()[:, groups]))
    constant = math.lgamma(prior.alpha) - prior.alpha * math.log(prior.beta)
    hyperprior = (prior.alpha + 1.0) * torch.log(variance) + prior.beta / variance + constant
    return divergence.sum(dim=1) + hyperprior.sum(dim=1)


def scale_mixture(prior: ScaleMixturePrior, like: Tensor) -> MixtureSameFamily:
    """Return the prior as a distribution of one weight, of the type of ``like``."""
    shares, scales = (like.new_tensor([prior.pi, 1.0 - prior.pi]), like.new_tensor([prior.sigma1, prior.sigma2]))
    return MixtureSameFamily(Categorical(shares), Normal(torch.zeros_like(scales), scales))


def best_variance(prior: EmpiricalBayesPrior, mu: Tensor, sigma: Tensor, groups: Tensor) -> Tensor:
    """Return the best prior variance of each tensor and member, ``[M, G]`` (Wu et al. 2019, section 4)."""
    squares = mu.square() + sigma.square()
    return torch.stack(
        [
            (squares[:, groups == group].sum(dim=1) + 2.0 * prior.beta)
            / (int((groups == group).sum()) + 2.0 * prior.alpha + 2.0)
            for group in groups.unique().tolist()
        ],
        dim=1,
    )


def free_energy(
    network: BayesianNetwork,
    likelihood: Likelihood,
    prior: Prior,
    rows: Tensor,
    targets: Tensor,
    row_weights: Tensor | None = None,
    *,
    total_rows: int,
    kl_weight: float,
    minibatches: int,
    temperature: float = 1.0,
    draws: int = 1,
    generator: torch.Generator | None = None,
) -> FreeEnergy:
    """Return that of a minibatch, to be differentiated automatically; see `model.bbb.free_energy.GradientStep`."""
    outputs = network(rows, generator, draws)
    log_density = likelihood.log_density(outputs, targets.repeat(*[1] * (targets.dim() - 1), draws))
    if row_weights is not None:
        log_density = log_density * row_weights.repeat(*[1] * (row_weights.dim() - 1), draws)
    per_row = log_density.mean(dim=1)
    divergence = kl(prior, network.mu, network.sigma(), network.groups, generator) / total_rows
    loss = minibatches * (temperature * kl_weight * divergence - per_row * (targets.shape[-1] / total_rows))
    return FreeEnergy(loss.sum(), -per_row.detach().mean(), divergence.detach().mean())


def weights_of(draws: Draws) -> list[Tensor]:
    """One ``[S, inputs, outputs]`` a layer."""
    return [layer[..., :-1].transpose(1, 2) for layer in _without_constant_units(draws)]


def biases_of(draws: Draws) -> list[Tensor]:
    """One ``[S, 1, outputs]`` a layer."""
    return [layer[..., -1:].transpose(1, 2) for layer in _without_constant_units(draws)]


def _without_constant_units(draws: Draws) -> list[Tensor]:
    """Return the layers without the unit of constant 1 that brings the 1 of the next layer's bias."""
    carried = len(draws.layers) - (2 if draws.skip else 1)
    return [layer[:, :-1] if index < carried else layer for index, layer in enumerate(draws.layers)]
