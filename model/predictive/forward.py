"""Encoded rows under draws: their outputs of the network, by PyTorch on any device, and what follows from these.

The hot path of every answer is the forward pass of every row under every draw. Rows are the last dimension,
``[S, units, B]``, so that each of the few outputs of the last layer is one long row. A layer's bias is a column of its
matrix (see `Draws`). So a layer is one product and one activation in place, in buffers that stay in the CPU's cache.
The first layer and the skip into the last one are one product each for all draws of a tile.

The answer for a row with missing cells is the average over what they may have been. Draw k is computed with copy
``k mod R`` of the row (`model.encoding.imputation`). So the spread over draws includes what the cell would have told,
and the row costs no more than a complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.likelihood import Likelihood
from murho.model.distributions.predictive import Predictive
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.draws import Draws
from murho.model.predictive.plans import AnyPlan, AnyTargetModel, Arrays, DrawnRows, Engine, TargetModel
from murho.model.runtime import even_slices

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
    """Return outputs of every row under every draw, tile by tile.

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
        hidden = _multiply_shared(layer, inputs) if hidden is None else torch.bmm(hidden, layer.transpose(1, 2))
        activation(hidden)
    if hidden is None:
        return _multiply_shared(last, inputs)
    if not draws.skip:
        return torch.bmm(hidden, last.transpose(1, 2))
    units = hidden.shape[2]
    by_inputs = _multiply_shared(last[..., units:], inputs)
    return torch.baddbmm(by_inputs, hidden, last[..., :units].transpose(1, 2))


