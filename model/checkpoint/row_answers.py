"""Answers for encoded rows: they go through the network in tiles, and each question gets its prediction.

Tiles limit memory and do not change answers.

Answers for rows with missing cells: draws over imputed copies of the rows, and answers put back in order.

The answer is the average over what a missing cell may have been. Draw k is computed with copy ``k mod R`` of the row
(`model.encoding.imputation`). So the spread over draws includes what the cell would have told, and the row costs no
more than a complete one.
"""

from __future__ import annotations

import copy as copying
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.bbb.network import load_tensors, noise_tensors
from murho.model.checkpoint.questions import groups_of, in_one, split
from murho.model.predictive.compiled_engine import select_engine
from murho.model.predictive.draws import DrawCache
from murho.model.predictive.plans import KEPT_PLANS, PredictionPlan
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.torch_engine import TorchEngine, forward_in_double
from murho.model.runtime import threads_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.distributions.predictive import Predictive
    from murho.model.encoding.encoder import Encoded
    from murho.model.predictive.draw_room import DrawRoom
    from murho.model.predictive.draws import Draws
    from murho.model.predictive.engine import Engine
    from murho.model.predictive.prediction import Question
    from murho.model.predictive.target_models import AnyPlan, AnyPrediction, AnyTargetModel

__all__ = [
    "DrawnRows",
    "NetworkOutputs",
    "RowAnswers",
    "Tile",
    "copies_of_draws",
    "mostly_imputed",
    "with_rows_in_place",
]


def copies_of_draws(
    parts: Iterable[Draws], copies: int, outputs_of: Callable[[Draws, int], Tensor], *, every_copy: bool
) -> tuple[Tensor, Tensor]:
    """Compute the outputs of imputed rows, draw by draw.

    Args:
        parts: Consecutive draws, S in all.
        copies: R.
        outputs_of: Gives the outputs of copy r of the rows under draws, ``[draws, B, P]``.
        every_copy: Whether each draw uses all copies; otherwise draw k uses copy ``k mod R``.

    Returns:
        Outputs, ``[S, B, P]``, and the member of each, ``[S]``; with ``every_copy`` R times as many.
    """
    outputs, members = [], []
    start = 0
    for draws in parts:
        if every_copy:
            outputs += [outputs_of(draws, copy) for copy in range(copies)]
            members += [draws.members] * copies
            continue
        numbers = torch.arange(start, start + len(draws), device=draws.members.device) % copies
        joined: Tensor | None = None
        for copy in numbers[:copies].tolist():
            chosen = numbers == copy
            part = outputs_of(draws.where(chosen), copy)
            if joined is None:
                joined = part.new_empty((len(draws), *part.shape[1:]))
            with torch.inference_mode():
                joined[chosen] = part
        if joined is not None:
            outputs.append(joined)
            members.append(draws.members)
        start += len(draws)
    return torch.cat(outputs), torch.cat(members)


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
    of_copy = torch.arange(len(means), device=means.device) % copies
    counts = torch.bincount(of_copy, minlength=copies).to(means).unsqueeze(1)
    empty = means.new_zeros((copies, means.shape[1]))
    centres = empty.index_add(0, of_copy, means) / counts
    within = empty.index_add(0, of_copy, (means - centres[of_copy]).square()) / (counts - 1.0)
    between = centres.var(dim=0) - (within / counts).mean(dim=0)
    _, epistemic, aleatoric = predictive.moments
    return between > 0.5 * (epistemic.square() + aleatoric.square())


