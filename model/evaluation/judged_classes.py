"""Class probabilities of labelled rows, raw and calibrated, as answers give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.distributions.class_predictive import entropy
from murho.model.encoding.imputation import rows_to_impute
from murho.model.engines.class_plan import ClassPlan
from murho.model.engines.prediction import PredictOptions
from murho.model.errors import OptionError
from murho.model.posterior.imputed_rows import in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns
    from murho.model.distributions.class_calibration import ClassCalibration
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = ["JudgedClasses", "judge_class_blocks", "judge_classes"]

ROWS_PER_CHUNK = 4_096
"""Rows encoded at a time; encoded rows can be many times as wide as the table."""
VALUES_PER_PASS = 2**22
"""Probabilities of rows, draws and classes at a time: 32 MiB."""
MOST_ROWS_PER_PASS = 256


@dataclass(frozen=True, slots=True)
class JudgedClasses:
    """Probabilities of N rows.

    Attributes:
        classes: Names of the C classes.
        raw: Raw probabilities, ``[N, C]``.
        calibrated: Calibrated ones, ``[N, C]``; None without calibration.
        epistemic_entropy: Mutual information of class and weights in the served probabilities, nats, ``[N]``.
        calibration: The calibration of the checkpoint, or None.
    """

    classes: tuple[str, ...]
    raw: NDArray[np.float64]
    calibrated: NDArray[np.float64] | None
    epistemic_entropy: NDArray[np.float64]
    calibration: ClassCalibration | None

    @property
    def served(self) -> NDArray[np.float64]:
        """The probabilities that answers give, ``[N, C]``."""
        return self.raw if self.calibrated is None else self.calibrated

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of the served probabilities, nats, ``[N]``."""
        found: NDArray[np.float64] = entropy(torch.from_numpy(self.served), dim=1).numpy()
        return found

    def sets(self, coverages: Sequence[int], *, calibrated: bool = True) -> dict[int, NDArray[np.bool_]]:
        """Prediction sets by nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.

        Args:
            coverages: In per cent.
            calibrated: Whether to use the calibration, if there is one; else the sets are raw.
        """
        use = calibrated and self.calibrated is not None
        probabilities = torch.from_numpy(self.served if use else self.raw)
        calibration = self.calibration if use else None
        plans = {coverage: _plan(0.01 * coverage, calibration, self.classes) for coverage in coverages}
        return {coverage: plan.sets(probabilities).numpy() for coverage, plan in plans.items()}


def judge_classes(posterior: Posterior, columns: Columns, samples: int, advance: Advance) -> JudgedClasses:
    """Compute the probabilities of all rows, a chunk at a time; missing cells that training rows had not are imputed.

    Args:
        posterior: The posterior of a classifier.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        samples: S, at least 1.
        advance: Called with the number of rows of each finished chunk.

    Raises:
        OptionError: S is 0: the mu-only network has no doubt to judge.
    """
    count = len(next(iter(columns.values())))
    return judge_class_blocks(posterior, [(slice(0, count), columns)], count, samples, advance)


def judge_class_blocks(
    posterior: Posterior, blocks: Iterable[tuple[slice, Columns]], count: int, samples: int, advance: Advance
) -> JudgedClasses:
    """`judge_classes` of rows that come in blocks, of which only probabilities are kept.

    Args:
        posterior: The posterior of a classifier.
        blocks: The place of each block among the N rows, and its columns, ``[B]`` each.
        count: N.
        samples: S, at least 1.
        advance: Called with the number of rows of each finished chunk.

    Raises:
        OptionError: S is 0.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    classes = posterior.schema.target.classes or ()
    joined = {"raw": np.empty((count, len(classes))), "epistemic_entropy": np.empty(count)}
    if posterior.calibration is not None:
        joined["served"] = np.empty((count, len(classes)))
    for block, columns in blocks:
        for start in range(0, block.stop - block.start, ROWS_PER_CHUNK):
            chunk = {name: column[start : start + ROWS_PER_CHUNK] for name, column in columns.items()}
            part = _judged(posterior, chunk, samples)
            rows = len(part["raw"])
            for name, values in joined.items():
                values[block.start + start : block.start + start + rows] = part[name]
            advance(rows)
    return JudgedClasses(
        classes=classes,
        raw=joined["raw"],
        calibrated=joined.get("served"),
        epistemic_entropy=joined["epistemic_entropy"],
        calibration=posterior.calibration,
    )


def _judged(posterior: Posterior, columns: Columns, samples: int) -> dict[str, NDArray[np.float64]]:
    """Arrays ``[B, …]`` of a chunk of rows, in order."""
    parts, numbers = [], []
    for rows, part, imputed in in_pieces(columns, rows_to_impute(posterior.schema, columns), posterior.encoder.width):
        encoded = posterior.encoder.encode_copies(part) if imputed else posterior.encoder.encode(part)
        parts += _passes(posterior, encoded, samples)
        numbers.append(rows)
    order = np.argsort(np.concatenate(numbers))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


@torch.inference_mode()
def _passes(posterior: Posterior, encoded: NDArray[np.float32], samples: int) -> list[dict[str, NDArray[np.float64]]]:
    """Arrays of encoded rows ``[B, D]``, or R imputed copies of each ``[R, B, D]``, by passes through the network."""
    classes, device = posterior.schema.target.classes or (), posterior.device
    per_pass = max(1, min(MOST_ROWS_PER_PASS, VALUES_PER_PASS // (samples * len(classes))))
    raw_plan = _plan(0.9, None, classes, device)
    plan = raw_plan if posterior.calibration is None else _plan(0.9, posterior.calibration, classes, device)
    found = []
    for start in range(0, encoded.shape[-2], per_pass):
        rows = torch.from_numpy(encoded[..., start : start + per_pass, :]).to(device)
        drawn = posterior.drawn(rows, samples, posterior.seed)
        predictive = drawn.predictive()
        served = plan.probabilities(predictive, drawn.outside)
        doubt = entropy(served, dim=1) - predictive.settled(served).expected_entropy
        found.append(
            {
                "raw": _array(raw_plan.probabilities(predictive, drawn.outside)),
                "served": _array(served),
                "epistemic_entropy": _array(doubt.clamp_min(0.0)),
            }
        )
    return found


def _plan(
    coverage: float,
    calibration: ClassCalibration | None,
    classes: tuple[str, ...],
    device: torch.device | None = None,
) -> ClassPlan:
    return ClassPlan.of(PredictOptions(coverage=coverage), calibration, device or torch.device("cpu"), classes)


def _array(values: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.cpu().numpy().copy()
    return array
