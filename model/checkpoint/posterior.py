"""A loaded checkpoint that answers requests: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Cells become inputs of the network here,
and missing ones are imputed; `model.checkpoint.row_answers` answers for encoded rows.

What an answer costs, before it is computed: the time of its parts, in units of a row and draw of a plain answer.

A plain answer has mean, std and three percentiles of rows like the training rows. The constants are nanoseconds of
processor time on one machine. Only their ratios count: the caller learns how long a unit takes. Costs are within a
factor of three of the time, for options as far apart as a hundred levels far out, a hundred thresholds and new draws
(``python -m benchmarks.answer_cost`` prints both side by side).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.checkpoint.checkpoint import name_and_version, read_stored
from murho.model.checkpoint.questions import questions_about, validate_questions
from murho.model.checkpoint.row_answers import RowAnswers, with_rows_in_place
from murho.model.encoding.encoder import Encoded
from murho.model.encoding.imputation import IMPUTATIONS, rows_to_impute
from murho.model.predictive.prediction import PredictOptions, Question
from murho.model.predictive.torch_engine import TorchEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.predictive.draw_room import DrawRoom
    from murho.model.predictive.engine import Engine
    from murho.model.predictive.target_models import AnyPrediction
    from murho.model.tables.schema import Columns, UnfamiliarValue

__all__ = ["COMPILED", "TORCH", "CostModel", "Posterior", "Rates"]


WEIGHT, UNIT = 0.03, 0.4
"""The network under one draw for one row: for each weight, and for each hidden unit's activation."""
MIRRORED_NUMBER = 10.0
"""A weight of a new draw's mirror image."""
QUESTION, PASS_ROW = 100_000.0, 4_000.0
"""What an answer takes besides its rows, and what a row takes besides its draws: encoding and its arrays."""
COPY = 2_000.0
"""What each imputed copy of a row takes besides its draws."""
SORTED, FUNCTION_THRESHOLD = 10.0, 2.5
"""A draw of a row, to sort or to list it, and to compare it with a threshold."""
ERROR, ERROR_LEVEL = 70.0, 36.0
"""Standard errors of a draw of a row, for each component: of mean and std, and of each level."""
PLAIN_LEVELS = 3
EXTREME_LEVEL = 1e-3
"""Percentile levels this near to 0 or 100 are searched in double precision."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What an engine takes for one component of one draw of a row.

    Attributes:
        shared: What a pass takes whatever it has, once for all questions in it.
        moments: Mean and standard deviations.
        plain: The levels of a plain answer, with those behind the calibrated standard deviation.
        level: A further level.
        extreme: A level far out.
        threshold: A threshold.
        number: A weight of a new draw: 4 to 16 ns by compiled code, the more the newer the memory for it is.
        far: What a row beyond the training range adds.
    """

    shared: float
    moments: float
    plain: float
    level: float
    extreme: float
    threshold: float
    number: float
    far: float


