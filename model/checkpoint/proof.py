"""The proof of a checkpoint: the writer's answers for typical rows, by name, which every reader must get again.

Hashes tell whether a file was changed. The proof tells whether this code on this machine makes of the files what the
writer made of them: a scale of 1e300 under good hashes, or a processor that computes wrongly, gives other answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from murho.model.arrays import Array, Doubles
from murho.model.errors import CheckpointError
from murho.model.tables.schema import Feature, FeatureKind, Schema

PROOF_SAMPLES = 17
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


def typical_rows(schema: Schema) -> dict[str, Array]:
    """B canonical rows within the training range of every feature, ``[B]`` each, without a missing cell.

    A feature of which no training row has a value is missing.
    """
    return {feature.name: _cells(feature) for feature in schema.features}


def _cells(feature: Feature) -> Array:
    if feature.kind is FeatureKind.CATEGORICAL:
        known = feature.categories or (None,)
        return np.array([known[row % len(known)] for row in range(len(FRACTIONS))], dtype=object)
    if feature.minimum is None or feature.maximum is None:
        return np.full(len(FRACTIONS), np.nan)
    places = np.array(FRACTIONS)
    values = (1.0 - places) * feature.minimum + places * feature.maximum
    return np.round(values) if feature.kind is FeatureKind.BOOLEAN else values


def require_finite(answers: Mapping[str, Doubles]) -> None:
    """Check that one of the B typical rows has finite answers, of shape ``[B, …]`` each; raises a `CheckpointError`."""
    finite = [np.isfinite(answer).reshape(len(FRACTIONS), -1).all(axis=1) for answer in answers.values()]
    if not np.all(finite, axis=0).any():
        raise CheckpointError("the answers for rows within the training range aren't finite; train again")


def check_proof(found: Mapping[str, Doubles], proof: object) -> None:
    """Compare a reader's answers with the writer's.

    Args:
        found: Answers for the B typical rows, ``[B, …]`` each.
        proof: The writer's, as JSON data: null for a number that is not finite.

    Raises:
        CheckpointError: The proof is malformed, or an answer differs by more than `TOLERANCE`.
    """
    try:
        then = {name: np.array(proof[name], dtype=np.float64) for name in found}  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"proof: expected an object of numbers with {', '.join(found)} ({error})") from error
    for name, answer in found.items():
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
