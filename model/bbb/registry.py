"""Observation models by name. To add one, write a subclass of `Likelihood` and add it to `LIKELIHOODS`."""

from __future__ import annotations

from murho.model.bbb.likelihood import Bernoulli, Categorical, ClassLikelihood, Likelihood
from murho.model.bbb.number_likelihoods import (
    FixedNoise,
    HeteroscedasticNoise,
    HomoscedasticNoise,
    MixtureNoise,
    NegativeBinomial,
)
from murho.model.errors import OptionError

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
NOISE_KINDS = tuple(kind for kind, likelihood in LIKELIHOODS.items() if not issubclass(likelihood, ClassLikelihood))
"""The kinds for numbers, the values of ``--noise``; the simplest first."""
CLASS_KINDS = tuple(kind for kind, likelihood in LIKELIHOODS.items() if issubclass(likelihood, ClassLikelihood))


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
        OptionError: The kind is unknown, or what it needs is missing or out of range.
    """
    if kind not in LIKELIHOODS:
        raise OptionError(f"noise must be one of {', '.join(NOISE_KINDS)}, not {kind!r}")
    needed: dict[str, float | None] = {
        "fixed": sigma,
        "homoscedastic": members,
        "mixture": components,
        "bernoulli": 2 if classes is None else classes,
        "categorical": classes,
    }
    return LIKELIHOODS[kind](needed[kind]) if kind in needed else LIKELIHOODS[kind]()
