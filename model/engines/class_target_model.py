"""From the network's outputs to the distribution of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.distributions.class_predictive import ClassPredictive
from murho.model.engines.class_plan import ClassPlan
from murho.model.engines.class_prediction import ClassMonteCarloError
from murho.model.engines.monte_carlo_error import error_of_averages
from murho.model.engines.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from murho.model.distributions.class_calibration import ClassCalibration
    from murho.model.likelihoods.class_likelihood import ClassLikelihood

__all__ = ["ClassTargetModel"]


@dataclass(frozen=True, slots=True)
class ClassTargetModel:
    """Maps the outputs of a classifier's network to the distribution of the class.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        classes: Names of the C classes.
        shares: Share of each class among the training rows, ``[C]``, float64.
        least: Least weight of the shares in an answer.
        members: M.
    """

    likelihood: ClassLikelihood
    classes: tuple[str, ...]
    shares: Tensor
    least: float
    members: int = 1

    limits = None
    """A class has no limits, as a number may have."""

    @property
    def least_tile_rows(self) -> int:
        """Rows that a tile should have at least: outputs of many classes fill the memory of a tile by themselves."""
        return 1

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> ClassPredictive:  # noqa: ARG002 - only numbers have wide components
        """The raw predictive distribution of the class of each row.

        Args:
            outputs: Outputs of the network, ``[S, B, P]``.
            members: Member of each draw, ``[S]``.
            widened: Not used: classes have no wide component.
        """
        return ClassPredictive.of(self.likelihood.log_probabilities(outputs.double()), self.shares, self.least)

    def plan(self, options: PredictOptions, calibration: ClassCalibration | None, device: torch.device) -> ClassPlan:
        """The prepared plan of a request's options."""
        return ClassPlan.of(options, calibration, device, self.classes)

    def errors(
        self,
        drawn: ClassPredictive,
        mirror: ClassPredictive,
        answer: Mapping[str, Any],  # noqa: ARG002 - errors of numbers depend on the percentiles asked for
        options: PredictOptions,  # noqa: ARG002
        *,
        calibrated: bool,  # noqa: ARG002
    ) -> ClassMonteCarloError:
        """Monte Carlo standard errors of the raw probabilities; see `model.engines.monte_carlo_error`."""
        shape = drawn.draws.shape[1:]
        errors = error_of_averages(drawn.draws.flatten(1), mirror.draws.flatten(1), self.members)
        return ClassMonteCarloError(errors.view(shape).T.cpu().numpy())

    def options_of_warm_up(self) -> tuple[PredictOptions, ...]:
        """Options that make the code of every kind of answer run once."""
        return PredictOptions(), PredictOptions(samples=0)
