"""What engines and posteriors need of a kind of target: numbers, or classes. A new kind is one more implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from murho.model.engines.class_prediction import ClassPrediction
from murho.model.engines.prediction import Prediction

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from murho.model.distributions.limits import Limits
    from murho.model.encoding.training_range import Outside
    from murho.model.engines.prediction import PredictOptions

__all__ = ["AnyPlan", "AnyPrediction", "AnyTargetModel"]

AnyPrediction: TypeAlias = Prediction | ClassPrediction


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

    def answer(self, predictive: Any, outside: Outside) -> dict[str, Tensor]:
        """The answer's arrays by name, from the predictive of a target model of the same kind."""
        ...

    def prediction(self, answer: dict[str, Any], **facts: Any) -> AnyPrediction:
        """The prediction of an answer's arrays and of what else belongs to it."""
        ...


class AnyTargetModel(Protocol):
    """From outputs to the distribution: `target_model.TargetModel` or `class_target_model.ClassTargetModel`."""

    @property
    def limits(self) -> Limits | None:
        """Limits of the target."""
        ...

    @property
    def least_tile_rows(self) -> int:
        """Rows that a tile should have at least."""
        ...

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Any:
        """The raw predictive distribution of each row."""
        ...

    def plan(self, options: PredictOptions, calibration: Any, device: torch.device) -> Any:
        """The prepared plan of a request's options, an `AnyPlan`."""
        ...

    def errors(self, drawn: Any, mirror: Any, answer: Any, options: PredictOptions, *, calibrated: bool) -> Any:
        """Monte Carlo standard errors of an answer."""
        ...

    def options_of_warm_up(self) -> tuple[PredictOptions, ...]:
        """Options that make the code of every kind of answer run once."""
        ...
