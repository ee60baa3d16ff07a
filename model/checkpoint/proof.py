"""The proof of a checkpoint: the answers that the writer got for a few rows, which every reader must get again.

Hashes tell whether a file was changed. The proof tells whether this code on this machine makes of the files what the
writer made of them: a scale of 1e300 under good hashes, or a processor that computes wrongly, gives other answers.
The rows follow from the schema; their answers are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from murho.model.errors import CheckpointError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = ["Prover", "check_proof", "proof_of", "typical_rows"]

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


def proof_of(prover: Prover) -> dict[str, NDArray[np.float64]]:
    """The answers for typical rows, by name.

    Returns:
        ``mean``, ``std`` ``[B]`` and ``percentiles`` ``[B, K]`` of `SAMPLES` draws of the default seed, calibrated
        where the checkpoint is; ``without_draws`` ``[B]``, the mean of the mu-only network. Of classes
        ``probabilities``, ``epistemic_std`` and ``without_draws``, the probabilities, ``[B, C]`` each.

    Raises:
        CheckpointError: No typical row gets a finite answer.
    """
    answers = _answers(prover)
    finite = [np.isfinite(answer).reshape(len(FRACTIONS), -1).all(axis=1) for answer in answers.values()]
    if not np.all(finite, axis=0).any():
        raise CheckpointError("the answers for rows within the training range aren't finite; train again")
    return answers


def check_proof(prover: Prover, proof: object) -> None:
    """Answer the rows again, and compare.

    Args:
        prover: The posterior.
        proof: What `proof_of` returned, as JSON data: null for what is not finite.

    Raises:
        CheckpointError: The proof is malformed, or an answer differs by more than `TOLERANCE`.
    """
    found = _answers(prover)
    if not isinstance(proof, dict) or set(proof) != set(found):
        raise CheckpointError(f"proof: expected an object with {', '.join(found)}")
    then: dict[str, NDArray[np.float64]] = {}
    for name, answer in found.items():
        try:
            then[name] = np.array(proof[name], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"proof.{name}: expected lists of numbers ({error})") from error
        if then[name].shape != answer.shape or not np.isfinite(then[name]).any():
            raise CheckpointError(f"proof.{name}: expected numbers, {' x '.join(map(str, answer.shape))}")
    unit = np.nan_to_num(then.get("std", np.ones(1)))
    for name, now in found.items():
        units = unit.reshape(-1, *[1] * (now.ndim - 1))
        with np.errstate(all="ignore"):
            same = np.abs(now - then[name]) <= TOLERANCE * np.maximum(np.abs(then[name]), units)
        wrong = np.argwhere(~same & np.isfinite(then[name]))
        if len(wrong):
            where = tuple(wrong[0])
            raise CheckpointError(
                f"proof: {name} of row {where[0]} is {now[where]:.6g}, and was {then[name][where]:.6g} when the "
                "checkpoint was written; restore the checkpoint or train again"
            )


def _answers(prover: Prover) -> dict[str, NDArray[np.float64]]:
    columns = typical_rows(prover.schema)
    with np.errstate(all="ignore"):  # what overflows is found in the answers
        drawn = prover.predict(columns, PredictOptions(samples=SAMPLES))
        means = prover.predict(columns, PredictOptions(samples=0))
    classes = prover.schema.target.classes
    first, *others = ("mean", "std", "percentiles") if classes is None else ("probabilities", "epistemic_std")
    answers = {name: getattr(drawn, name) for name in (first, *others)} | {"without_draws": getattr(means, first)}
    return {name: np.ascontiguousarray(answer, dtype=np.float64) for name, answer in answers.items()}
