"""From the network's outputs to the distribution of a number, in its own unit.

A target model is what a posterior knows about the kind of its target; that of classes is `class_target_model`. It makes
the predictive distribution from the outputs, the plan of a request, and the Monte Carlo standard errors of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from murho.model.distributions.transforms import Standardisation
from murho.model.engines.monte_carlo_error import MonteCarloError, monte_carlo_error
from murho.model.engines.prediction import PredictOptions
from murho.model.engines.prediction_plan import PredictionPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.distributions.calibration import ConformalMap
    from murho.model.distributions.limits import Limits
    from murho.model.distributions.predictive import Predictive
    from murho.model.distributions.transforms import Transform
    from murho.model.distributions.wide_component import WideRule
    from murho.model.likelihoods.likelihood import NumericLikelihood

__all__ = ["TILE_ROWS", "TargetModel"]

TILE_ROWS = 256
"""Least number of rows in a tile where the draws leave room for them: matrix products of fewer rows are slow."""


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

    likelihood: NumericLikelihood
    location: float
    scale: float
    transform: Transform
    wide: WideRule | None
    members: int = 1
    limits: Limits | None = None

    @property
    def least_tile_rows(self) -> int:
        """Rows that a tile should have at least where its memory allows: products of fewer rows are slow."""
        return TILE_ROWS

    def plan(self, options: PredictOptions, calibration: ConformalMap | None, device: torch.device) -> PredictionPlan:
        """The prepared plan of a request's options."""
        return PredictionPlan.of(options, calibration, device)

    def errors(
        self,
        drawn: Predictive,
        mirror: Predictive,
        answer: Mapping[str, Any],
        options: PredictOptions,
        *,
        calibrated: bool,
    ) -> MonteCarloError:
        """Monte Carlo standard errors of an answer; see `model.engines.monte_carlo_error.monte_carlo_error`.

        Args:
            drawn: Predictive of the draws.
            mirror: Predictive of their mirror images.
            answer: The answer's arrays.
            options: Options of the request.
            calibrated: Whether the answer is calibrated.
        """
        device = drawn.means.device
        errors = monte_carlo_error(
            drawn,
            mirror,
            torch.from_numpy(answer["percentiles"]).to(device),
            members=self.members,
            noise=options.noise,
            calibrated_std=torch.from_numpy(answer["std"]).to(device) if calibrated else None,
        )
        return MonteCarloError(*(error.cpu().numpy() for error in errors))

    def options_of_warm_up(self) -> tuple[PredictOptions, ...]:
        """Options that make the code of every kind of answer run once."""
        return PredictOptions(), PredictOptions(samples=0), PredictOptions(noise=False, thresholds=(0.0,))

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Predictive:
        """The raw predictive distribution of the target of each row.

        Args:
            outputs: Outputs of the network, ``[S, B, P]``, standardised.
            members: Member of each draw, ``[S]``.
            widened: Whether to add the wide component, if there is a rule for it.
        """
        parts = [part.double() for part in self.likelihood.parts(outputs, members)]
        standardisation = Standardisation(self.transform, self.location, self.scale, self.limits)
        return self.likelihood.predictive(parts, standardisation, self.wide if widened else None)
