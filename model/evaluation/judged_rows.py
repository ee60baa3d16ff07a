"""Scores of held-out rows by their judges: the members that have not seen them, one by one and together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from murho.model.runtime.free_memory import give_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.splits import HeldOut
    from murho.model.distributions.predictive import Predictive
    from murho.model.posterior.drawn_rows import DrawnRows
    from murho.model.posterior.posterior import Posterior

__all__ = ["GRID", "SAMPLES", "JudgedRows", "judge_rows"]

SAMPLES = 256
"""Draws per row, shared by its judges."""
ROWS_PER_CHUNK = 256
FURTHEST_SCORE = 3.0
"""Limit of the size of a normal score in means: a larger one marks an odd row and tells little about the members."""
GRID = np.linspace(-5.0, 5.0, 41)
"""Normal scores at which a row's percentiles are computed; between and beyond them they are taken from a line."""
_ARRAYS = ("rows", "groups", "judges", "targets", "means", "scores", "percentiles", "outside")
_TABLES = ("alone", "together")


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Scores of n held-out rows; ``[n]`` and in the target's unit unless noted otherwise.

    Attributes:
        rows: Row numbers in the table.
        groups: Number of the group of held-out rows.
        judges: J, the number of members that judge the row together.
        members: M, the number of members that will answer.
        targets: Observed targets.
        means: Predicted means under the mixture of the judges.
        alone: Scores under single judges, the mean over them, by name: ``square`` and ``absolute`` error of the mean,
            ``nll`` (nats), ``crps``, ``variance`` of the predictive, and ``reach``, the size of the normal score, at
            most `FURTHEST_SCORE`.
        together: The same under the mixture of the judges.
        scores: Normal score of the target under the mixture of the judges.
        percentiles: Raw percentiles of that mixture at `GRID`, ``[n, K]``.
        outside: Whether the row lies beyond the training rows, bool.
    """

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    judges: NDArray[np.int64]
    members: int
    targets: NDArray[np.float64]
    means: NDArray[np.float64]
    alone: dict[str, NDArray[np.float64]]
    together: dict[str, NDArray[np.float64]]
    scores: NDArray[np.float64]
    percentiles: NDArray[np.float64]
    outside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.targets)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The scores of several parts, in order."""
        fields: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS} | {
            name: {key: np.concatenate([getattr(part, name)[key] for part in parts]) for key in getattr(parts[0], name)}
            for name in _TABLES
        }
        return cls(members=parts[0].members, **fields)

    def of_rows(self, mask: NDArray[np.bool_]) -> JudgedRows:
        """The scores of selected rows, by a mask ``[n]``."""
        fields: dict[str, Any] = {name: getattr(self, name)[mask] for name in _ARRAYS} | {
            name: {key: values[mask] for key, values in getattr(self, name).items()} for name in _TABLES
        }
        return JudgedRows(members=self.members, **fields)


def judge_rows(
    posterior: Posterior, encoded: NDArray[np.float32], targets: NDArray[np.float64], groups: Sequence[HeldOut]
) -> JudgedRows:
    """Score held-out rows, each under its judges.

    Args:
        posterior: The fit.
        encoded: All rows of the table, ``[N, D]``.
        targets: Their targets, ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
    """
    parts = []
    with torch.inference_mode():
        for number, group in enumerate(groups):
            for rows in np.split(group.rows, range(ROWS_PER_CHUNK, len(group.rows), ROWS_PER_CHUNK)):
                features = torch.from_numpy(encoded[rows]).to(posterior.device)
                truth = torch.from_numpy(targets[rows]).to(posterior.device)
                drawn = posterior.drawn(features, SAMPLES, posterior.seed, members=group.members)
                parts.append(_judged(posterior, drawn, truth, group, rows, number))
    give_back()
    return JudgedRows.joined(parts)


def _judged(
    posterior: Posterior, drawn: DrawnRows, truth: Tensor, group: HeldOut, rows: NDArray[np.int64], number: int
) -> JudgedRows:
    """Score a chunk of rows of one group."""
    members = posterior.architecture.members
    predictive = drawn.predictive()
    scores = _normal_scores(predictive, truth)
    split = predictive.split()
    together = alone = _values(predictive, truth, scores, split)
    judges = members if group.members is None else len(group.members)
    if 1 < judges < members:
        # The draws of one judge are some of the draws of all, so no row goes through the network twice.
        singles = []
        for member in group.members or ():
            own = drawn.members == member
            single = drawn.target.predictive(drawn.outputs[own], drawn.members[own])
            singles.append(_values(single, truth, _normal_scores(single, truth), single.split()))
        alone = {name: np.mean([single[name] for single in singles], axis=0) for name in together}
    levels = (100.0 * torch.special.ndtr(torch.from_numpy(GRID))).tolist()
    return JudgedRows(
        rows=rows,
        groups=np.full(len(rows), number),
        judges=np.full(len(rows), judges),
        members=members,
        targets=_array(truth),
        means=_array(split[0]),
        alone=alone,
        together=together,
        scores=scores,
        percentiles=drawn.percentiles(levels),
        outside=drawn.outside.mask.cpu().numpy(),
    )


def _values(
    predictive: Predictive, truth: Tensor, scores: NDArray[np.float64], split: tuple[Tensor, Tensor, Tensor]
) -> dict[str, NDArray[np.float64]]:
    mean, epistemic, aleatoric = split
    return {
        "square": _array((mean - truth).square()),
        "absolute": _array((mean - truth).abs()),
        "nll": _array(-predictive.log_density(truth)),
        "crps": _array(predictive.crps(truth)),
        "variance": _array(epistemic.square() + aleatoric.square()),
        "reach": np.minimum(np.abs(scores), FURTHEST_SCORE),
    }


def _normal_scores(predictive: Predictive, truth: Tensor) -> NDArray[np.float64]:
    return _array(predictive.normal_score(truth.unsqueeze(0))[0])


def _array(values: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = values.cpu().numpy()
    return array
