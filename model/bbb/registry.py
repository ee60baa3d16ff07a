"""Observation models by name. To add one, write a subclass of `Likelihood` and add it to `LIKELIHOODS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.bbb.classes import Bernoulli, Categorical
from murho.model.bbb.counts import NegativeBinomial
from murho.model.bbb.gaussian import (
    FixedNoise,
    GaussianMixtureLikelihood,
    HeteroscedasticNoise,
    HomoscedasticNoise,
    MixtureNoise,
)
from murho.model.bbb.likelihood import LikelihoodOptions
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from murho.model.bbb.likelihood import Likelihood

__all__ = [
    "CLASS_KINDS",
    "KINDS",
    "LIKELIHOODS",
    "NOISE_KINDS",
    "make_likelihood",
    "make_numeric",
]

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.kind: likelihood
    for likelihood in (
        FixedNoise,
        HomoscedasticNoise,
        HeteroscedasticNoise,
        NegativeBinomial,
        MixtureNoise,
        Bernoulli,
        Categorical,
    )
}
"""Every observation model, by its name on the command line and in ``model.json``."""

KINDS = tuple(LIKELIHOODS)
NOISE_KINDS = tuple(kind for kind, likelihood in LIKELIHOODS.items() if likelihood.target == "number")
"""The kinds for numbers, the values of ``--noise``; the simplest first."""
CLASS_KINDS = tuple(kind for kind, likelihood in LIKELIHOODS.items() if likelihood.target == "class")


def make_numeric(
    kind: str, *, members: int, sigma: float | None = None, components: int | None = None
) -> GaussianMixtureLikelihood:
    """An observation model of Gaussians; see `make_likelihood`."""
    likelihood = make_likelihood(kind, members=members, sigma=sigma, components=components)
    if not isinstance(likelihood, GaussianMixtureLikelihood):
        raise OptionError(f"noise must be one of {', '.join(NOISE_KINDS)}, not {kind!r}")
    return likelihood


def make_likelihood(
    kind: str,
    *,
    members: int,
    sigma: float | None = None,
    components: int | None = None,
    classes: int | None = None,
) -> Likelihood:
    """Make an observation model by name.

    Args:
        kind: One of `KINDS`.
        members: M.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.
        classes: C, for ``categorical``.

    Raises:
        OptionError: The kind is unknown, ``fixed`` has no sigma, or ``mixture`` has no K.
    """
    if kind not in LIKELIHOODS:
        raise OptionError(f"noise must be one of {', '.join(NOISE_KINDS)}, not {kind!r}")
    return LIKELIHOODS[kind].make(LikelihoodOptions(members, sigma, components, classes))
