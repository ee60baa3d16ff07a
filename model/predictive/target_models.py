"""Target models: what engines and posteriors need to know of a kind of target, numbers or classes.

A target model makes the predictive distribution, in the target's own unit, from the network's outputs; and the plan
of a request. A new kind of target is one more implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from murho.model.distributions.classes import ClassPredictive
from murho.model.predictive.plans import ClassPlan, PredictionPlan
from murho.model.predictive.prediction import AnyPrediction, PredictOptions

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from murho.model.bbb.likelihood import ClassLikelihood, NumericLikelihood
    from murho.model.calibration.classes import ClassCalibration
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.distributions.mixtures import WideRule
    from murho.model.distributions.predictive import Predictive
    from murho.model.distributions.transforms import Standardisation

__all__ = ["AnyPlan", "AnyPrediction", "AnyTargetModel", "ClassTargetModel", "TargetModel"]


@dataclass(frozen=True, slots=True)
class TargetModel:
    """Maps the outputs of a checkpoint's network to the distribution of the target.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        standardisation: Of the target that the network learned.
        wide: The rule of wide components; None: there are none.
        members: M.
        least_tile_rows: Rows that a tile should have at least where its memory allows: products of fewer are slow.
    """

    likelihood: NumericLikelihood
    standardisation: Standardisation
    wide: WideRule | None
    members: int = 1
    least_tile_rows: ClassVar[int] = 256

    def plan(self, options: PredictOptions, calibration: ConformalMap | None, device: torch.device) -> PredictionPlan:
        """The prepared plan of a request's options."""
        return PredictionPlan.of(options, calibration, device)

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
        return self.likelihood.predictive(parts, self.standardisation, self.wide if widened else None)


@dataclass(frozen=True, slots=True)
class ClassTargetModel:
    """Maps the outputs of a classifier's network to the distribution of the class.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        classes: Names of the C classes.
        shares: Share of each class among the training rows, ``[C]``, float64.
        least: Least weight of the shares in an answer.
        least_tile_rows: Outputs of many classes fill the memory of a tile by themselves.
    """

    likelihood: ClassLikelihood
    classes: tuple[str, ...]
    shares: Tensor
    least: float
    least_tile_rows: ClassVar[int] = 1

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

    def options_of_warm_up(self) -> tuple[PredictOptions, ...]:
        """Options that make the code of every kind of answer run once."""
        return PredictOptions(), PredictOptions(samples=0)


class AnyPlan(Protocol):
    """The options of a request, prepared once: `prediction_plan.PredictionPlan` or `class_plan.ClassPlan`."""

    @property
    def options(self) -> PredictOptions:
        """Options of the request."""
        ...

    @property
    def calibration(self) -> Any:
        """The calibration of the answer; None: it is raw."""
        ...

    def answer(self, predictive: Any, widening: Tensor) -> dict[str, Tensor]:
        """The answer's arrays by name, from the predictive of a target model of the same kind."""
        ...

    def prediction(self, answer: dict[str, Any], **facts: Any) -> AnyPrediction:
        """The prediction of an answer's arrays and of what else belongs to it."""
        ...


class AnyTargetModel(Protocol):
    """From outputs to the distribution: a `TargetModel` or a `ClassTargetModel`.

    Attributes:
        least_tile_rows: Rows that a tile should have at least.
    """

    least_tile_rows: ClassVar[int]

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Any:
        """The raw predictive distribution of each row."""
        ...

    def plan(self, options: PredictOptions, calibration: Any, device: torch.device) -> Any:
        """The prepared plan of a request's options, an `AnyPlan`."""
        ...

    def options_of_warm_up(self) -> tuple[PredictOptions, ...]:
        """Options that make the code of every kind of answer run once."""
        ...
