"""The base of observation models of numbers whose standardised target is Gaussian, or a mixture of Gaussians."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from murho.model.distributions.limited_predictive import LimitedPredictive
from murho.model.distributions.predictive import Predictive
from murho.model.likelihoods.likelihood import NumericLikelihood

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from murho.model.distributions.transforms import Standardisation
    from murho.model.distributions.wide_component import WideRule

__all__ = ["GaussianMixtureLikelihood"]


class GaussianMixtureLikelihood(NumericLikelihood):
    """An observation model of numbers: given a draw, the standardised target is a mixture of K Gaussians."""

    @abstractmethod
    def components(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The distribution of an observation given each draw: K Gaussians.

        Args:
            outputs: Network outputs, ``[M, B, P]``, or ``[S, B, P]`` with ``members``.
            members: Member of each entry of the first dimension, ``[S]``; by default the M members in order.

        Returns:
            Means ``[S, B, K]``, standard deviations broadcastable to the means, and weights ``[S, B, K]`` that sum to 1
            over K. The weights are None where K is 1.
        """

    def function_values(self, outputs: Tensor, members: Tensor) -> Tensor:
        """Means of the mixtures; see `Likelihood.function_values`."""
        means, _, weights = self.components(outputs, members)
        return means[..., 0] if weights is None else (weights * means).sum(dim=-1)

    def parts(self, outputs: Tensor, members: Tensor | None = None) -> tuple[Tensor, ...]:
        """Means, noise and, if any, weights of the Gaussians; see `NumericLikelihood.parts`."""
        return tuple(part for part in self.components(outputs, members) if part is not None)

    def predictive(
        self, parts: Sequence[Tensor], standardisation: Standardisation, wide: WideRule | None = None
    ) -> Predictive:
        """The mixture of Gaussians, widened and clipped; see `NumericLikelihood.predictive`."""
        means, noise, *weights = parts
        predictive = Predictive.of(
            means * standardisation.scale + standardisation.location,
            noise * standardisation.scale,
            weights[0] if weights else None,
            standardisation.transform,
        )
        if wide is not None:
            predictive = predictive.with_wide(wide, standardisation.scale)
        limits = standardisation.limits
        return predictive if limits is None else LimitedPredictive.clipped(predictive, limits)
