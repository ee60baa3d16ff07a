"""The seam between a posterior and the code that computes its answers: one protocol, two implementations.

`torch_engine.TorchEngine` is the readable reference and runs on any device. `compiled_engine.CompiledEngine`
(Numba) is several times as fast on a CPU. Both give the same numbers to single precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.predictive.draws import Draws

__all__ = [
    "Engine",
]


class Engine(Protocol):
    """Computes answers for one `target_model.TargetModel`. A posterior picks its engine once, when it is loaded."""

    name: str

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """Outputs of every row under every draw.

        Args:
            draws: S draws.
            rows: Encoded rows, ``[B, D]``, float32, on the draws' device.

        Returns:
            ``[S, B, P]``, standardised. Up to rounding, a row's outputs do not depend on the other rows.
        """
        ...

    def answer(self, plan: Any, outputs: Tensor, members: Tensor, widening: Tensor) -> dict[str, NDArray[Any]]:
        """The numbers that a plan requests.

        Args:
            plan: The prepared request, a `target_models.AnyPlan`.
            outputs: Outputs of the network, ``[S, B, P]``, standardised; of the mu-only networks for ``samples=0``.
            members: Member of each draw, ``[S]``.
            widening: Whether calibration may only widen the bands of each row, ``[B]``.

        Returns:
            The requested numbers in the target's unit, by the names of `prediction.Prediction` or
            `class_prediction.ClassPrediction`, without the Monte Carlo standard errors.
        """
        ...
