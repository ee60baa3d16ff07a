"""Makes draws of the weights, ``w = mu + softplus(rho) epsilon`` (Blundell et al. 2015, section 3.2).

The random numbers come from a counter-based generator (`model.engines.philox_normals`), at the counters of draw k and
of the earlier draws that k is coupled to (`model.engines.coupled_normals`). Compiled code and NumPy make the same draws
to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from murho.model.engines.coupled_normals import BLOCK, coupled_normals
from murho.model.engines.draws import ONE, Draws, units_of_one
from murho.model.engines.philox_normals import normal_table
from murho.model.runtime.threads import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from murho.model.networks.bayesian_network import Architecture

__all__ = ["DrawMaker", "make_draws"]

ALIGNED = 16
"""Layers begin at a multiple of this many numbers: a line of the processor's cache."""


class DrawMaker:
    """Makes the draws of one posterior for one device."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        architecture: Architecture,
        device: torch.device | None = None,
        compiled: Callable[..., None] | None = None,
    ) -> None:
        """Prepare mu and sigma.

        Args:
            tensors: mu and rho by the names of `Architecture.shapes`, on the CPU.
            architecture: The network's sizes.
            device: The device that draws are copied to.
            compiled: `model.engines.compiled.draw_kernel.draw_weights`; None: NumPy.
        """
        names = [name for name in architecture.shapes() if name.endswith(".mu")]
        self._shapes = [tuple(tensors[name].shape[1:]) for name in names]
        self._mu = torch.cat([tensors[name].detach().flatten(1) for name in names], dim=1).numpy()
        rhos = [tensors[f"{name.removesuffix('.mu')}.rho"].detach().flatten(1) for name in names]
        self._sigma = functional.softplus(torch.cat(rhos, dim=1)).numpy()
        self._architecture, self._device, self._compiled = architecture, device, compiled

    def make(self, seed: int, samples: int, start: int = 0) -> Draws:
        """Make draws ``start`` to ``start + samples - 1``.

        Args:
            seed: Seed of the draws.
            samples: S, at least 1.
            start: Number of the first draw, a multiple of `model.engines.coupled_normals.BLOCK`.
        """
        members = torch.arange(start, start + samples) % self._architecture.members
        draws = (self._by_numpy if self._compiled is None else self._by_compiled)(seed, samples, start, members)
        if self._device is None or self._device.type == "cpu":
            return draws
        layers = tuple(layer.to(self._device) for layer in draws.layers)
        return Draws(layers, members.to(self._device), draws.activation, draws.skip)

    def _by_numpy(self, seed: int, samples: int, start: int, members: Tensor) -> Draws:
        weights = coupled_normals(seed, samples, self._architecture.members, self._mu.shape[1], start=start)
        for row, member in zip(weights, members.tolist(), strict=True):  # row by row: a draw stays in the CPU's cache
            row *= self._sigma[member]
            row += self._mu[member]
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = torch.split(torch.from_numpy(weights), sizes, dim=1)
        drawn = [part.reshape(samples, *shape) for shape, part in zip(self._shapes, parts, strict=True)]
        activation, skip = self._architecture.activation, self._architecture.skip
        return Draws.of(drawn[0::2], drawn[1::2], members, activation=activation, skip=skip)

    def _by_compiled(self, seed: int, samples: int, start: int, members: Tensor) -> Draws:
        if start % BLOCK:
            raise ValueError(f"draws start at a multiple of {BLOCK}, not at {start}")
        fill, layout = self._compiled, []
        carried = units_of_one(len(self._shapes) // 2, self._architecture.skip)
        at = into = 0
        for index, (inputs, outputs) in enumerate(self._shapes[0::2]):
            units, inputs = outputs + (index < carried), inputs + 1
            # As in `Draws.of`: the inputs are the outer dimension of the first layer.
            steps = (inputs * units, inputs, 1) if index else (units, 1, samples * units)
            layout.append((at, inputs, outputs, into, *steps))
            at, into = at + inputs * outputs, into + -(-samples * inputs * units // ALIGNED) * ALIGNED
        numbers = np.empty(into, dtype=np.float32)
        arrays = seed, start, self._mu, self._sigma, normal_table(), np.array(layout, dtype=np.int64), numbers

        def fill_blocks(blocks: slice) -> None:
            if fill is not None:
                fill(*arrays, BLOCK * blocks.start, min(BLOCK * blocks.stop, samples))

        in_parts(-(-samples // BLOCK), 1, fill_blocks)
        layers = []
        whole = torch.from_numpy(numbers)
        for index, (_, inputs, outputs, place, *strides) in enumerate(layout):
            units = outputs + (index < carried)
            layer = whole.as_strided((samples, units, inputs), strides, place)
            if index < carried:
                layer[:, outputs] = 0.0
                layer[:, outputs, inputs - 1] = ONE[self._architecture.activation]
            layers.append(layer)
        return Draws(tuple(layers), members, self._architecture.activation, self._architecture.skip)


def make_draws(
    tensors: Mapping[str, Tensor], architecture: Architecture, *, seed: int, samples: int, start: int = 0
) -> Draws:
    """Make draws once; takes the arguments of `DrawMaker` and `DrawMaker.make`."""
    return DrawMaker(tensors, architecture).make(seed, samples, start)
