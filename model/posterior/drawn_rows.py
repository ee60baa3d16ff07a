"""Network outputs of rows under the draws of a posterior, for evaluation and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.engines.prediction import PredictOptions
from murho.model.engines.prediction_plan import PredictionPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.distributions.calibration import ConformalMap
    from murho.model.encoding.training_range import Outside
    from murho.model.engines.engine import Engine
    from murho.model.engines.target_models import AnyTargetModel

__all__ = ["DrawnRows"]


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """B rows under S draws.

    Attributes:
        outputs: Outputs of the network, ``[S, B, P]``, standardised; computed by PyTorch, whatever the engine.
        members: Member of each draw, ``[S]``.
        outside: The rows in which calibration may only widen bands: those beyond the training rows, and those whose
            spread is mostly that of imputed cells.
        target: Maps the outputs to the distribution of the target.
        engine: Computes answers.
    """

    outputs: Tensor
    members: Tensor
    outside: Outside
    target: AnyTargetModel
    engine: Engine

    def predictive(self) -> Any:
        """The raw predictive of each row; computed by PyTorch, and so the same to the bit with every engine."""
        return self.target.predictive(self.outputs, self.members)

    def percentiles(self, levels: Sequence[float], calibration: ConformalMap | None = None) -> NDArray[np.float64]:
        """Percentiles of an observation, ``[B, K]``, as in `answer`."""
        return self.answer(levels, calibration)["percentiles"]

    def answer(
        self, levels: Sequence[float], calibration: ConformalMap | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """The answer for an observation, in the target's unit, by the names of `model.engines.prediction.Prediction`.

        Args:
            levels: K percentile levels, strictly between 0 and 100.
            calibration: Calibrates the spread and the percentiles; None: they are raw.
        """
        options = PredictOptions(samples=len(self.members), percentiles=tuple(levels))
        plan = PredictionPlan.of(options, calibration, self.outputs.device)
        return self.engine.answer(plan, self.outputs, self.members, self.outside)