COMPILED = Rates(
    shared=500_000.0, moments=25.0, plain=20.0, level=1.6, extreme=8.0, threshold=2.0, number=8.0, far=250.0
)
TORCH = Rates(
    shared=1_500_000.0, moments=60.0, plain=490.0, level=30.0, extreme=90.0, threshold=45.0, number=30.0, far=1500.0
)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The sizes of a posterior that costs depend on.

    Attributes:
        weights: Weights of one draw.
        units: Its hidden units.
        components: K, the components of the noise of one draw.
        members: M.
        rates: Those of the engine.
    """

    weights: int
    units: int
    components: int
    members: int
    rates: Rates

    @property
    def unit(self) -> float:
        """Nanoseconds of one row and draw of a plain answer."""
        return self._network + self.components * (self.rates.moments + self.rates.plain)

    @property
    def shared(self) -> float:
        """The part of `cost` that questions in one pass share, in the same units."""
        return self.rates.shared / self.unit

    @property
    def _network(self) -> float:
        return WEIGHT * self.weights + UNIT * self.units

    def cost(self, rows: int, options: PredictOptions, *, new_draws: int, imputed: int, far: int) -> float:
        """The cost of an answer, in plain rows times draws of this posterior.

        Args:
            rows: B.
            options: Options of the request.
            new_draws: Draws to be made for it.
            imputed: Rows with cells to impute, of the B.
            far: Rows beyond the training range, of the B.
        """
        samples = options.samples or self.members
        nanoseconds = (
            self.rates.shared
            + QUESTION
            + far * samples * (self._network + self.components * self.rates.far)
            + new_draws * self.weights * self.rates.number
        )
        if options.samples == 0:
            return (nanoseconds + self._without_draws(rows, imputed)) / self.unit
        nanoseconds += PASS_ROW * rows + imputed * IMPUTATIONS * COPY
        nanoseconds += rows * samples * (self._network + self._answer(options))
        if options.mc_error:
            levels = len(options.percentiles)
            of_errors = (self.components if options.noise else 1) * (ERROR + ERROR_LEVEL * levels)
            nanoseconds += rows * samples * (self._network + of_errors)
            nanoseconds += new_draws * self.weights * MIRRORED_NUMBER
        return nanoseconds / self.unit

    def rows_without_draws(self, seconds: float, imputed: float) -> int:
        """Rows of an answer without draws that take so long by the constants of this module, at least one.

        Args:
            seconds: For these rows.
            imputed: Share of the rows with cells to impute.
        """
        return max(1, int(1e9 * seconds / self._without_draws(1.0, imputed)))

    def _without_draws(self, rows: float, imputed: float) -> float:
        """Time of the mu-only networks for rows: every imputed copy goes through all of them."""
        copies = rows + (IMPUTATIONS - 1) * imputed
        return PASS_ROW * rows + IMPUTATIONS * COPY * imputed + copies * self.members * self._network

    def _answer(self, options: PredictOptions) -> float:
        """Time of everything after the network, for one draw of a row."""
        rates, levels = self.rates, len(options.percentiles)
        time = SORTED if options.draws else 0.0
        if not options.noise:
            return time + self.components * rates.moments + SORTED + FUNCTION_THRESHOLD * len(options.thresholds)
        extreme = sum(min(level, 100.0 - level) < EXTREME_LEVEL for level in options.percentiles)
        of_component = rates.moments + rates.plain + rates.extreme * extreme
        of_component += rates.level * max(0, levels - extreme - PLAIN_LEVELS)
        return time + self.components * (of_component + rates.threshold * len(options.thresholds))


class Posterior:
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: only one thread may compute, as in the service.

    Attributes:
        tensors: mu, rho and noise parameters by name, on the CPU.
        row_answers: Answers for encoded rows.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tensors: Mapping[str, Tensor],
        *,
        name: str = "unsaved",
        version: str = "0",
        device: str = "cpu",
        room: DrawRoom | None = None,
        engine: str = "auto",
    ) -> None:
        """Build the posterior from the parts of a checkpoint; `load` reads them from disk.

        Args:
            spec: The specification of the checkpoint.
            tensors: Checked tensors by name, on the CPU.
            name: Name of the checkpoint.
            version: Its version.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            room: Memory for its draws, which others may share; None: a room of its own.
            engine: One of `model.predictive.compiled_engine.ENGINES`.
        """
        self.name, self.version, self.spec = name, version, spec
        self.device = torch.device(device)
        self.architecture, self.schema, self.encoder = spec.architecture, spec.schema, spec.encoder
        self.transform, self.location, self.scale = (
            spec.target.transform,
            spec.target.location,
            spec.target.scale,
        )
        self.seed, self.calibration = spec.default_seed, spec.calibration
        self.tensors = dict(tensors)
        self.row_answers = RowAnswers(spec, self.tensors, device=device, room=room, engine=engine)
        self.likelihood = self.row_answers.likelihood
        self._costs = CostModel(
            self.row_answers.weights,
            sum(spec.architecture.hidden),
            self.likelihood.means,
            spec.architecture.members,
            TORCH if self.engine.name == TorchEngine.name else COMPILED,
        )

    @classmethod
    def load(cls, directory: Path, device: str = "cpu", *, room: DrawRoom | None = None, engine: str = "auto") -> Self:
        """Read a version from disk and check all of it.

        Args:
            directory: ``NAME/VERSION``, which give the posterior its name and version.
            device: The device to compute on: ``cpu``, ``cuda`` or ``cuda:1``.
            room: Memory for its draws, which others may share; None: a room of its own.
            engine: One of `model.predictive.compiled_engine.ENGINES`.

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
            room=room,
            engine=engine,
        )
        stored.require_answers(loaded)
        return loaded

    def described(self, spec: ModelSpec) -> Self:
        """The same posterior with another calibration and other facts; engine and draws are shared.

        Args:
            spec: The specification; all that the tensors and the engine depend on is as before.
        """
        other = copy(self)
        other.spec, other.calibration = spec, spec.calibration
        other.row_answers = self.row_answers.calibrated(spec)
        return other

    @property
    def engine(self) -> Engine:
        """Computes the answers; picked once."""
        return self.row_answers.engine

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
            One entry per row, in order: a `model.predictive.prediction.Prediction` or, of a classifier, a
            `model.predictive.prediction.ClassPrediction`.
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
        parts: list[list[tuple[NDArray[np.intp], AnyPrediction]]] = [[] for _ in questions]
        for numbers, encoded in self.encoder.encode_pieces(columns):
            if len(numbers) == rows:
                return self.row_answers.answer(encoded, questions, seed)
            about = list(questions_about(questions, numbers))
            answers = self.row_answers.answer(encoded, [question for _, _, question in about], seed)
            for (place, own, _), answer in zip(about, answers, strict=True):
                parts[place].append((numbers[own], answer))
        return [with_rows_in_place(of_question) for of_question in parts]

    def predict_encoded(self, encoded: Encoded, options: PredictOptions) -> Any:
        """Answer as `predict` does, for encoded rows."""
        seed = self.seed if options.seed is None else options.seed
        return self.row_answers.answer(encoded, (Question(slice(0, len(encoded)), options),), seed)[0]

    def drawn(self, encoded: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration; takes the arguments of `RowAnswers.drawn`."""
        return self.row_answers.drawn(encoded, samples, seed, members=members)

    def predictive(self, encoded: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None) -> Any:
        """The raw predictive distribution of the target of each row; takes the arguments of `drawn`."""
        return self.drawn(encoded, samples, seed, members=members).predictive()

    @property
    def shared_cost(self) -> float:
        """The part of `cost` that questions in one pass share: n of them cost the sum minus n - 1 times this."""
        return self._costs.shared

    def rows_without_draws(self, columns: Columns, seconds: float) -> int:
        """Rows of an answer without draws that take about so long on the machine of `model.checkpoint.posterior`.

        The number is the same at every call. So the mean of rows in such parts is the same to the bit, although a
        matrix product may round a row differently among others. Any thread may ask.

        Args:
            columns: Canonical columns of the request's rows, ``[B]`` each.
            seconds: For the returned number of rows.
        """
        rows = len(next(iter(columns.values())))
        return self._costs.rows_without_draws(seconds, len(rows_to_impute(self.schema, columns)) / max(1, rows))

    def cost(self, rows: int, options: PredictOptions, *, imputed: int = 0, far: int = 0) -> float:
        """What an answer takes to compute, in units of a row and draw of this posterior's plain answer.

        Any thread may ask. See `model.checkpoint.posterior`.

        Args:
            rows: B.
            options: Options of the request.
            imputed: Rows with cells to impute, of the B.
            far: Rows beyond the training range, of the B.
        """
        seed = self.seed if options.seed is None else options.seed
        new_draws = self.row_answers.draws.missing(options.samples, seed) if options.samples else 0
        return self._costs.cost(rows, options, new_draws=new_draws, imputed=imputed, far=far)

    def input_warnings(
        self, columns: Columns, limit: int | None = None, *, told: NDArray[np.bool_] | None = None
    ) -> list[UnfamiliarValue]:
        """Warnings of values unlike the training rows, see `model.encoding.encoder.Encoder.unlike_values`."""
        return self.encoder.unlike_values(columns, limit, told=told)

    def warm_up(self) -> None:
        """Make the default draws and run every path once, so that the first request is as fast as later ones."""
        for batch in (1, 64):
            rows = Encoded.like(np.zeros((batch, self.architecture.inputs), dtype=np.float32))
            for options in self.row_answers.target.options_of_warm_up():
                self.predict_encoded(rows, options)
