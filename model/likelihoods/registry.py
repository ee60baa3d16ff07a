"""Observation models by name."""

from __future__ import annotations

from murho.model.errors import OptionError
from murho.model.likelihoods.gaussian import FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
from murho.model.likelihoods.mixture import MixtureNoise

__all__ = ["NOISE_KINDS", "ObservationModel", "make_likelihood"]

ObservationModel = FixedNoise | HomoscedasticNoise | HeteroscedasticNoise | MixtureNoise
"""Every kind of `model.likelihoods.gaussian.Likelihood` there is; a torch module."""

NOISE_KINDS = ("fixed", "homoscedastic", "heteroscedastic", "mixture")


def make_likelihood(
    kind: str, *, members: int, sigma: float | None = None, components: int | None = None
) -> ObservationModel:
    """An observation model by name.

    Args:
        kind: One of `NOISE_KINDS`.
        members: M.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.

    Raises:
        OptionError: The kind is unknown, or ``fixed`` comes without a sigma, or ``mixture`` without K.
    """
    if kind == "fixed":
        if sigma is None:
            raise OptionError(
                "fixed noise needs its standard deviation: give --noise-sigma, in the target's unit"
            )
        return FixedNoise(sigma)
    if kind == "homoscedastic":
        return HomoscedasticNoise(members)
    if kind == "heteroscedastic":
        return HeteroscedasticNoise()
    if kind == "mixture":
        if components is None:
            raise OptionError("mixture noise needs its number of components: give --noise-components")
        return MixtureNoise(components)
    raise OptionError(f"noise must be one of {', '.join(NOISE_KINDS)}, not {kind!r}")
