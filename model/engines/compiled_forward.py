"""The forward pass of many rows in compiled code, for CPUs; answers are those of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.engines.forward import FEW_ROWS, forward
from murho.model.engines.torch_engine import TorchEngine
from murho.model.runtime.threads import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.encoding.training_range import Outside
    from murho.model.engines.compiled.loader import Kernels
    from murho.model.engines.draws import Draws
    from murho.model.engines.target_models import AnyTargetModel

__all__ = ["CompiledForward"]

TILE_FLOATS = 2**19
"""Hidden values of a layer in a tile of a thread's forward pass: two buffers of 2 MiB."""
LEAST_ROWS, MOST_ROWS = 256, 1024
"""Limits of the rows in such a tile."""


class CompiledForward:
    """The engine of compiled code for any kind of target, see `model.engines.engine.Engine`."""

    name = "compiled"

    def __init__(self, target: AnyTargetModel, kernels: Kernels) -> None:
        """Keep the target model and the compiled functions."""
        self._reference, self._kernels = TorchEngine(target), kernels
        self.draw_weights: Callable[..., None] | None = kernels.draw_weights

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """See `Engine.forward`: compiled code for many rows of a network with SiLU, else PyTorch."""
        forward_draws = self._kernels.forward_draws
        if forward_draws is None or draws.activation != "silu" or len(draws.layers) == 1 or len(rows) <= FEW_ROWS:
            return forward(draws, rows)
        samples, batch = len(draws), len(rows)
        inputs = rows.new_ones((rows.shape[1] + 1, batch))
        inputs[:-1] = rows.T
        outputs = rows.new_empty((samples, draws.layers[-1].shape[1], batch))
        widest = max(layer.shape[1] for layer in draws.layers[:-1])
        most = max(LEAST_ROWS, min(MOST_ROWS, TILE_FLOATS // widest))
        at_a_time = -(-batch // -(-batch // most))
        arrays = draws.layers, inputs.numpy(), outputs.numpy(), len(inputs) if draws.skip else 0, at_a_time
        in_parts(samples, 1, lambda part: forward_draws(*arrays, part.start, part.stop))
        return outputs.transpose(1, 2)

    def answer(self, plan: Any, outputs: Tensor, members: Tensor, outside: Outside) -> dict[str, NDArray[Any]]:
        """See `Engine.answer`."""
        return self._reference.answer(plan, outputs, members, outside)
