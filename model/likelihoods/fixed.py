"""Gaussian noise of a known standard deviation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from murho.model.errors import OptionError
from murho.model.likelihoods.gaussian import GaussianNoise

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.likelihoods.likelihood import LikelihoodOptions

__all__ = ["FixedNoise"]


class FixedNoise(GaussianNoise):
    """``N(y; output, sigma^2)`` with a known sigma.

    Attributes:
        sigma: Standard deviation in standardised units.
    """

    kind = "fixed"
    wide_tails = False

    def __init__(self, sigma: float) -> None:
        """Store the known noise.

        Args:
            sigma: Standard deviation in standardised units.

        Raises:
            OptionError: ``sigma`` is not a positive number.
        """
        super().__init__()
        if not (math.isfinite(sigma) and sigma > 0.0):
            raise OptionError(f"noise sigma must be a positive number, not {sigma!r}")
        self.sigma = sigma

    @classmethod
    def make(cls, options: LikelihoodOptions) -> Self:
        """Fixed noise with the sigma of the options; see `Likelihood.make`."""
        if options.sigma is None:
            raise OptionError("fixed noise needs its standard deviation: give --noise-sigma, in the target's unit")
        return cls(options.sigma)

    def to_json(self) -> dict[str, Any]:
        """Kind and sigma, for ``model.json``; see `Likelihood.to_json`."""
        return super().to_json() | {"sigma": self.sigma}

    def noise(self, outputs: Tensor, members: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one sigma for all
        """The known sigma, ``[1, 1]``; see `GaussianNoise.noise`."""
        return outputs.new_full((1, 1), self.sigma)