def _multiply_shared(layer: Tensor, inputs: Tensor) -> Tensor:
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
    columns = even_slices(batch, -(-batch // TILE_ROWS))
    longest = max(column.stop - column.start for column in columns)
    floats = DEVICE_TILE_FLOATS if rows.is_cuda else TILE_FLOATS * torch.get_num_threads()
    draws_per_tile = min(samples, max(1, floats // (widest * longest)))
    buffers = rows.new_empty((2, draws_per_tile * widest * longest))
    for column in columns:
        tile_inputs = inputs if len(columns) == 1 else inputs[:, column].contiguous()
        for tile in even_slices(samples, -(-samples // draws_per_tile)):
            _forward_tile(draws, tile, tile_inputs, buffers, outputs[tile, :, column])
    return outputs.transpose(1, 2)


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


class TorchEngine:
    """The engine of PyTorch, see `model.predictive.plans.Engine`."""

    name = "torch"

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """See `Engine.forward`."""
        return forward(draws, rows)

    def answer(self, plan: AnyPlan, drawn: DrawnRows) -> Arrays:
        """See `Engine.answer`."""
        predictive: Any = drawn.predictive(widened=plan.options.samples > 0)  # of the plan's kind
        return plan.answer(predictive, drawn.only_widen)


def mostly_imputed(predictive: Predictive, copies: int) -> Tensor:
    """Whether the spread of imputed cells is more than half of each row's variance, ``[B]``.

    The calibration of held-out rows, which were complete, says nothing about this spread. By the law of total variance
    it is the variance between copies, without the part that is due to the few draws of each:
    ``Var_copies[mean over its draws] - mean over copies of Var_draws / n``.

    Args:
        predictive: The predictive of the rows; draw k uses copy ``k mod R``.
        copies: R. With fewer than 2 R draws the spread is not known, and no row is marked.
    """
    means = predictive.means
    if len(means) < 2 * copies:
        return torch.zeros(means.shape[1], dtype=torch.bool, device=means.device)
    of_copies = [means[copy::copies] for copy in range(copies)]
    between = torch.stack([part.mean(dim=0) for part in of_copies]).var(dim=0)
    within = torch.stack([part.var(dim=0) / len(part) for part in of_copies]).mean(dim=0)
    _, epistemic, aleatoric = predictive.moments
    return between - within > 0.5 * (epistemic.square() + aleatoric.square())


FAR = 4.0
"""How far beyond the training range, in an encoded feature, single precision becomes too coarse: near 1,000 it rounds a
logit by up to 3e-5, and so a probability by this part of it, in one batch up and in another down."""


@dataclass(frozen=True, slots=True)
class NetworkOutputs:
    """Computes the outputs of a posterior's network.

    Attributes:
        likelihood: The observation model, which tells the outputs for means from those for noise.
        target: Maps the outputs to the distribution of the target.
        training_range: Smallest and largest value of each encoded column over the training rows, ``[2, D]``.
        edge_noise: Whether the noise of a row beyond this range is that at its nearest edge.
    """

    likelihood: Likelihood
    target: AnyTargetModel
    training_range: Tensor
    edge_noise: bool = True

    def draw_rows(
        self,
        engine: Engine,
        parts: Iterable[Draws],
        encoded: Encoded,
        *,
        mu_only: bool = False,
        calibrated: bool = True,
    ) -> DrawnRows:
        """Rows under the draws of all parts.

        Args:
            engine: Computes the outputs, and then answers.
            parts: Consecutive draws.
            encoded: The rows.
            mu_only: Whether the draws are the means of the weights. Each then uses all copies of a row, and counts as R
                draws; otherwise draw k uses copy ``k mod R``. And no other rows share their pass through the network,
                so function values are those of `engine.forward` to the bit.
            calibrated: Whether an answer is to be calibrated: only that asks which rows are mostly imputed.
        """
        device = self.training_range.device
        rows, outlier = torch.from_numpy(encoded.inputs).to(device), torch.from_numpy(encoded.outlier).to(device)
        if rows.dim() == 2:
            out_of_range = torch.from_numpy(np.flatnonzero(encoded.out_of_range)).to(device)
            found = [self._of(engine, draws, rows, out_of_range, mu_only) for draws in parts]
            outputs, members = found[0]
            if len(found) > 1:
                outputs, members = map(torch.cat, zip(*found, strict=True))
            return DrawnRows(outputs, members, outlier, self.target, engine)
        where = [torch.from_numpy(np.flatnonzero(of_copy)).to(device) for of_copy in encoded.out_of_range]
        outputs, members = self._of_copies(engine, parts, rows, where, mu_only)
        drawn = DrawnRows(outputs, members, outlier, self.target, engine)
        if mu_only or not (calibrated and isinstance(self.target, TargetModel)):
            return drawn
        return replace(drawn, only_widen=outlier | mostly_imputed(cast("Predictive", drawn.predictive()), len(rows)))

    def _of_copies(
        self, engine: Engine, parts: Iterable[Draws], rows: Tensor, where: Sequence[Tensor], mu_only: bool
    ) -> tuple[Tensor, Tensor]:
        """Return outputs of imputed rows, and the member of each draw, see `drawn`."""
        copies, start = len(rows), 0
        outputs, members, order = [], [], []
        for draws in parts:
            for copy in range(copies):
                first, step = (0, 1) if mu_only else ((copy - start) % copies, copies)
                which = torch.arange(len(draws), device=rows.device)[first::step]
                if len(which):
                    of_copy, own = self._of(engine, draws.some(which), rows[copy], where[copy], mu_only)
                    outputs.append(of_copy.transpose(1, 2))
                    members.append(own)
                    order.append(which + start)
            start += len(draws)
        places = torch.cat(order).argsort(stable=True)
        return torch.cat(outputs)[places].transpose(1, 2), torch.cat(members)[places]

    def _of(
        self, engine: Engine, draws: Draws, rows: Tensor, out_of_range: Tensor, apart: bool
    ) -> tuple[Tensor, Tensor]:
        """Return outputs of every row and draw, ``[S, B, P]``, with the edge's noise of rows out of range, and members.

        Beyond the training range the noise is the one at its nearest edge; the draws carry the further uncertainty.
        Further than `FAR` function values are computed in double precision. The edges go through the network with the
        rows, which takes little longer than the rows alone, or ``apart``.
        """
        if len(out_of_range) == 0:
            return engine.forward(draws, rows), draws.members
        means, batch = self.likelihood.means, len(rows)
        nearest, edge = rows[out_of_range].clamp(*self.training_range), None
        if self.likelihood.outputs == means or not self.edge_noise:  # or the noise is the same for all rows
            outputs = engine.forward(draws, rows)
        elif apart:
            outputs, edge = engine.forward(draws, rows), engine.forward(draws, nearest)
        else:
            every = engine.forward(draws, torch.cat((rows, nearest)))
            outputs, edge = every[:, :batch], every[:, batch:]
        with torch.inference_mode():  # as in `forward`, whose outputs are changed in place
            far = outputs[:, out_of_range]
            furthest = ((rows[out_of_range] - nearest).abs() > FAR).any(dim=1)
            if not apart and bool(furthest.any()):
                far[:, furthest] = forward_in_double(draws, rows[out_of_range[furthest]])
            if edge is not None:
                far = self.likelihood.with_scatter_of(far, edge)
            outputs[:, out_of_range] = far
        return outputs, draws.members
