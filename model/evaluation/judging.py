"""Rows go through the networks and are judged, pass by pass, so that a million rows fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from murho.model.errors import OptionError
from murho.model.evaluation.classes import JudgedClasses
from murho.model.evaluation.numbers import JudgedNumbers
from murho.model.evaluation.rows import JudgedRows, RowArrays
from murho.model.predictive.prediction import DEFAULT_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.schema import Columns

__all__ = [
    "in_passes",
    "judge_columns",
    "judge_encoded",
]

MOST_ROWS_PER_PASS = 256
VALUES_PER_PASS = 2**22
"""Values of rows, draws and classes at a time: 32 MiB."""

Made = TypeVar("Made", bound=RowArrays)


@torch.inference_mode()
def in_passes(
    posterior: Posterior,
    encoded: Encoded,
    made: Callable[[DrawnRows, slice], Made],
    *,
    samples: int,
    members: Sequence[int] | None = None,
) -> Made:
    """Send rows through the networks, a few hundred of them at a time.

    Args:
        posterior: The posterior.
        encoded: The rows, at least one.
        made: Makes arrays of the rows of a pass under their draws; gets their places among the N.
        samples: S, at least 1.
        members: The S draws cycle through these members; None: through all.

    Raises:
        OptionError: S is 0: the mu-only network has no doubt to judge.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    values = samples * len(posterior.schema.target.classes or "1")
    count, most = len(encoded), max(1, min(MOST_ROWS_PER_PASS, VALUES_PER_PASS // values))
    parts = []
    for start in range(0, count, most):
        rows = slice(start, min(start + most, count))
        parts.append(made(posterior.drawn(encoded[rows], samples, posterior.seed, members=members), rows))
    return parts[0].joined(parts)


def judge_encoded(
    posterior: Posterior,
    encoded: Encoded,
    targets: NDArray[np.float64],
    samples: int = DEFAULT_SAMPLES,
    rows: NDArray[np.int64] | None = None,
) -> JudgedRows:
    """Judge the answers of a posterior for encoded rows.

    Args:
        posterior: The posterior.
        encoded: Encoded rows, see `in_passes`.
        targets: ``[N]``, the target's unit, or numbers of classes.
        samples: S, at least 1.
        rows: Numbers of the rows, ``[N]``; None: from 0 on.
    """
    numbers = np.arange(len(targets)) if rows is None else rows
    of_kind = JudgedNumbers if posterior.schema.target.classes is None else JudgedClasses
    calibration: Any = posterior.calibration  # of the target's kind, as `ModelSpec` checks

    def made(drawn: DrawnRows, places: slice) -> JudgedRows:
        return of_kind.of(drawn, numbers[places], targets[places], calibration)

    return in_passes(posterior, encoded, made, samples=samples)


def judge_columns(
    posterior: Posterior, columns: Columns, targets: NDArray[np.float64], samples: int = DEFAULT_SAMPLES
) -> JudgedRows:
    """Judge the answers for labelled rows; those with missing cells that the training rows did not have are imputed.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        targets: ``[N]``, the target's unit, or numbers of classes.
        samples: S, at least 1.
    """
    parts = []
    for rows, encoded in posterior.encoder.encode_pieces(columns):
        parts.append(judge_encoded(posterior, encoded, targets[rows], samples, rows))
    judged = parts[0].joined(parts)
    return judged.of_rows(np.argsort(judged.rows))
