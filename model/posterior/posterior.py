"""A loaded checkpoint that answers requests: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Rows are computed in tiles, which
limits memory and does not change answers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.encoding.imputation import rows_to_impute
from murho.model.encoding.input_warnings import input_warnings, listed_features, listed_rows
from murho.model.encoding.training_range import Outside, TrainingRange
from murho.model.engines.draw_cache import KEPT_BYTES, DrawCache
from murho.model.engines.prediction import PredictOptions, Question
from murho.model.engines.prediction_plan import KEPT_PLANS
from murho.model.engines.selection import select_engine
from murho.model.engines.torch_engine import TorchEngine
from murho.model.networks.named_tensors import load_noise_tensors
from murho.model.posterior.answer_cost import COMPILED, TORCH, CostModel
from murho.model.posterior.checkpoint import name_and_version, read_stored
from murho.model.posterior.drawn_rows import DrawnRows
from murho.model.posterior.imputed_rows import in_pieces, mostly_imputed, with_rows_in_place
from murho.model.posterior.network_outputs import NetworkOutputs, Tile
from murho.model.posterior.questions import groups_of, in_one, questions_about, split, validate_questions
from murho.model.runtime.threads import threads_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns, UnfamiliarValue
    from murho.model.engines.target_models import AnyPlan, AnyPrediction
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["Posterior"]

TILE_VALUES = 2**19
"""Outputs in a tile: 4 MiB of float64, and a few temporaries of the same size."""
ROWS_OF_NEW_DRAWS = 8
"""Rows whose forward pass takes about as long as making the draws."""


class Posterior:
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: only one thread may compute, as in the service.

    Attributes:
        engine: Computes the answers; picked once.
        tile_values: Outputs in a tile. Answers do not depend on it.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, Tensor],
        *,
        name: str = "unsaved",
        version: str = "0",
        device: str = "cpu",
        draws_bytes: int = KEPT_BYTES,
        engine: str = "auto",
    ) -> None:
        """Build the posterior from the parts of a checkpoint; `load` reads them from disk.

        Args:
            spec: The specification of the checkpoint.
            tensors: Checked tensors by name, on the CPU.
            name: Name of the checkpoint.
            version: Its version.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            draws_bytes: Memory for the cache of draws, `model.engines.draw_cache`.
            engine: One of `model.engines.selection.ENGINES`.
        """
        self.name, self.version, self.spec = name, version, spec
        self.tile_values = TILE_VALUES
        self.device = torch.device(device)
        self.architecture, self.schema, self.encoder = spec.architecture, spec.schema, spec.encoder
        self.transform, self.location, self.scale = (
            spec.target.transform,
            spec.target.location,
            spec.target.scale,
        )
        self.seed, self.calibration = spec.default_seed, spec.calibration
        self._reach = TrainingRange.of(spec.encoder, spec.beyond, self.device)
        self._listed_features = listed_features(spec.encoder)
        self._tensors = dict(tensors)
        shapes = spec.architecture.shapes()
        self._weights = sum(math.prod(shape[1:]) for name, shape in shapes.items() if name.endswith(".mu"))
        self.likelihood = spec.likelihood.make(spec.architecture.members)
        load_noise_tensors(self.likelihood, self._tensors)
        self.likelihood.requires_grad_(requires_grad=False).to(self.device)
        self._target = spec.target_model(self.likelihood, self.device)
        limits = None if spec.beyond is None else spec.beyond.limits(spec.target.forward)
        self._network = NetworkOutputs(self.likelihood, self._reach, limits)
        self._reference = TorchEngine(self._target)
        self.engine = select_engine(self._target, self.device, engine)
        self._plans: dict[PredictOptions, AnyPlan] = {}
        self._costs = CostModel(
            self._weights,
            sum(spec.architecture.hidden),
            self.likelihood.means,
            spec.architecture.members,
            TORCH if self.engine.name == TorchEngine.name else COMPILED,
        )
        self._draws = DrawCache(
            self._tensors,
            self.architecture,
            self.device,
            most_bytes=draws_bytes,
            compiled=self.engine.draw_weights,
        )

    @classmethod
    def load(cls, directory: Path, device: str = "cpu", *, draws_bytes: int = KEPT_BYTES, engine: str = "auto") -> Self:
        """Read a version from disk and check all of it.

        Args:
            directory: ``NAME/VERSION``, which give the posterior its name and version.
            device: The device to compute on: ``cpu``, ``cuda`` or ``cuda:1``.
            draws_bytes: Memory for the cache of draws, `model.engines.draw_cache`.
            engine: One of `model.engines.selection.ENGINES`.

        Raises:
            CheckpointError: Something is missing, damaged or of a newer format, or the answers are not those that the
                writer got; the message names it.
        """
        stored = read_stored(directory)
        name, version = name_and_version(directory)
        loaded = cls(
            stored.spec,
            stored.tensors,
            name=name,
            version=version,
            device=device,
            draws_bytes=draws_bytes,
            engine=engine,
        )
        stored.require_answers(loaded)
        return loaded

    @property
    def facts(self) -> dict[str, Any]:
        """The specification as JSON: schema, training, metrics of held-out rows and more."""
        return self.spec.to_json()

    def predict(self, columns: Columns, options: PredictOptions) -> Any:
        """Answer for any number of rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            options: Options of the request, already validated.

        Returns:
            One entry per row, in order: a `model.engines.prediction.Prediction` or, of a classifier, a
            `model.engines.class_prediction.ClassPrediction`.
        """
        rows = len(next(iter(columns.values())))
        return self.predict_questions(columns, (Question(slice(0, rows), options),))[0]

    def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> list[Any]:
        """Answer several questions in one pass: the rows are encoded and go through the network together.

        Each answer is the one that `predict` gives for the rows of the question alone, up to rounding in float32. A
        row with cells to impute goes through a pass of its own kind, together with other such rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            questions: Their rows are consecutive and cover all B. They share ``samples`` and, after None is replaced by
                the checkpoint's, ``seed``; all other options may differ. Questions with equal options are answered
                together, wherever they stand.

        Returns:
            One prediction per question, in order.

        Raises:
            ValueError: The questions can't share a pass.
        """
        rows = len(next(iter(columns.values())))
        seed = validate_questions(questions, rows, self.seed)
        incomplete = rows_to_impute(self.schema, columns)
        listed = listed_rows(self._listed_features, columns, incomplete)
        if not len(incomplete):
            return self._predict(self.encoder.encode(columns), questions, seed, listed)
        parts: list[list[tuple[NDArray[np.intp], AnyPrediction]]] = [[] for _ in questions]
        for numbers, part, imputed in in_pieces(columns, incomplete, self.encoder.width):
            encoded = self.encoder.encode_copies(part) if imputed else self.encoder.encode(part)
            about = list(questions_about(questions, numbers))
            answers = self._predict(
                encoded, [question for _, _, question in about], seed, None if listed is None else listed[numbers]
            )
            for (place, own, _), answer in zip(about, answers, strict=True):
                parts[place].append((numbers[own], answer))
        return [with_rows_in_place(of_question) for of_question in parts]

    def predict_encoded(self, rows: NDArray[np.float32], options: PredictOptions) -> Any:
        """Answer as `predict` does, for encoded rows ``[B, D]``, or for R imputed copies of each, ``[R, B, D]``.

        The prediction's ``warned`` is then ``outside``: encoded rows do not tell which cells would be listed besides.
        """
        seed = self.seed if options.seed is None else options.seed
        return self._predict(rows, (Question(slice(0, rows.shape[-2]), options),), seed, None)[0]

    @torch.inference_mode()
    def _predict(
        self, rows: NDArray[np.float32], questions: Sequence[Question], seed: int, listed: NDArray[np.bool_] | None
    ) -> list[AnyPrediction]:
        """Answer questions about encoded rows, all complete or all copies; ``listed`` is that of `listed_rows`."""
        samples, batch = questions[0].options.samples, rows.shape[-2]
        groups = groups_of(questions)
        parts: list[list[AnyPrediction]] = [[] for _ in groups]
        rows_of_work = batch + ROWS_OF_NEW_DRAWS * (samples > 0 and self._draws.missing(samples, seed) > 0)
        with threads_for(rows_of_work * max(1, samples) * self._weights):
            per_tile = self._rows_per_tile(samples)
            for start in range(0, max(batch, 1), per_tile):
                stop = min(start + per_tile, batch)
                tile = self._tile(torch.from_numpy(rows[..., start:stop, :]).to(self.device), samples, seed)
                of_tile = None if listed is None else listed[start:stop]
                for group, answers in zip(groups, parts, strict=True):
                    within = group.within(start, stop)
                    if within is not None:
                        answers.append(self._answer(tile, group.options, seed, within, of_tile))
        predictions: dict[int, AnyPrediction] = {}
        for group, answers in zip(groups, parts, strict=True):
            predictions.update(split(group, in_one(answers)))
        return [predictions[place] for place in range(len(questions))]

    def _tile(self, rows: Tensor, samples: int, seed: int) -> Tile:
        """Encoded rows ``[B, D]`` or copies ``[R, B, D]``, and their outputs under S draws, or the mu-only networks."""
        beyond = self._reach.outside(rows)
        if samples:
            outputs, members = self._network.of(self.engine, self._draws.parts(samples, seed), rows, beyond)
        else:  # the mu-only mean is PyTorch's, to the bit
            outputs, members = self._network.of(self._reference, [self._draws.means], rows, beyond, every_copy=True)
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

    def drawn(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
            samples: S, at least 1.
            seed: Seed of the draws.
            members: The members to take all S draws from; by default draws go round all members.
        """
        if members is None:
            parts = self._draws.parts(samples, seed)
        else:
            rounds = -(-samples // len(members))
            draws = self._draws.first(rounds * self.architecture.members, seed)
            parts = iter((draws.of_members(members).first(samples),))
        beyond = self._reach.outside(rows)
        outputs, of_members = self._network.of(self._reference, parts, rows, beyond)
        tile = Tile(rows, beyond, self._reach.unlike(rows, beyond), outputs, of_members)
        widening = self._widening(Outside.of(tile.unlike), tile)
        return DrawnRows(outputs, of_members, widening, self._target, self.engine)

    def predictive(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> Any:
        """The raw predictive distribution of the target of each row; takes the arguments of `drawn`."""
        return self.drawn(rows, samples, seed, members=members).predictive()

    def outside(self, rows: Tensor) -> Tensor:
        """Mask of the rows that are unlike the training rows or have a category unseen in training, ``[B]``.

        In these rows calibration never narrows a band. In older checkpoints, which have no distance of rows, they are
        the rows beyond the training range of a feature; still older ones have no rule for this: no row is marked.

        Args:
            rows: Encoded rows, ``[B, D]``, or R imputed copies of each, ``[R, B, D]``, on the posterior's device.
        """
        return self._reach.unlike(rows, self._reach.outside(rows))

    @property
    def shared_cost(self) -> float:
        """The part of `cost` that questions in one pass share: n of them cost the sum minus n - 1 times this."""
        return self._costs.shared

    def cost(self, rows: int, options: PredictOptions, *, imputed: int = 0, far: int = 0) -> float:
        """What an answer takes to compute, in units of a row and draw of this posterior's plain answer.

        Any thread may ask. See `model.posterior.answer_cost`.

        Args:
            rows: B.
            options: Options of the request.
            imputed: Rows with cells to impute, of the B.
            far: Rows beyond the training range, of the B.
        """
        seed = self.seed if options.seed is None else options.seed
        new_draws = self._draws.missing(options.samples, seed) if options.samples else 0
        return self._costs.cost(rows, options, new_draws=new_draws, imputed=imputed, far=far)

    def input_warnings(
        self, columns: Columns, limit: int | None = None, *, among: NDArray[np.bool_] | None = None
    ) -> list[UnfamiliarValue]:
        """Warnings of values unlike the training rows, see `model.encoding.input_warnings.input_warnings`."""
        return input_warnings(self.encoder, columns, limit, among=among)

    def warm_up(self) -> None:
        """Make the default draws and run every path once, so that the first request is as fast as later ones."""
        for batch in (1, 64):
            rows = np.zeros((batch, self.architecture.inputs), dtype=np.float32)
            for options in self._target.options_of_warm_up():
                self.predict_encoded(rows, options)

    def _rows_per_tile(self, samples: int) -> int:
        most = max(1, self.tile_values // max(1, samples))
        if not self._draws.holds(samples):  # draws are made again for every tile
            return most
        return max(min(most, self._target.least_tile_rows), most // self.architecture.outputs)

    def _plan(self, options: PredictOptions) -> AnyPlan:
        """The plan of options, found without a look at the calibration, whose hash takes 8 us."""
        plan = self._plans.get(options)
        if plan is None:
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            plan = self._plans[options] = self._target.plan(options, self.calibration, self.device)
        return plan

    def _widening(self, outside: Outside, tile: Tile) -> Outside:
        """The rows in which calibration may only widen bands: those outside, and those of mostly imputed spread."""
        if tile.rows.dim() == 2 or self.schema.target.classes is not None:
            return outside
        imputed = mostly_imputed(self._target.predictive(tile.outputs, tile.members), len(tile.rows))
        return Outside.of(outside.mask | imputed)

    def _errors(
        self, tile: Tile, answer: Mapping[str, NDArray[Any]], options: PredictOptions, seed: int, *, calibrated: bool
    ) -> Any:
        """Monte Carlo standard errors of the answer for the rows of a tile; None without draws."""
        if options.samples == 0:
            return None
        parts = self._draws.image_parts(options.samples, seed)
        images = self._network.of(self.engine, parts, tile.rows, tile.beyond)
        drawn, mirrored = (self._target.predictive(*part) for part in ((tile.outputs, tile.members), images))
        return self._target.errors(drawn, mirrored, answer, options, calibrated=calibrated)
