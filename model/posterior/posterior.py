"""A loaded checkpoint that answers requests: rows in, the predictive distribution of the target out.

The answer for a row depends on the checkpoint, the row and the options alone. Cells become inputs of the network here,
and missing ones are imputed; `model.posterior.row_answers` answers for encoded rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.encoding.imputation import rows_to_impute
from murho.model.encoding.input_warnings import input_warnings, listed_features, listed_rows
from murho.model.engines.prediction import PredictOptions, Question
from murho.model.engines.torch_engine import TorchEngine
from murho.model.posterior.answer_cost import COMPILED, TORCH, CostModel
from murho.model.posterior.checkpoint import name_and_version, read_stored
from murho.model.posterior.imputed_rows import in_pieces, with_rows_in_place
from murho.model.posterior.questions import questions_about, validate_questions
from murho.model.posterior.row_answers import RowAnswers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns, UnfamiliarValue
    from murho.model.engines.draw_room import DrawRoom
    from murho.model.engines.engine import Engine
    from murho.model.engines.target_models import AnyPrediction
    from murho.model.posterior.drawn_rows import DrawnRows
    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["Posterior"]


class Posterior:
    """The variational posterior of a checkpoint, on one device.

    Not thread-safe: only one thread may compute, as in the service.

    Attributes:
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
            engine: One of `model.engines.selection.ENGINES`.
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
        self._listed_features = listed_features(spec.encoder)
        self._tensors = dict(tensors)
        self.row_answers = RowAnswers(spec, self._tensors, device=device, room=room, engine=engine)
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
            room=room,
            engine=engine,
        )
        stored.require_answers(loaded)
        return loaded

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
            return self.row_answers.answer(self.encoder.encode(columns), questions, seed, listed)
        parts: list[list[tuple[NDArray[np.intp], AnyPrediction]]] = [[] for _ in questions]
        for numbers, part, imputed in in_pieces(columns, incomplete, self.encoder.width):
            encoded = self.encoder.encode_copies(part) if imputed else self.encoder.encode(part)
            about = list(questions_about(questions, numbers))
            answers = self.row_answers.answer(
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
        return self.row_answers.answer(rows, (Question(slice(0, rows.shape[-2]), options),), seed, None)[0]

    def drawn(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        """Rows under draws, for evaluation and calibration; takes the arguments of `RowAnswers.drawn`."""
        return self.row_answers.drawn(rows, samples, seed, members=members)

    def predictive(self, rows: Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None) -> Any:
        """The raw predictive distribution of the target of each row; takes the arguments of `drawn`."""
        return self.drawn(rows, samples, seed, members=members).predictive()

    def outside(self, rows: Tensor) -> Tensor:
        """Mask of the rows that are unlike the training rows, ``[B]``; see `RowAnswers.outside`."""
        return self.row_answers.outside(rows)

    @property
    def shared_cost(self) -> float:
        """The part of `cost` that questions in one pass share: n of them cost the sum minus n - 1 times this."""
        return self._costs.shared

    def rows_without_draws(self, columns: Columns, seconds: float) -> int:
        """Rows of an answer without draws that take about so long on the machine of `model.posterior.answer_cost`.

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

        Any thread may ask. See `model.posterior.answer_cost`.

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
        self, columns: Columns, limit: int | None = None, *, among: NDArray[np.bool_] | None = None
    ) -> list[UnfamiliarValue]:
        """Warnings of values unlike the training rows, see `model.encoding.input_warnings.input_warnings`."""
        return input_warnings(self.encoder, columns, limit, among=among)

    def warm_up(self) -> None:
        """Make the default draws and run every path once, so that the first request is as fast as later ones."""
        for batch in (1, 64):
            rows = np.zeros((batch, self.architecture.inputs), dtype=np.float32)
            for options in self.row_answers.target.options_of_warm_up():
                self.predict_encoded(rows, options)
