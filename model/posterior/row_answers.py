"""Answers for encoded rows: they go through the network in tiles, and each question gets its prediction.

Tiles limit memory and do not change answers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from murho.model.encoding.training_range import Outside, TrainingRange
from murho.model.engines.draw_cache import DrawCache
from murho.model.engines.prediction_plan import KEPT_PLANS
from murho.model.engines.selection import select_engine
from murho.model.engines.torch_engine import TorchEngine
from murho.model.networks.named_tensors import load_noise_tensors
from murho.model.posterior.drawn_rows import DrawnRows
from murho.model.posterior.imputed_rows import mostly_imputed
from murho.model.posterior.network_outputs import NetworkOutputs, Tile
from murho.model.posterior.questions import groups_of, in_one, split
from murho.model.runtime.threads import threads_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.engines.draw_room import DrawRoom
    from murho.model.engines.prediction import PredictOptions, Question
    from murho.model.engines.target_models import AnyPlan, AnyPrediction
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["RowAnswers"]

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
        """Take the arguments of `model.posterior.posterior.Posterior`."""
        self.tile_values = TILE_VALUES
        self._device = torch.device(device)
        architecture = spec.architecture
        self._members, self._outputs = architecture.members, architecture.outputs
        self._classes, self._calibration = spec.schema.target.classes is not None, spec.calibration
        self._reach = TrainingRange.of(spec.encoder, self._device)
        self.weights = sum(
            math.prod(shape[1:]) for name, shape in architecture.shapes().items() if name.endswith(".mu")
        )
        self.likelihood = spec.likelihood.make(architecture.members)
        load_noise_tensors(self.likelihood, tensors)
        self.likelihood.requires_grad_(requires_grad=False).to(self._device)
        self.target = spec.target_model(self.likelihood, self._device)
        limits = spec.beyond.limits(spec.target.forward)
        self._network = NetworkOutputs(self.likelihood, self._reach, limits)
        self._reference = TorchEngine(self.target)
        self.engine = select_engine(self.target, self._device, engine)
        self._plans: dict[PredictOptions, AnyPlan] = {}
        self.draws = DrawCache(tensors, architecture, self._device, room=room, compiled=self.engine.draw_weights)

    @torch.inference_mode()
    def answer(
        self, rows: NDArray[np.float32], questions: Sequence[Question], seed: int, listed: NDArray[np.bool_] | None
    ) -> list[AnyPrediction]:
        """Answer questions about encoded rows, all complete or all copies.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``.
            questions: Questions about them that share ``samples`` (`model.posterior.questions.validate_questions`).
            seed: Seed of the draws.
            listed: Rows to warn about whatever their distance, ``[B]``, as
                `model.encoding.input_warnings.listed_rows` returns them.

        Returns:
            One prediction per question, in order.
        """
        samples, batch = questions[0].options.samples, rows.shape[-2]
        groups = groups_of(questions)
        parts: list[list[AnyPrediction]] = [[] for _ in groups]
        rows_of_work = batch + ROWS_OF_NEW_DRAWS * (samples > 0 and self.draws.missing(samples, seed) > 0)
        with threads_for(rows_of_work * max(1, samples) * self.weights):
            per_tile = self._rows_per_tile(samples)
            for start in range(0, max(batch, 1), per_tile):
                stop = min(start + per_tile, batch)
                tile = self._tile(torch.from_numpy(rows[..., start:stop, :]).to(self._device), samples, seed)
                of_tile = None if listed is None else listed[start:stop]
                for group, answers in zip(groups, parts, strict=True):
                    within = group.within(start, stop)
                    if within is not None:
                        answers.append(self._answer(tile, group.options, seed, within, of_tile))
        predictions: dict[int, AnyPrediction] = {}
        for group, answers in zip(groups, parts, strict=True):
            predictions.update(split(group, in_one(answers)))
        return [predictions[place] for place in range(len(questions))]

    def drawn(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
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
        beyond = self._reach.outside(rows)
        outputs, of_members = self._network.of(self._reference, parts, rows, beyond)
        tile = Tile(rows, beyond, self._reach.unlike(rows, beyond), outputs, of_members)
        widening = self._widening(Outside.of(tile.unlike), tile)
        return DrawnRows(outputs, of_members, widening, self.target, self.engine)

    def outside(self, rows: Tensor) -> Tensor:
        """Mask of the rows that are unlike the training rows or have a category unseen in training, ``[B]``.

        In these rows calibration never narrows a band. Without a distribution of the features they are the rows beyond
        the training range of a feature.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
        """
        return self._reach.unlike(rows, self._reach.outside(rows))

    def _tile(self, rows: Tensor, samples: int, seed: int) -> Tile:
        """Encoded rows ``[B, D]`` or copies ``[R, B, D]``, and their outputs under S draws, or the mu-only networks."""
        beyond = self._reach.outside(rows)
        if samples:
            outputs, members = self._network.of(self.engine, self.draws.parts(samples, seed), rows, beyond)
        else:  # the mu-only mean is PyTorch's, to the bit
            outputs, members = self._network.of(self._reference, [self.draws.means], rows, beyond, mu_only=True)
        return Tile(rows, beyond, self._reach.unlike(rows, beyond), outputs, members)

    def _answer(
        self,
        tile: Tile,
        options: PredictOptions,
        seed: int,
        within: slice | NDArray[np.intp],
        listed: NDArray[np.bool_] | None,
    ) -> AnyPrediction:
        """The prediction for some rows of a tile; ``listed`` is `listed_rows` of all its rows."""
        plan, part = self._plan(options), tile.part(within)
        outside, calibrated = Outside.of(part.unlike), plan.calibration is not None
        widening = self._widening(outside, part) if calibrated else outside
        engine = self.engine if options.samples else self._reference
        answer = engine.answer(plan, part.outputs, part.members, widening)
        mask = outside.mask.cpu().numpy()
        errors = self._errors(part, answer, options, seed, calibrated=calibrated) if options.mc_error else None
        return plan.prediction(
            answer,
            samples=options.samples,
            seed=seed,
            calibrated=calibrated,
            mc_error=errors,
            outside=mask,
            warned=mask if listed is None else mask | listed[within],
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

    def _widening(self, outside: Outside, tile: Tile) -> Outside:
        """The rows in which calibration may only widen bands: those outside, and those of mostly imputed spread."""
        if tile.rows.dim() == 2 or self._classes:
            return outside
        imputed = mostly_imputed(self.target.predictive(tile.outputs, tile.members), len(tile.rows))
        return Outside.of(outside.mask | imputed)

    def _errors(
        self, tile: Tile, answer: Mapping[str, NDArray[Any]], options: PredictOptions, seed: int, *, calibrated: bool
    ) -> Any:
        """Monte Carlo standard errors of the answer for the rows of a tile; None without draws."""
        if options.samples == 0:
            return None
        parts = self.draws.image_parts(options.samples, seed)
        images = self._network.of(self.engine, parts, tile.rows, tile.beyond)
        drawn, mirrored = (self.target.predictive(*part) for part in ((tile.outputs, tile.members), images))
        return self.target.errors(drawn, mirrored, answer, options, calibrated=calibrated)
