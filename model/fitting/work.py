"""The work of a fit in reference seconds: a function of shapes alone, so that a budget cuts every run at the same step.

One reference second is about one second of one thread of the machine on which the rates below were measured (a server
processor of 2023, busy with other work). A budget in reference seconds therefore ends a fit after the same number of
steps on any machine, however fast or busy; only the time by the clock differs.

The rates were fitted to the processor time of 40 fits: 1 to 20 members, 25 to 500 rows in a minibatch, 3 to 310 inputs,
no to four hidden layers, up to 512 wide. Steps are foretold within 10 % (root mean square; 25 % at worst),
validations within 20 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.fitting.cross_fit_rows import DRAWS

if TYPE_CHECKING:
    from murho.model.networks.bayesian_network import Architecture

__all__ = ["WorkModel"]


@dataclass(frozen=True, slots=True)
class _Rates:
    """Reference seconds of each kind of operation.

    Attributes:
        step: A step, whatever its size: calls of small kernels.
        layer: Each layer of a step, likewise.
        weight: Each weight of a step: its KL, gradient and update.
        product: Each product of a value and a weight, forwards and backwards, for mean and variance.
        element: Each value of a layer and row: its draw, activation and gradient.
        component: Each Gaussian in the CRPS of a row.
        forward: Share of a step's products and elements that a forward pass alone takes.
    """

    step: float
    layer: float
    weight: float
    product: float
    element: float
    component: float
    forward: float = 0.63


_PROCESSOR = _Rates(step=3.8e-4, layer=8.6e-5, weight=1.83e-8, product=1.22e-10, element=1.25e-8, component=2e-6)
_ACCELERATOR = _Rates(step=1e-3, layer=2e-4, weight=4e-10, product=1e-12, element=2e-10, component=5e-8)
"""On a GPU the calls of small kernels take the time. These rates are estimates, not measurements."""


class WorkModel:
    """The work of steps, validations and scores of one network."""

    def __init__(self, architecture: Architecture, device: str = "cpu") -> None:
        """Take the shapes.

        Args:
            architecture: Sizes of layers, and members.
            device: Kind of device: ``cpu``, or another, which counts as a GPU. A fit on a GPU differs from one on the
                CPU anyway.
        """
        self._rates = _PROCESSOR if device == "cpu" else _ACCELERATOR
        self._layers, self._members = len(architecture.layers), architecture.members
        self._products = sum(inputs * outputs for inputs, outputs in architecture.layers)
        self._elements = sum(outputs for _, outputs in architecture.layers)

    def step(self, rows: float, draws: int) -> float:
        """Reference seconds of an optimiser step.

        Args:
            rows: Rows of each member in the minibatch; the mean, if minibatches differ.
            draws: Draws per row, S.
        """
        rates, members = self._rates, self._members
        return (
            rates.step
            + rates.layer * self._layers
            + rates.weight * members * (self._products + self._elements)
            + self._passes(members * rows * draws)
        )

    def validation(self, judgements: int, draws: int) -> float:
        """Reference seconds of a validation.

        Args:
            judgements: Rows times the members that judge each.
            draws: Draws per judgement, S.
        """
        return self._rates.step + self._rates.forward * self._passes(judgements * draws)

    def score(self, rows: int, components: int) -> float:
        """Reference seconds of `model.fitting.cross_fit_rows.held_out_row_scores`.

        Args:
            rows: Rows to score; their judges share the draws.
            components: Gaussians per draw, K.
        """
        return self.validation(rows, DRAWS) + self._rates.component * rows * DRAWS * components

    def _passes(self, rows: float) -> float:
        """Products and elements of a number of rows, forwards and backwards."""
        return rows * (self._rates.product * self._products + self._rates.element * self._elements)
