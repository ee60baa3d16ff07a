"""The proof of a checkpoint: a few rows with the answers that the writer got, which every reader must get again.

Hashes tell whether a file was changed. The proof tells whether this code on this machine makes of the files what the
writer made of them: a scale of 1e300 under good hashes, or a processor that computes wrongly, gives other answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from murho.model.errors import CheckpointError
from murho.model.json_validation import MisfitError, Stored, stored_as
from murho.model.predictive.prediction import DEFAULT_PERCENTILES, PredictOptions
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = [
    "Proof",
    "Prover",
    "typical_rows",
]

SAMPLES = 17
"""S: enough to take draws of every member, and made in a few milliseconds.

It is prime, so that no percentile asked for is a multiple of 1/S: between two draws far apart, with little noise, the
distribution function is flat at these levels, and any value there is a right answer.
"""

TOLERANCE = 1e-3
"""Largest difference, relative to the larger of |value| and std.

Answers promise 1e-4 between a GPU and a CPU. Damage worth the name is far larger.
"""

FRACTIONS = (0.25, 0.5, 0.75)
"""Where the rows lie in the training range of every number."""


WITHOUT_DRAWS = "_without_draws"
"""End of the name of an answer for ``samples=0``."""

ADVICE = "restore the checkpoint or train again"


class Prover(Protocol):
    """What a proof asks; `model.checkpoint.posterior.Posterior` is one."""

    @property
    def schema(self) -> Schema:
        """Features and target."""

    def predict(self, columns: Columns, options: PredictOptions) -> Any:
        """The answer for canonical columns ``[B]``."""


def typical_rows(schema: Schema) -> dict[str, NDArray[Any]]:
    """B canonical rows within the training range of every feature, ``[B]`` each, without a missing cell.

    A feature of which no training row has a value is missing.
    """
    return {feature.name: _cells(feature) for feature in schema.features}


def _cells(feature: Feature) -> NDArray[Any]:
    if feature.kind is FeatureKind.CATEGORICAL:
        known = feature.categories or (None,)
        return np.array([known[row % len(known)] for row in range(len(FRACTIONS))], dtype=object)
    if feature.minimum is None or feature.maximum is None:
        return np.full(len(FRACTIONS), np.nan)
    places = np.array(FRACTIONS)
    values = (1.0 - places) * feature.minimum + places * feature.maximum
    return np.round(values) if feature.kind is FeatureKind.BOOLEAN else values


def _column(cells: list[Any]) -> NDArray[Any]:
    if any(isinstance(cell, str) for cell in cells):
        return np.array(cells, dtype=object)
    return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)


def _cells_of(column: NDArray[Any]) -> list[Any]:
    return [None if cell != cell else cell for cell in column.tolist()]


def _answer(numbers: list[Any]) -> NDArray[np.float64]:
    if len({len(row) for row in numbers if isinstance(row, list)}) > 1:
        raise ValueError("expected lists of the same length")
    return np.array(numbers, dtype=np.float64)


_Column: TypeAlias = Annotated[NDArray[Any], stored_as(list[float | None] | list[str | None], _column, _cells_of)]
_Answer: TypeAlias = Annotated[
    NDArray[np.float64], stored_as(list[float] | list[list[float]], _answer, np.ndarray.tolist)
]


@dataclass(frozen=True, slots=True, eq=False)
class Proof(Stored):
    """Rows and their answers.

    Attributes:
        columns: Canonical columns, ``[B]`` each.
        answers: ``mean``, ``std`` ``[B]`` and ``percentiles`` ``[B, K]`` of `SAMPLES` draws of the default seed,
            calibrated where the checkpoint is; ``mean_without_draws`` ``[B]``, of the mu-only network. Of classes
            ``probabilities``, ``epistemic_std`` and ``probabilities_without_draws``, ``[B, C]`` each.
        samples: S.
    """

    columns: Mapping[str, _Column]
    answers: Mapping[str, _Answer]
    samples: Annotated[int, Field(ge=1, le=SAMPLES)] = SAMPLES

    @classmethod
    def of(cls, prover: Prover) -> Self:
        """The proof of what is about to be written.

        Raises:
            CheckpointError: No typical row gets a finite answer.
        """
        columns = typical_rows(prover.schema)
        answers = _answers(prover, columns, SAMPLES)
        finite = _finite_rows(answers)
        if not finite.any():
            raise CheckpointError("the answers for rows within the training range aren't finite; train again")
        return cls(
            {name: column[finite] for name, column in columns.items()},
            {name: answer[finite] for name, answer in answers.items()},
        )

    @classmethod
    def read(cls, data: object, schema: Schema) -> Self:
        """Read JSON data, and check that they fit the schema.

        Raises:
            CheckpointError: A field is missing, malformed, or doesn't fit the schema; the message names it.
        """
        proof = cls.from_json(data, "proof")
        columns, shapes = {}, _shapes(schema, len(DEFAULT_PERCENTILES))
        rows = max((len(column) for column in proof.columns.values()), default=0)
        for feature in schema.features:
            column = proof.columns.get(feature.name, np.empty(0))
            categorical = feature.kind is FeatureKind.CATEGORICAL
            if categorical and column.dtype == np.float64 and np.isnan(column).all():
                column = np.full(len(column), None, dtype=object)
            if len(column) != rows or not 1 <= rows <= len(FRACTIONS) or (column.dtype == object) != categorical:
                expected = f"a {feature.kind} column of 1 to {len(FRACTIONS)} cells, as many as the others have"
                raise MisfitError(f"proof.columns.{feature.name}", expected, column.tolist())
            columns[feature.name] = column
        found = {name: answer.shape for name, answer in proof.answers.items()}
        if found != {name: (rows, *shape) for name, shape in shapes.items()}:
            raise MisfitError("proof.answers", f"{rows} rows each of {shapes}", found)
        return replace(proof, columns=columns)

    def check(self, prover: Prover) -> None:
        """Answer the rows again, and compare.

        Raises:
            CheckpointError: An answer isn't finite or differs by more than `TOLERANCE`.
        """
        now = _answers(prover, self.columns, self.samples)
        finite = _finite_rows(now)
        if not finite.all():
            row = int(np.argmin(finite))
            raise CheckpointError(
                f"proof: the answer for row {row} isn't finite; restore the checkpoint or train again"
            )
        for name, then in self.answers.items():
            unit = self.answers["std"].reshape(-1, *[1] * (then.ndim - 1)) if "std" in self.answers else np.ones(1)
            excess = np.abs(now[name] - then) - TOLERANCE * np.maximum(np.abs(then), unit)
            if excess.max() > 0.0:
                where = np.unravel_index(int(np.argmax(excess)), excess.shape)
                raise CheckpointError(
                    f"proof: {name} of row {where[0]} is {now[name][where]:.6g}, and was {then[where]:.6g} when the "
                    f"checkpoint was written; {ADVICE}"
                )


def _answers(prover: Prover, columns: Columns, samples: int) -> dict[str, NDArray[np.float64]]:
    with np.errstate(all="ignore"):  # what overflows is found in the answers
        drawn = prover.predict(columns, PredictOptions(samples=samples))
        means = prover.predict(columns, PredictOptions(samples=0))
    answers = {}
    for name in _shapes(prover.schema, len(DEFAULT_PERCENTILES)):
        of_draws = not name.endswith(WITHOUT_DRAWS)
        values = getattr(drawn if of_draws else means, name.removesuffix(WITHOUT_DRAWS))
        answers[name] = np.asarray(values, dtype=np.float64)
    return answers


def _shapes(schema: Schema, levels: int) -> dict[str, tuple[int, ...]]:
    """The answers of a proof by name, and the shape of each for one row."""
    if schema.target.classes is None:
        return {"mean": (), "std": (), "percentiles": (levels,), "mean" + WITHOUT_DRAWS: ()}
    of_classes = (len(schema.target.classes),)
    return {"probabilities": of_classes, "epistemic_std": of_classes, "probabilities" + WITHOUT_DRAWS: of_classes}


def _finite_rows(answers: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    finite = np.ones(len(next(iter(answers.values()))), dtype=np.bool_)
    for answer in answers.values():
        finite &= np.isfinite(answer).reshape(len(answer), -1).all(axis=1)
    return finite