def with_rows_in_place(parts: Sequence[tuple[NDArray[np.intp], AnyPrediction]]) -> AnyPrediction:
    """Join the predictions of groups of rows in the order of the rows' numbers.

    Args:
        parts: Numbers of rows, and their prediction.
    """
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return in_one([prediction for _, prediction in parts], order)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """B rows under S draws.

    Attributes:
        outputs: Outputs of the network, ``[S, B, P]``, standardised; computed by PyTorch, whatever the engine.
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

    def predictive(self) -> Any:
        """The raw predictive of each row; computed by PyTorch, and so the same to the bit with every engine."""
        return self.target.predictive(self.outputs, self.members)

    def percentiles(self, levels: Sequence[float], calibration: ConformalMap | None = None) -> NDArray[np.float64]:
        """Percentiles of an observation, ``[B, K]``, as in `answer`."""
        return self.answer(levels, calibration)["percentiles"]

    def answer(
        self, levels: Sequence[float], calibration: ConformalMap | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """The answer for an observation, in the target's unit, by the names of `Prediction`.

        Args:
            levels: K percentile levels, strictly between 0 and 100.
            calibration: Calibrates the spread and the percentiles; None: they are raw.
        """
        options = PredictOptions(samples=len(self.members), percentiles=tuple(levels))
        plan = PredictionPlan.of(options, calibration, self.outputs.device)
        return self.engine.answer(plan, self.outputs, self.members, self.widening)


FAR = 4.0
"""How far beyond the training range, in an encoded feature, single precision becomes too coarse: near 1,000 it rounds a
logit by up to 3e-5, and so a probability by this part of it, in one batch up and in another down."""


@dataclass(frozen=True, slots=True)
class NetworkOutputs:
    """Computes the outputs of a posterior's network.

    Attributes:
        likelihood: The observation model, which tells the outputs for means from those for noise.
        training_range: Smallest and largest value of each encoded column over the training rows, ``[2, D]``.
        limits: Least and largest function value of a row beyond it, standardised; None: there are no limits.
    """

    likelihood: Likelihood
    training_range: Tensor
    limits: tuple[float, float] | None

    def of(
        self, engine: Engine, parts: Iterable[Draws], encoded: Encoded, *, mu_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Outputs of every row under the draws of all parts, and the member of each draw, ``[S]``.

        Args:
            engine: Computes the outputs.
            parts: Consecutive draws.
            encoded: The rows.
            mu_only: Whether the draws are the means of the weights. Each then uses all copies of a row, and counts as R
                draws; otherwise draw k uses copy ``k mod R``. And no other rows share their pass through the network,
                so function values are those of `engine.forward` to the bit.

        Returns:
            ``[S, B, P]`` and ``[S]``.
        """
        device = self.training_range.device
        rows = torch.from_numpy(encoded.inputs).to(device)
        if rows.dim() == 2:
            beyond = torch.from_numpy(np.flatnonzero(encoded.beyond)).to(device)
            outputs, members = zip(
                *((self._of(engine, draws, rows, beyond, mu_only), draws.members) for draws in parts), strict=True
            )
            return _together(outputs), _together(members)
        where = [torch.from_numpy(np.flatnonzero(of_copy)).to(device) for of_copy in encoded.beyond]

        def of_copy(draws: Draws, copy: int) -> Tensor:
            return self._of(engine, draws, rows[copy], where[copy], mu_only)

        return copies_of_draws(parts, len(rows), of_copy, every_copy=mu_only)

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


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows that went through the network together.

    Attributes:
        encoded: The rows.
        outputs: ``[S, B, P]``.
        members: Member of each draw, ``[S]``.
    """

    encoded: Encoded
    outputs: Tensor
    members: Tensor

    def part(self, within: slice | NDArray[np.intp]) -> Tile:
        """Some of the rows: views for a slice, copies for numbers of rows."""
        if isinstance(within, slice) and within == slice(0, len(self.encoded)):
            return self
        which = within if isinstance(within, slice) else torch.from_numpy(within).to(self.outputs.device)
        return Tile(self.encoded[within], self.outputs[:, which], self.members)


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


TILE_VALUES = 2**19
"""Outputs in a tile: 4 MiB of float64, and a few temporaries of the same size."""
ROWS_OF_NEW_DRAWS = 8
"""Rows whose forward pass takes about as long as making the draws."""


class RowAnswers:
    """Answers of a checkpoint for rows that are encoded already, on one device.

    Not thread-safe: only one thread may compute.

    Attributes:
        engine: Computes the answers; picked once.
        tile_values: Outputs in a tile. Answers do not depend on it.
        likelihood: The observation model, with its learned noise.
        target: Maps outputs of the network to answers in the target's unit.
        draws: The draws of the weights that are kept.
        weights: Weights of the network, of one member.
    """

    def __init__(
        self, spec: ModelSpec, tensors: Mapping[str, Tensor], *, device: str, room: DrawRoom | None, engine: str
    ) -> None:
        """Take the arguments of `model.checkpoint.posterior.Posterior`."""
        self.tile_values = TILE_VALUES
        self._device = torch.device(device)
        architecture = spec.architecture
        self._members, self._outputs = architecture.members, architecture.outputs
        self._classes, self._calibration = spec.schema.target.classes is not None, spec.calibration
        self.weights = sum(
            math.prod(shape[1:]) for name, shape in architecture.shapes().items() if name.endswith(".mu")
        )
        self.likelihood = spec.likelihood.make(architecture.members)
        load_tensors(noise_tensors(self.likelihood), tensors)
        self.likelihood.requires_grad_(requires_grad=False).to(self._device)
        self.target = spec.target_model(self.likelihood, self._device)
        limits = spec.function_limits()
        training_range = torch.from_numpy(spec.encoder.training_range).to(self._device)
        self._network = NetworkOutputs(self.likelihood, training_range, limits)
        self._reference = TorchEngine(self.target)
        self.engine = select_engine(self.target, self._device, engine)
        self._plans: dict[PredictOptions, AnyPlan] = {}
        self.draws = DrawCache(tensors, architecture, self._device, room=room)

    def calibrated(self, spec: ModelSpec) -> Self:
        """The same answers with the calibration of another specification; draws and engine are shared."""
        other = copying.copy(self)
        other._calibration, other._plans = spec.calibration, {}
        return other

    @torch.inference_mode()
    def answer(self, encoded: Encoded, questions: Sequence[Question], seed: int) -> list[AnyPrediction]:
        """Answer questions about encoded rows, all complete or all copies.

        Args:
            encoded: The rows.
            questions: Questions about them that share ``samples`` (`model.checkpoint.questions.validate_questions`).
            seed: Seed of the draws.

        Returns:
            One prediction per question, in order.
        """
        samples, batch = questions[0].options.samples, len(encoded)
        groups = groups_of(questions)
        parts: list[list[AnyPrediction]] = [[] for _ in groups]
        rows_of_work = batch + ROWS_OF_NEW_DRAWS * (samples > 0 and self.draws.missing(samples, seed) > 0)
        with threads_for(rows_of_work * max(1, samples) * self.weights):
            per_tile = self._rows_per_tile(samples)
            for start in range(0, max(batch, 1), per_tile):
                stop = min(start + per_tile, batch)
                tile = self._tile(encoded[start:stop], samples, seed)
                for group, answers in zip(groups, parts, strict=True):
                    within = group.within(start, stop)
                    if within is not None:
                        answers.append(self._answer(tile, group.options, seed, within))
        predictions: dict[int, AnyPrediction] = {}
        for group, answers in zip(groups, parts, strict=True):
            predictions.update(split(group, in_one(answers)))
        return [predictions[place] for place in range(len(questions))]

    def drawn(self, encoded: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration.

        Args:
            encoded: The rows.
            samples: S, at least 1.
            seed: Seed of the draws.
            members: The members to take all S draws from; by default draws go round all members.
        """
        if members is None:
            parts = self.draws.parts(samples, seed)
        else:
            rounds = -(-samples // len(members))
            draws = self.draws.first(rounds * self._members, seed)
            parts = iter((draws.of_members(members).first(samples),))
        outputs, of_members = self._network.of(self._reference, parts, encoded)
        widening = self._widening(Tile(encoded, outputs, of_members))
        return DrawnRows(outputs, of_members, widening, self.target, self.engine)

    def _tile(self, encoded: Encoded, samples: int, seed: int) -> Tile:
        """Encoded rows, and their outputs under S draws, or the mu-only networks."""
        if samples:
            outputs, members = self._network.of(self.engine, self.draws.parts(samples, seed), encoded)
        else:  # the mu-only mean is PyTorch's, to the bit
            outputs, members = self._network.of(self._reference, [self.draws.means], encoded, mu_only=True)
        return Tile(encoded, outputs, members)

    def _answer(
        self, tile: Tile, options: PredictOptions, seed: int, within: slice | NDArray[np.intp]
    ) -> AnyPrediction:
        """The prediction for some rows of a tile."""
        plan, part = self._plan(options), tile.part(within)
        calibrated = plan.calibration is not None
        engine = self.engine if options.samples else self._reference
        answer = engine.answer(plan, part.outputs, part.members, self._widening(part))
        errors = self._errors(part, answer, options, seed, calibrated=calibrated) if options.mc_error else None
        return plan.prediction(
            answer,
            samples=options.samples,
            seed=seed,
            calibrated=calibrated,
            mc_error=errors,
            unlike=part.encoded.unlike,
            told=part.encoded.told,
        )

    def _rows_per_tile(self, samples: int) -> int:
        most = max(1, self.tile_values // max(1, samples))
        if not self.draws.holds(samples):  # draws are made again for every tile
            return most
        return max(min(most, self.target.least_tile_rows), most // self._outputs)

    def _plan(self, options: PredictOptions) -> AnyPlan:
        """The plan of options, found without a look at the calibration, whose hash takes 8 us."""
        plan = self._plans.get(options)
        if plan is None:
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            plan = self._plans[options] = self.target.plan(options, self._calibration, self._device)
        return plan

    def _widening(self, tile: Tile) -> Tensor:
        """Whether calibration may only widen bands, ``[B]``: of unlike rows, and of those of mostly imputed spread."""
        unlike, inputs = torch.from_numpy(tile.encoded.unlike).to(self._device), tile.encoded.inputs
        if inputs.ndim == 2 or self._classes:
            return unlike
        return unlike | mostly_imputed(self.target.predictive(tile.outputs, tile.members), len(inputs))

    def _errors(
        self, tile: Tile, answer: Mapping[str, NDArray[Any]], options: PredictOptions, seed: int, *, calibrated: bool
    ) -> Any:
        """Monte Carlo standard errors of the answer for the rows of a tile; None without draws."""
        if options.samples == 0:
            return None
        parts = self.draws.image_parts(options.samples, seed)
        images = self._network.of(self.engine, parts, tile.encoded)
        drawn, mirrored = (self.target.predictive(*part) for part in ((tile.outputs, tile.members), images))
        return self.target.errors(drawn, mirrored, answer, options, calibrated=calibrated)
