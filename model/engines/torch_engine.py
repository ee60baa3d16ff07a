"""The reference engine: PyTorch on any device, with the formulas of `model.distributions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.engines.forward import forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.encoding.training_range import Outside
    from murho.model.engines.draws import Draws
    from murho.model.engines.target_models import AnyTargetModel

__all__ = ["TorchEngine"]


class TorchEngine:
    """The engine of PyTorch, see `model.engines.engine.Engine`."""

    name = "torch"

    def __init__(self, target: AnyTargetModel) -> None:
        """Keep the target model, which maps outputs to the distribution of the target."""
        self._target = target
        self.draw_weights: Callable[..., None] | None = None

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """See `Engine.forward`."""
        return forward(draws, rows)

    def answer(self, plan: Any, outputs: Tensor, members: Tensor, outside: Outside) -> dict[str, NDArray[Any]]:
        """See `Engine.answer`."""
        predictive = self._target.predictive(outputs, members, widened=plan.options.samples > 0)
        answer = plan.answer(predictive, outside)
        if self._target.limits is not None:
            answer = self._target.limits.clip_answer(answer, plan.thresholds)
        return {name: part.cpu().numpy() for name, part in answer.items()}
