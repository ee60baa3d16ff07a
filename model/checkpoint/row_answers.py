"""Encoded rows under draws: their outputs of the network, and what follows from these.

The answer for a row with missing cells is the average over what they may have been. Draw k is computed with copy
``k mod R`` of the row (`model.encoding.imputation`). So the spread over draws includes what the cell would have told,
and the row costs no more than a complete one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from murho.model.predictive.plans import PredictionPlan
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.torch_engine import forward_in_double

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.distributions.classes import ClassPredictive
    from murho.model.distributions.predictive import Predictive
    from murho.model.encoding.encoder import Encoded
    from murho.model.predictive.draws import Draws
    from murho.model.predictive.plans import AnyPlan, AnyTargetModel, Engine

__all__ = ["DrawnRows", "NetworkOutputs", "mostly_imputed"]


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """B rows under S draws, or under the mu-only networks.

    Attributes:
        outputs: Outputs of the network, ``[S, B, P]``, standardised.
        members: Member of each draw, ``[S]``.
        widening: Whether calibration may only widen the bands of each row, ``[B]``: rows unlike the training rows, and
            those whose spread is mostly that of imputed cells.
        target: Maps the outputs to the distribution of the target.
        engine: Computes answers.
    """

    outputs: Tensor
    members: Tensor
    widening: Tensor
    target: AnyTargetModel
    engine: Engine

    def of_rows(self, rows: Tensor) -> DrawnRows:
        """Some of the rows, by their indices; copied."""
        return replace(self, outputs=self.outputs[:, rows], widening=self.widening[rows])

    def of_draws(self, draws: slice) -> DrawnRows:
        """The rows under some of the draws, as views."""
        return replace(self, outputs=self.outputs[draws], members=self.members[draws])

    def predictive(self) -> Predictive | ClassPredictive:
        """The raw predictive of each row; computed by PyTorch, and so the same to the bit with every engine."""
        return self.target.predictive(self.outputs, self.members)

    def answer(self, plan: AnyPlan) -> dict[str, NDArray[Any]]:
        """The numbers that a plan requests, without Monte Carlo errors; see `Engine.answer`."""
        return self.engine.answer(plan, self.outputs, self.members, self.widening)

    def observation(
        self, levels: Sequence[float], calibration: ConformalMap | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """The answer for an observation, in the target's unit, by the names of `Prediction`.

        Args:
            levels: K percentile levels, strictly between 0 and 100.
            calibration: Calibrates the spread and the percentiles; None: they are raw.
        """
        options = PredictOptions(samples=len(self.members), percentiles=tuple(levels))
        return self.answer(PredictionPlan.of(options, calibration, self.outputs.device))


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
        limits: Least and largest function value of a row beyond it, standardised; None: there are no limits.
        numbers: Whether the target is a number, not a class.
    """

    likelihood: Likelihood
    target: AnyTargetModel
    training_range: Tensor
    limits: tuple[float, float] | None
    numbers: bool

    def drawn(
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
        rows, unlike = torch.from_numpy(encoded.inputs).to(device), torch.from_numpy(encoded.unlike).to(device)
        if rows.dim() == 2:
            beyond = torch.from_numpy(np.flatnonzero(encoded.beyond)).to(device)
            pairs = [(self._of(engine, draws, rows, beyond, mu_only), draws.members) for draws in parts]
            outputs, members = (pair[0] if len(pairs) == 1 else torch.cat(pair) for pair in zip(*pairs, strict=True))
            return DrawnRows(outputs, members, unlike, self.target, engine)
        where = [torch.from_numpy(np.flatnonzero(of_copy)).to(device) for of_copy in encoded.beyond]
        outputs, members = self._of_copies(engine, parts, rows, where, mu_only)
        drawn = DrawnRows(outputs, members, unlike, self.target, engine)
        if mu_only or not (self.numbers and calibrated):
            return drawn
        return replace(drawn, widening=unlike | mostly_imputed(cast("Predictive", drawn.predictive()), len(rows)))

    def _of_copies(
        self, engine: Engine, parts: Iterable[Draws], rows: Tensor, where: Sequence[Tensor], mu_only: bool
    ) -> tuple[Tensor, Tensor]:
        """Outputs of imputed rows, and the member of each draw, see `drawn`."""
        copies, start = len(rows), 0
        outputs, members, order = [], [], []
        for draws in parts:
            for copy in range(copies):
                first, step = (0, 1) if mu_only else ((copy - start) % copies, copies)
                which = torch.arange(len(draws), device=rows.device)[first::step]
                if len(which):
                    chosen = draws.some(which)
                    outputs.append(self._of(engine, chosen, rows[copy], where[copy], mu_only).transpose(1, 2))
                    members.append(chosen.members)
                    order.append(which + start)
            start += len(draws)
        places = torch.cat(order).argsort(stable=True)
        return torch.cat(outputs)[places].transpose(1, 2), torch.cat(members)[places]

    def _of(self, engine: Engine, draws: Draws, rows: Tensor, beyond: Tensor, apart: bool) -> Tensor:
        """Outputs of every row under every draw, ``[S, B, P]``, with the edge's noise of the rows ``beyond``.

        Beyond the training range the noise is the one at its nearest edge; the draws carry the further uncertainty.
        Function values stay within `ModelSpec.function_limits`; further than `FAR` they are computed in double
        precision. The edges go through the network with the rows, which takes little longer than the rows alone, or
        ``apart``.
        """
        if len(beyond) == 0:
            return engine.forward(draws, rows)
        means, batch = self.likelihood.means, len(rows)
        nearest, edge = rows[beyond].clamp(*self.training_range), None
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
