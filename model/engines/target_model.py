"""From the network's outputs to the distribution of the target, in its own unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.distributions.limited_predictive import LimitedPredictive
from murho.model.distributions.predictive import Predictive

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.distributions.limits import Limits
    from murho.model.distributions.transforms import Transform
    from murho.model.distributions.wide_component import WideRule
    from murho.model.likelihoods.likelihood import Likelihood

__all__ = ["TargetModel"]


@dataclass(frozen=True, slots=True)
class TargetModel:
    """Maps the outputs of a checkpoint's network to the distribution of the target.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        location: Mean of the transformed training targets.
        scale: Their standard deviation.
        transform: Transform of the target.
        wide: The rule of wide components; None: there are none.
        members: M.
        limits: Limits of the target; None: there are none.
    """

    likelihood: Likelihood
    location: float
    scale: float
    transform: Transform
    wide: WideRule | None
    members: int = 1
    limits: Limits | None = None

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Predictive:
        """The raw predictive distribution of the target of each row.

        Args:
            outputs: Outputs of the network, ``[S, B, P]``, standardised.
            members: Member of each draw, ``[S]``.
            widened: Whether to add the wide component, if there is a rule for it.
        """
        means, noise, weights = self.likelihood.components(outputs, members)
        predictive = Predictive.of(
            means.double() * self.scale + self.location,
            noise.double() * self.scale,
            None if weights is None else weights.double(),
            self.transform,
        )
        if self.wide is not None and widened:
            predictive = predictive.with_wide(self.wide, self.scale)
        return predictive if self.limits is None else LimitedPredictive.clipped(predictive, self.limits)
