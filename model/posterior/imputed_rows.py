"""Answers for rows with missing cells: draws over imputed copies of the rows, and answers put back in order.

The answer is the average over what a missing cell may have been. Draw k is computed with copy ``k mod R`` of the row
(`model.encoding.imputation`). So the spread over draws includes what the cell would have told, and the row costs no
more than a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.posterior.questions import in_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns
    from murho.model.distributions.predictive import Predictive
    from murho.model.engines.draws import Draws
    from murho.model.engines.target_models import AnyPrediction

__all__ = ["copies_of_draws", "in_pieces", "mostly_imputed", "with_rows_in_place"]

PIECE_VALUES = 2**18
"""Encoded values of a piece of incomplete rows: each row has R copies of them, and their draws."""


def in_pieces(
    columns: Columns, incomplete: NDArray[np.intp], width: int
) -> Iterator[tuple[NDArray[np.intp], dict[str, NDArray[Any]], bool]]:
    """Divide rows into the complete ones and pieces of the incomplete ones.

    Args:
        columns: Canonical columns, ``[B]`` each.
        incomplete: Numbers of the rows with a cell to impute.
        width: D, the number of encoded features.

    Yields:
        Numbers of rows, their columns, and whether they are to be imputed.
    """
    count = len(next(iter(columns.values())))
    complete = np.setdiff1d(np.arange(count), incomplete, assume_unique=True)
    pieces = np.array_split(incomplete, max(1, -(-len(incomplete) * width // PIECE_VALUES)))
    for rows, imputed in ((complete, False), *((piece, True) for piece in pieces)):
        if len(rows):
            yield rows, {name: column[rows] for name, column in columns.items()}, imputed


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
    _, epistemic, aleatoric = predictive.split()
    return between > 0.5 * (epistemic.square() + aleatoric.square())


def with_rows_in_place(parts: Sequence[tuple[NDArray[np.intp], AnyPrediction]]) -> AnyPrediction:
    """Join the predictions of groups of rows in the order of the rows' numbers.

    Args:
        parts: Numbers of rows, and their prediction.
    """
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return in_one([prediction for _, prediction in parts], order)
