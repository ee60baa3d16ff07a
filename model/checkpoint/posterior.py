"""A loaded checkpoint that answers requests: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Rows go through the network in tiles,
which limit memory and do not change answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Self, cast

import numpy as np
import torch
from torch import Tensor

from murho.model.arrays import Doubles, Places
from murho.model.bbb.likelihood import ClassLikelihood, Likelihood, NumericLikelihood
from murho.model.bbb.network import load_tensors, noise_tensors
from murho.model.calibration.class_calibration import Calibration
from murho.model.checkpoint.checkpoint import FACTS_FILE, StoredCheckpoint, read_stored, write_checkpoint
from murho.model.checkpoint.proof import PROOF_SAMPLES, check_proof, require_finite, typical_rows
from murho.model.checkpoint.spec import ModelSpec
from murho.model.distributions.class_predictive import ClassPredictive, draws_with_mean
from murho.model.encoding.encoder import Encoded
from murho.model.encoding.imputation import IMPUTATIONS
from murho.model.errors import CheckpointError
from murho.model.predictive.answer_cost import AnswerCost
from murho.model.predictive.compiled_engine import select_engine
from murho.model.predictive.draw_cache import DrawCache
from murho.model.predictive.draws import BLOCK, Draws, PosteriorDraws
from murho.model.predictive.forward import NetworkOutputs, TorchEngine
from murho.model.predictive.plans import (
    KEPT_PLANS,
    AnyPlan,
    AnyTargetModel,
    ClassTargetModel,
    DrawnRows,
    Engine,
    TargetModel,
)
from murho.model.predictive.prediction import (
    AnyPrediction,
    ClassPrediction,
    MonteCarloError,
    PredictionT,
    PredictOptions,
    Question,
    in_one,
    rows_of,
)
from murho.model.runtime import threads_for
from murho.model.tables.schema import Columns, UnfamiliarValue, count_rows, select_rows

TILE_VALUES = 2**19
"""Outputs in a tile: 4 MiB of float64, and a few temporaries of the same size."""
TORCH_COST = 12.0
"""How much longer PyTorch takes than compiled code, for all after the network."""


class Posterior(Generic[PredictionT]):
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: only one thread may compute, as in the service.

    Attributes:
        tensors: mu, rho and noise parameters by name, on the CPU.
        likelihood: The observation model, with its learned noise.
        target: Maps outputs of the network to answers in the target's unit.
        engine: Computes the answers; picked once.
        draws: The draws of the weights that are kept.
        tile_values: Outputs in a tile. Answers do not depend on it.
        answer_cost: What answers cost.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, Tensor],
        *,
        name: str = "unsaved",
        version: str = "0",
        device: str = "cpu",
        cache: DrawCache | None = None,
        engine: str = "auto",
    ) -> None:
        """Build the posterior from the parts of a checkpoint; `load` reads them from disk.

        Args:
            spec: The specification of the checkpoint.
            tensors: Checked tensors by name, on the CPU.
            name: Name of the checkpoint.
            version: Its version.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            cache: Memory for its draws, which others may share; None: a cache of its own.
            engine: One of `model.predictive.compiled_engine.ENGINES`.
        """
        self.name, self.version, self.spec, self.tensors = name, version, spec, dict(tensors)
        self.device = torch.device(device)
        self.architecture, self.schema, self.encoder = spec.architecture, spec.schema, spec.encoder
        self.transform, self.location, self.scale = spec.target.transform, spec.target.location, spec.target.scale
        self.seed, self.calibration, self.tile_values = spec.default_seed, spec.calibration, TILE_VALUES
        self.likelihood = spec.likelihood.make(spec.architecture.members)
        load_tensors(noise_tensors(self.likelihood), tensors)
        self.likelihood.requires_grad_(requires_grad=False).to(self.device)
        self.target = _target_model(spec, self.likelihood, self.device)
        training_range = torch.from_numpy(spec.encoder.training_range).to(self.device)
        self._network = NetworkOutputs(self.likelihood, self.target, training_range, not spec.encoder.textbook)
        self._reference = TorchEngine()
        self.engine: Engine = select_engine(self.target, self.device, engine)
        self.draws = PosteriorDraws(self.tensors, spec.architecture, self.device, cache=cache)
        self._plan = self._plans_of(self.calibration)
        self._weights = sum(layer[0].numel() for layer in self.draws.means.layers)
        components = self.likelihood.means * (TORCH_COST if self.engine.name == TorchEngine.name else 1.0)
        self.answer_cost = AnswerCost(spec.architecture.members, self._weights, components, IMPUTATIONS)

    @classmethod
    def load(cls, directory: Path, device: str = "cpu", *, engine: str = "auto") -> Self:
        """Read a version from disk and check all of it.

        Args:
            directory: ``NAME/VERSION``, which give the posterior its name and version.
            device: The device to compute on: ``cpu``, ``cuda`` or ``cuda:1``.
            engine: One of `model.predictive.compiled_engine.ENGINES`.

        Raises:
            CheckpointError: See `of_stored`.
        """
        return cls.of_stored(read_stored(directory), device, engine=engine)

    @classmethod
    def of_stored(
        cls, stored: StoredCheckpoint, device: str = "cpu", *, cache: DrawCache | None = None, engine: str = "auto"
    ) -> Self:
        """Return the posterior of a version that was read; it gives the answers that the writer got.

        Args:
            stored: The version.
            device: See `load`.
            cache: Memory for its draws, which others may share; None: a cache of its own.
            engine: See `load`.

        Raises:
            CheckpointError: Something is missing, damaged or of a newer format, or the answers are not those that the
                writer got; the message names it.
        """
        loaded = cls(
            stored.spec,
            stored.tensors,
            name=stored.name,
            version=stored.version,
            device=device,
            cache=cache,
            engine=engine,
        )
        try:
            check_proof(loaded.typical_answers(), stored.proof)
        except CheckpointError as error:
            raise CheckpointError(f"{stored.address}/{FACTS_FILE}: {error}") from error
        return loaded

    def save(self, root: Path, name: str, *, extras: Mapping[str, bytes] | None = None) -> Path:
        """Write the next version of a checkpoint, all of it or nothing, with the proof of PyTorch's engine.

        See `model.checkpoint.checkpoint.write_checkpoint`.

        Raises:
            CheckpointError: The version could not be written, or no typical row gets a finite answer.
        """
        proof = type(self)(self.spec, self.tensors, engine="torch").typical_answers()
        require_finite(proof)
        return write_checkpoint(root, name, self.spec, self.tensors, proof, extras=extras)

    def typical_answers(self) -> dict[str, Doubles]:
        """Answers of `PROOF_SAMPLES` draws of the default seed for the B rows of `typical_rows`, by name.

        Returns:
            ``mean``, ``std`` ``[B]`` and ``percentiles`` ``[B, K]``, calibrated where the checkpoint is;
            ``without_draws`` ``[B]``, the mean of the mu-only network. Of classes ``probabilities``, ``epistemic_std``
            and ``without_draws``, the probabilities, ``[B, C]`` each.
        """
        columns = typical_rows(self.schema)
        with np.errstate(all="ignore"):  # what overflows is found in the answers
            drawn = self.predict(columns, PredictOptions(samples=PROOF_SAMPLES))
            means = self.predict(columns, PredictOptions(samples=0))
        classes = self.schema.target.classes
        first, *others = ("mean", "std", "percentiles") if classes is None else ("probabilities", "epistemic_std")
        answers = {name: getattr(drawn, name) for name in (first, *others)} | {"without_draws": getattr(means, first)}
        return {name: np.ascontiguousarray(answer, dtype=np.float64) for name, answer in answers.items()}

    def with_spec(self, spec: ModelSpec) -> Self:
        """Return the same posterior with another calibration and other facts; engine and draws are shared.

        Args:
            spec: The specification; all that the tensors and the engine depend on is as before.
        """
        other = copy(self)
        other.spec, other.calibration = spec, spec.calibration
        other._plan = other._plans_of(spec.calibration)
        return other

    def _plans_of(self, calibration: Calibration | None) -> Callable[[PredictOptions], AnyPlan]:
        """Return the prepared plans of options; those last used are kept."""
        target, device = self.target, self.device

        @lru_cache(KEPT_PLANS)
        def plan(options: PredictOptions) -> AnyPlan:
            return target.plan(options, calibration, device)

        return plan

    @property
    def facts(self) -> dict[str, Any]:
        """The specification as JSON: schema, training, metrics of held-out rows and more."""
        return self.spec.to_json()

    def predict(self, columns: Columns, options: PredictOptions) -> PredictionT:
        """Answer for any number of rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            options: Options of the request, already validated.

        Returns:
            One entry per row, in order: a `model.predictive.prediction.Prediction` or, of a classifier, a
            `model.predictive.prediction.ClassPrediction`: the caller knows which.
        """
        rows = count_rows(columns)
        return self.predict_questions(columns, (Question(slice(0, rows), options),))[0][0]

    def predict_questions(
        self, columns: Columns, questions: Sequence[Question]
    ) -> list[tuple[PredictionT, list[UnfamiliarValue]]]:
        """Answer several questions in one pass: the rows are encoded and go through the network together.

        Each answer is the one that `predict` gives for the rows of the question alone, up to rounding in float32. A
        row with cells to impute goes through a pass of its own kind, together with other such rows.

        Args:
            columns: Canonical columns of the schema's features, ``[B]`` each.
            questions: Their rows are consecutive and cover all B. They share ``samples`` and, after None is replaced by
                the checkpoint's, ``seed``; all other options may differ. Questions with equal options are answered
                together, wherever they stand.

        Returns:
            For each question, in order, the prediction and the first values unlike the training rows
            (`model.encoding.outliers.unfamiliar_values`); row 0 is the first one of the question.

        Raises:
            ValueError: The questions can't share a pass.
        """
        stops, most = np.array([(each.rows.stop, each.max_warnings) for each in questions], dtype=int).reshape(-1, 2).T
        found: list[list[UnfamiliarValue]] = [[] for _ in questions]

        def pieces() -> Iterator[tuple[Places, Encoded]]:
            for numbers, encoded in self.encoder.encode_pieces(columns):
                # The rows of all questions together: most of the time is the same for one row and for many.
                rows = np.flatnonzero(encoded.has_warnings)
                owners = np.searchsorted(stops, numbers[rows], side="right")
                few = np.arange(len(rows)) - np.searchsorted(owners, owners) < most[owners]
                rows, owners = rows[few], owners[few].tolist()
                if owners:
                    chosen = numbers[rows]
                    for value in self.encoder.unfamiliar_values(select_rows(columns, chosen), encoded, rows):
                        owner = owners[value.row]
                        row = int(chosen[value.row]) - questions[owner].rows.start
                        found[owner].append(UnfamiliarValue(row, value.feature, value.message))
                yield numbers, encoded

        answers = self._answer(pieces(), questions)
        for values in found:
            values.sort(key=attrgetter("row"))  # incomplete rows came last
        return [
            (answer, values[: question.max_warnings])
            for answer, values, question in zip(answers, found, questions, strict=True)
        ]

    def predict_encoded(self, encoded: Encoded, options: PredictOptions) -> PredictionT:
        """Answer as `predict` does, for encoded rows."""
        rows = np.arange(len(encoded))
        return self._answer([(rows, encoded)], (Question(slice(0, len(rows)), options),))[0]

    @torch.inference_mode()
    def _answer(
        self,
        pieces: Iterable[tuple[Places, Encoded]],
        questions: Sequence[Question],
    ) -> list[PredictionT]:
        """Answer questions about rows that are encoded in pieces, as `Encoder.encode_pieces` yields them."""
        kinds: dict[PredictOptions, int] = {}
        kind_of_row, shared = np.zeros(questions[-1].rows.stop if questions else 0, dtype=np.intp), set()
        stop, calibrated = 0, False
        for question in questions:
            options = question.options
            if question.rows.start != stop:
                raise ValueError("the rows of questions about one batch follow each other")
            stop, calibrated = question.rows.stop, calibrated or options.calibrated
            shared.add((options.samples, self.seed if options.seed is None else options.seed))
            kind_of_row[question.rows] = kinds.setdefault(options, len(kinds))
        if len(shared) != 1:
            raise ValueError("questions about one batch share samples and seed")
        ((samples, seed),) = shared
        parts: defaultdict[int, list[tuple[Places, PredictionT]]] = defaultdict(list)
        per_tile = self._rows_per_tile(samples)
        for numbers, encoded in pieces:
            with threads_for(len(numbers) * max(1, samples) * self._weights):
                for start in range(0, max(len(numbers), 1), per_tile):
                    tile, chosen = encoded, numbers
                    if len(numbers) > per_tile:
                        tile, chosen = encoded[start : start + per_tile], numbers[start : start + per_tile]
                    drawn = self._draw_rows(tile, samples, seed, calibrated=calibrated)
                    if len(kinds) == 1:
                        parts[0].append((chosen, self._prediction(drawn, tile, questions[0].options, seed)))
                        continue
                    for options, kind in kinds.items():
                        own = np.flatnonzero(kind_of_row[chosen] == kind)
                        if len(own):
                            of_kind = drawn.of_rows(torch.from_numpy(own).to(self.device))
                            parts[kind].append((chosen[own], self._prediction(of_kind, tile[own], options, seed)))
        whole = []
        for kind in range(len(kinds)):
            (_, answer), *further = parts[kind]
            if further:
                answer = in_one([part for _, part in parts[kind]], np.concatenate([own for own, _ in parts[kind]]))
            whole.append(answer)
        if len(questions) == len(kinds):
            return whole
        answers = []
        for question in questions:
            kind, rows = kinds[question.options], question.rows
            first, last = np.searchsorted(np.flatnonzero(kind_of_row == kind), (rows.start, rows.stop))
            answers.append(rows_of(whole[kind], slice(first, last)))
        return answers

    def draw_rows(
        self, encoded: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None
    ) -> DrawnRows:
        """Rows under draws, for evaluation and calibration; their outputs are PyTorch's, whatever the engine.

        Args:
            encoded: The rows.
            samples: S, at least 1.
            seed: Seed of the draws.
            members: The members to take all S draws from; by default draws go round all members.
        """
        parts: Iterable[Draws] = self.draws.parts(samples, seed)
        if members is not None:
            draws = self.draws.first(-(-samples // len(members)) * self.architecture.members, seed)
            chosen = torch.isin(draws.members, torch.tensor(members, device=self.device)).nonzero().squeeze(1)
            parts = [draws.some(chosen[:samples])]
        return replace(self._network.draw_rows(self._reference, parts, encoded), engine=self.engine)

    def _draw_rows(self, encoded: Encoded, samples: int, seed: int, *, calibrated: bool) -> DrawnRows:
        """Rows under S draws, or the mu-only networks."""
        if samples:
            return self._network.draw_rows(self.engine, self.draws.parts(samples, seed), encoded, calibrated=calibrated)
        return self._network.draw_rows(
            self._reference, [self.draws.means], encoded, mu_only=True
        )  # PyTorch's, to the bit

    def _prediction(self, drawn: DrawnRows, encoded: Encoded, options: PredictOptions, seed: int) -> PredictionT:
        """Return the answer for rows of a tile."""
        plan = self._plan(options)
        prediction = plan.prediction(
            drawn.answer(plan),
            samples=options.samples,
            seed=seed,
            calibrated=plan.calibration is not None,
            outlier=encoded.outlier,
            extrapolation=encoded.extrapolation,
            has_warnings=encoded.has_warnings,
        )
        if options.noise_moments:
            functions = prediction.draws
            if encoded.inputs.ndim == 3:
                functions = self._average_over_copies(encoded, options.samples, seed, prediction)
            prediction = replace(prediction, functions=functions)
        if options.mc_error and options.samples > 1:
            # Batch means: blocks of draws are independent, each with the coupling of all. Parts of one block are not,
            # and the errors of fewer draws than two blocks are rather too large.
            size = min(BLOCK, options.samples // 2)
            starts, plan = range(0, options.samples - size + 1, size), self._plan(replace(options, grid=()))
            batches = [drawn.of_draws(slice(start, start + size)).answer(plan) for start in starts]
            names = [part.name for each in prediction.answer_fields for part in each.parts]
            spreads = {name: np.std([batch[name] for batch in batches], axis=0, ddof=1) for name in names}
            share = (size / options.samples) ** 0.5
            errors = MonteCarloError(**{name: share * spread for name, spread in spreads.items()})
            prediction = replace(prediction, mc_error=errors)
        return cast("PredictionT", prediction)  # plans are of the target's kind

    def _average_over_copies(self, encoded: Encoded, samples: int, seed: int, prediction: AnyPrediction) -> Doubles:
        """`Predicted.functions` of rows with imputed cells, whose prediction is known: each draw uses all copies."""
        total: Tensor | float = 0.0
        for inputs, out_of_range in zip(encoded.inputs, encoded.out_of_range, strict=True):
            copy_of_rows = replace(encoded, inputs=inputs, out_of_range=out_of_range)
            drawn = self._draw_rows(copy_of_rows, samples, seed, calibrated=False)
            predictive = drawn.predictive(widened=False)
            total = total + (predictive.draws if isinstance(predictive, ClassPredictive) else predictive.means)
        mean = torch.as_tensor(total) / len(encoded.inputs)
        if isinstance(prediction, ClassPrediction):
            goal = torch.from_numpy(prediction.probabilities.T).to(mean)
            return np.ascontiguousarray(draws_with_mean(mean, goal).permute(2, 0, 1).cpu().numpy())
        return np.ascontiguousarray(mean.T.cpu().numpy())

    def _rows_per_tile(self, samples: int) -> int:
        most = max(1, self.tile_values // max(1, samples))
        if not self.draws.holds(samples):  # draws are made again for every tile
            return most
        return max(min(most, self.target.least_tile_rows), most // self.architecture.outputs)

    def rows_without_draws(self, rows: int, incomplete: int, seconds: float) -> int:
        """See `AnswerCost.rows_without_draws`; any thread may ask."""
        return self.answer_cost.rows_without_draws(rows, incomplete, seconds)

    def cost(self, rows: int, options: PredictOptions, incomplete: int = 0) -> float:
        """See `AnswerCost.of`; any thread may ask."""
        seed = self.seed if options.seed is None else options.seed
        new = self.draws.missing(options.samples, seed) if options.samples else 0
        return self.answer_cost.of(rows, options, incomplete, new)

    def warm_up(self) -> None:
        """Make the default draws and run every path once, so that the first request is as fast as later ones."""
        for batch in (1, 64):
            rows = Encoded.like(np.zeros((batch, self.architecture.inputs), dtype=np.float32))
            for options in self.target.warm_up:
                self.predict_encoded(rows, options)


def _target_model(spec: ModelSpec, likelihood: Likelihood, device: torch.device) -> AnyTargetModel:
    """Return what maps the network's outputs to the distribution of the target.

    Args:
        spec: The specification.
        likelihood: The observation model with its parameters.
        device: The device of the outputs.
    """
    shares = spec.likelihood.shares
    if shares is not None:
        classes = spec.schema.target.classes or ()
        return ClassTargetModel(cast("ClassLikelihood", likelihood), classes, shares.tensor(device), shares.weight)
    numeric = cast("NumericLikelihood", likelihood)
    return TargetModel(numeric, spec.target, spec.likelihood.wide, spec.architecture.members)
