"""The reference engine: PyTorch on any device, with the formulas of `model.distributions`.

The hot path of every answer is the forward pass of every row under every draw. Rows are the last dimension,
``[S, units, B]``, so that each of the few outputs of the last layer is one long row. A layer's bias is a column of its
matrix (see `Draws`). So a layer is one product and one activation in place, in buffers that stay in the CPU's cache.
The first layer and the skip into the last one are one product each for all draws of a tile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.predictive.draws import Draws
    from murho.model.predictive.plans import AnyPlan, AnyTargetModel, Arrays

__all__ = [
    "FEW_ROWS",
    "TorchEngine",
    "forward",
    "forward_in_double",
]


TILE_FLOATS = 2**18
"""Hidden values of a layer in a thread's tile: two buffers of 1 MiB, about the size of a core's second-level cache.

Half as many, with half as many rows, take 1.01 to 1.2 times as long, because there are more calls."""
TILE_ROWS = 2048
"""Rows in a tile: more do not make the products of a draw faster."""
DEVICE_TILE_FLOATS = 2**25
"""Hidden values of a layer in a tile on a GPU, which larger products use fully."""

FEW_ROWS = 8
"""Most rows for which reading the weights dominates a product (3 to 8 rows: 0.55 to 0.95 of the time of tiles)."""

SPARSE_FLOATS, SPARSE_SHARE = 2**22, 2
"""A single row with zeros in half of its inputs or more, such as the pixels of an image, reads only the weights of the
others where there are this many weights: 4.6 ms instead of 21 ms for 150 of 785 inputs, 400 units and 256 draws."""

DOUBLE_BYTES = 2**25
"""Memory for draws in double precision, which no request keeps: one draw may exceed it."""

IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "silu": partial(functional.silu, inplace=True),
    "sigmoid": torch.sigmoid_,
}
"""`model.bbb.network.ACTIVATIONS`, computed in place."""


def forward(draws: Draws, rows: Tensor) -> Tensor:
    """Outputs of every row under every draw, tile by tile.

    Up to rounding, a few units in the last place, a row's outputs do not depend on the tiles.

    Args:
        draws: S draws.
        rows: Encoded rows, ``[B, D]``, float32, on the draws' device.

    Returns:
        ``[S, B, P]``, standardised; the B numbers of each output of a draw are contiguous.
    """
    with torch.inference_mode():
        return _few_rows(draws, rows) if len(rows) <= FEW_ROWS else _many_rows(draws, rows)


def forward_in_double(draws: Draws, rows: Tensor) -> Tensor:
    """`forward` with all arithmetic in double precision, rounded once, some draws at a time."""
    at_a_time = max(1, len(draws) * DOUBLE_BYTES // max(1, 2 * draws.nbytes))
    parts = (draws.some(slice(start, start + at_a_time)).double() for start in range(0, len(draws), at_a_time))
    return torch.cat([forward(part, rows.double()).float() for part in parts])


def _few_rows(draws: Draws, rows: Tensor) -> Tensor:
    """`forward` for at most `FEW_ROWS` rows, where most of the time goes into reading the weights.

    Here rows come before units: in that order products read the matrices at the speed of memory.
    """
    *hidden_layers, last = draws.layers
    activation = IN_PLACE[draws.activation]
    inputs = functional.pad(rows, (0, 1), value=1.0)  # [B, D + 1]
    hidden = None
    for layer in hidden_layers:
        # [S, B, units]
        hidden = _shared(layer, inputs) if hidden is None else torch.bmm(hidden, layer.transpose(1, 2))
        activation(hidden)
    if hidden is None:
        return _shared(last, inputs)
    if not draws.skip:
        return torch.bmm(hidden, last.transpose(1, 2))
    units = hidden.shape[2]
    by_inputs = _shared(last[..., units:], inputs)
    return torch.baddbmm(by_inputs, hidden, last[..., :units].transpose(1, 2))


def _shared(layer: Tensor, inputs: Tensor) -> Tensor:
    """One product for all draws, ``[S, outputs, inputs]`` by ``[B, inputs]``; ``[S, B, outputs]``."""
    samples, outputs, _ = layer.shape
    if len(inputs) == 1 and layer.numel() >= SPARSE_FLOATS and not inputs.is_cuda:
        used = inputs[0].nonzero().squeeze(1)
        by_input = layer.permute(2, 0, 1)
        if len(used) * SPARSE_SHARE <= len(by_input) and by_input.is_contiguous():
            values = inputs[0, used].unsqueeze(0)
            summed = functional.embedding_bag(
                used.unsqueeze(0), by_input.flatten(1), mode="sum", per_sample_weights=values
            )
            return summed.view(samples, 1, outputs)
    matrix = layer.flatten(0, 1)
    if len(inputs) == 1:
        return torch.mm(matrix, inputs.T).view(samples, 1, outputs)
    return torch.mm(inputs, matrix.T).view(len(inputs), samples, outputs).transpose(0, 1)


def _many_rows(draws: Draws, rows: Tensor) -> Tensor:
    """`forward` for more rows, in tiles of rows and draws."""
    samples, batch = len(draws), len(rows)
    outputs = rows.new_empty((samples, draws.layers[-1].shape[1], batch))
    inputs = rows.new_ones((rows.shape[1] + 1, batch))
    inputs[:-1] = rows.T
    widest = max((layer.shape[1] for layer in draws.layers[:-1]), default=1)
    columns = _parts(batch, TILE_ROWS)
    longest = max(column.stop - column.start for column in columns)
    draws_per_tile = min(samples, max(1, _tile_floats(rows) // (widest * longest)))
    buffers = rows.new_empty((2, draws_per_tile * widest * longest))
    for column in columns:
        tile_inputs = inputs if len(columns) == 1 else inputs[:, column].contiguous()
        for tile in _parts(samples, draws_per_tile):
            _forward_tile(draws, tile, tile_inputs, buffers, outputs[tile, :, column])
    return outputs.transpose(1, 2)


def _tile_floats(rows: Tensor) -> int:
    if rows.is_cuda:
        return DEVICE_TILE_FLOATS
    return TILE_FLOATS * torch.get_num_threads()


def _forward_tile(draws: Draws, tile: slice, inputs: Tensor, buffers: Tensor, outputs: Tensor) -> None:
    """Fill the outputs of one tile.

    Args:
        draws: S draws.
        tile: The T draws of the tile.
        inputs: The inputs and a row of ones, ``[D + 1, B]``.
        buffers: Two buffers, each long enough for the widest layer of the tile.
        outputs: To be filled, ``[T, P, B]``.
    """
    *hidden_layers, last = (layer[tile] for layer in draws.layers)
    activation = IN_PLACE[draws.activation]
    count, batch = len(last), inputs.shape[1]
    hidden = inputs
    for index, layer in enumerate(hidden_layers):
        units = layer.shape[1]
        values = buffers[index % 2, : count * units * batch].view(count, units, batch)
        if index == 0:
            torch.mm(layer.flatten(0, 1), inputs, out=values.view(-1, batch))
        else:
            torch.bmm(layer, hidden, out=values)
        hidden = activation(values)
    if hidden_layers and not draws.skip:
        torch.bmm(last, hidden, out=outputs)
        return
    units = hidden.shape[1] if hidden_layers else 0
    shared = last[..., units:].flatten(0, 1) if units else last.flatten(0, 1)
    if outputs.is_contiguous():
        torch.mm(shared, inputs, out=outputs.view(-1, batch))
    else:
        outputs.copy_(torch.mm(shared, inputs).view(outputs.shape))
    if units:
        outputs.baddbmm_(last[..., :units], hidden)


def _parts(count: int, most: int) -> list[slice]:
    """The smallest number of about equal parts that have at most ``most`` each."""
    parts = -(-count // most)
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


class TorchEngine:
    """The engine of PyTorch, see `model.predictive.plans.Engine`."""

    name = "torch"

    def __init__(self, target: AnyTargetModel) -> None:
        """Keep the target model, which maps outputs to the distribution of the target."""
        self._target = target

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """See `Engine.forward`."""
        return forward(draws, rows)

    def answer(self, plan: AnyPlan, outputs: Tensor, members: Tensor, widening: Tensor) -> Arrays:
        """See `Engine.answer`."""
        return self._target.answer(plan, outputs, members, widening)
