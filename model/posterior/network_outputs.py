"""Outputs of the network for rows under draws, with the rule for rows beyond the training range and imputed copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from murho.model.encoding.training_range import Outside
from murho.model.engines.forward import forward_in_double
from murho.model.posterior.imputed_rows import copies_of_draws

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.encoding.training_range import TrainingRange
    from murho.model.engines.draws import Draws
    from murho.model.engines.engine import Engine
    from murho.model.likelihoods.likelihood import Likelihood

__all__ = ["NetworkOutputs", "Tile"]

FAR = 4.0
"""How far beyond the training range, in an encoded feature, single precision becomes too coarse: near 1,000 it rounds a
logit by up to 3e-5, and so a probability by this part of it, in one batch up and in another down."""


@dataclass(frozen=True, slots=True)
class NetworkOutputs:
    """Computes the outputs of a posterior's network.

    Attributes:
        likelihood: The observation model, which tells the outputs for means from those for noise.
        reach: The range of the training rows.
        limits: Least and largest function value of a row beyond it, standardised; None: there are no limits.
    """

    likelihood: Likelihood
    reach: TrainingRange
    limits: tuple[float, float] | None

    def of(
        self, engine: Engine, parts: Iterable[Draws], rows: Tensor, beyond: Tensor, *, mu_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Outputs of every row under the draws of all parts, and the member of each draw, ``[S]``.

        Args:
            engine: Computes the outputs.
            parts: Consecutive draws.
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``.
            beyond: Whether they lie outside the training range, ``[B]`` or ``[R, B]``.
            mu_only: Whether the draws are the means of the weights. Each then uses all copies of a row, and counts as R
                draws; otherwise draw k uses copy ``k mod R``. And no other rows share their pass through the network,
                so function values are those of `engine.forward` to the bit.

        Returns:
            ``[S, B, P]`` and ``[S]``.
        """
        if rows.dim() == 2:
            outside = Outside.of(beyond)
            outputs, members = zip(
                *((self._of(engine, draws, rows, outside, mu_only), draws.members) for draws in parts), strict=True
            )
            return _together(outputs), _together(members)
        where = [Outside.of(of_copy) for of_copy in beyond]

        def of_copy(draws: Draws, copy: int) -> Tensor:
            return self._of(engine, draws, rows[copy], where[copy], mu_only)

        return copies_of_draws(parts, len(rows), of_copy, every_copy=mu_only)

    def _of(self, engine: Engine, draws: Draws, rows: Tensor, outside: Outside, apart: bool) -> Tensor:
        """Outputs of every row under every draw, ``[S, B, P]``, with the edge's noise beyond the training rows.

        Beyond the training range the noise is the one at its nearest edge; the draws carry the further uncertainty.
        Function values stay within the limits of the checkpoint's rule (`BeyondRule.limits`); further than `FAR` they
        are computed in double precision. The edges go through the network with the rows, which takes little longer
        than the rows alone, or ``apart``.
        """
        if len(outside) == 0:
            return engine.forward(draws, rows)
        beyond, means, batch = outside.rows, self.likelihood.means, len(rows)
        nearest, edge = self.reach.nearest(rows[beyond]), None
        if self.likelihood.outputs == means:  # the noise is the same for all rows
            outputs = engine.forward(draws, rows)
        elif apart:
            outputs, edge = engine.forward(draws, rows), engine.forward(draws, nearest)
        else:
            every = engine.forward(draws, torch.cat((rows, nearest)))
            outputs, edge = every[:, :batch], every[:, batch:]
        with torch.inference_mode():  # as in `forward`, whose outputs are changed in place
            far = outputs[:, beyond]
            furthest = ((rows[beyond] - nearest).abs() > FAR).any(dim=1)
            if not apart and bool(furthest.any()):
                far[:, furthest] = forward_in_double(draws, rows[beyond[furthest]])
            if edge is not None:
                far = self.likelihood.with_scatter_of(far, edge)
            if self.limits is not None:
                far[..., :means] = far[..., :means].clamp(*self.limits)
            outputs[:, beyond] = far
        return outputs


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows that went through the network together.

    Attributes:
        rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``.
        beyond: Whether they lie outside the training range, ``[B]`` or ``[R, B]``.
        unlike: Whether each row is unlike the training rows, ``[B]``.
        outputs: ``[S, B, P]``.
        members: Member of each draw, ``[S]``.
    """

    rows: Tensor
    beyond: Tensor
    unlike: Tensor
    outputs: Tensor
    members: Tensor

    def part(self, within: slice | NDArray[np.intp]) -> Tile:
        """Some of the rows: views for a slice, copies for numbers of rows."""
        if not isinstance(within, slice):
            which: slice | Tensor = torch.from_numpy(within).to(self.unlike.device)
        elif within.start == 0 and within.stop == len(self.unlike):
            return self
        else:
            which = within
        return Tile(
            self.rows[..., which, :],
            self.beyond[..., which],
            self.unlike[which],
            self.outputs[:, which],
            self.members,
        )


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))
