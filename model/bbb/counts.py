"""Counts: a negative binomial whose mean and dispersion are outputs of the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from murho.model.bbb.likelihood import NumericLikelihood
from murho.model.bbb.network import inverse_softplus
from murho.model.distributions.counts import CountPredictive, log_mass
from murho.model.distributions.transforms import Logarithm, Standardisation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.distributions.mixtures import WideRule
    from murho.model.distributions.transforms import Limits

__all__ = [
    "NegativeBinomial",
]

LEAST_DISPERSION, INITIAL_DISPERSION = 1e-5, 0.25
LARGEST_COUNT = 100_000
"""Up to here a standardised logarithm in single precision gives the count back."""


class NegativeBinomial(NumericLikelihood):
    """``NB(y; mean, dispersion)``: mean ``m``, variance ``m + dispersion m^2``; Poisson in the limit of no dispersion.

    The network learns the logarithm of the target, and its first output is that of m: ``m = exp(z)`` up to the largest
    training target, and linear beyond it (`model.distributions.transforms.Logarithm`). The second one gives
    ``dispersion = 1e-5 + softplus(output)``.
    """

    kind = "negative-binomial"
    outputs = 2
    means = 1
    only_transform = "log"
    wide_tails = False
    standardisation = Standardisation(Logarithm(0.5, math.log(100.5)), location=0.0, scale=1.0)

    @classmethod
    def first_refused(cls, targets: NDArray[np.float64]) -> tuple[int, str] | None:
        """The first target that is no count; see `Likelihood.first_refused`."""
        refused = (targets < 0.0) | (targets != np.floor(targets)) | (targets > LARGEST_COUNT)
        refused &= ~np.isnan(targets)
        if not refused.any():
            return None
        return int(np.argmax(refused)), f"a count, a whole number from 0 to {LARGEST_COUNT:,}"

    @classmethod
    def allows(cls, limits: Limits) -> bool:
        """Counts have no negative values and no largest one; see `Likelihood.allows`."""
        return limits.minimum <= 0.0 and math.isinf(limits.maximum)

    def learn_target(self, standardisation: Standardisation) -> None:
        """Keep the logarithm of the target; see `Likelihood.learn_target`."""
        self.standardisation = standardisation

    @property
    def initial_outputs(self) -> dict[int, float]:
        """The initial dispersion, the same for every row; see `Likelihood.initial_outputs`."""
        return {1: float(inverse_softplus(torch.tensor(INITIAL_DISPERSION)))}

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log probability of the counts, ``[M, B]``; see `Likelihood.log_density`."""
        counts = _unstandardised(targets, self.standardisation).round_().clamp_min_(0.0)
        means, dispersion = self._moments(self.parts(outputs.double()), self.standardisation)
        return log_mass(counts, means[..., 0], dispersion[..., 0]).to(outputs)

    def function_values(self, outputs: Tensor, members: Tensor) -> Tensor:  # noqa: ARG002 - outputs are per draw already
        """Logarithms of the means, standardised; see `Likelihood.function_values`."""
        return outputs[..., 0]

    def parts(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, ...]:  # noqa: ARG002 - as above
        """The two outputs, ``[S, B, 1]`` each; see `NumericLikelihood.parts`."""
        return outputs[..., :1], outputs[..., 1:]

    def predictive(
        self,
        parts: Sequence[Tensor],
        standardisation: Standardisation,
        wide: WideRule | None = None,  # noqa: ARG002 - the dispersion makes the tails
    ) -> CountPredictive:
        """The mixture of negative binomials; see `NumericLikelihood.predictive`."""
        means, dispersion = self._moments(parts, standardisation)
        return CountPredictive.of_counts(means[..., 0], dispersion[..., 0])

    @staticmethod
    def _moments(parts: Sequence[Tensor], standardisation: Standardisation) -> tuple[Tensor, Tensor]:
        """Mean and dispersion of the counts."""
        location, raw = parts
        transform = standardisation.transform
        shift = transform.shift if isinstance(transform, Logarithm) else 0.0
        means = transform.inverse(location * standardisation.scale + standardisation.location) + shift
        return means.clamp_min(torch.finfo(torch.float32).tiny), LEAST_DISPERSION + functional.softplus(raw)


def _unstandardised(targets: Tensor, standardisation: Standardisation) -> Tensor:
    values = targets.double() * standardisation.scale + standardisation.location
    return standardisation.transform.inverse(values)
