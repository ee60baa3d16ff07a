"""Totals of held-out rows, compared with what was predicted for them, and the calibration that follows.

Rows of a fold have judges, the members that have not seen them. Their draws predict totals of blocks of these rows:
random ones, rows alike in one input, rows alike in the prediction, rows of one unit, rows that follow each other in
time. With J judges and M members the squared error of a total, and the covariance that draws give it, are those for J;
both fall or rise in expectation by ``B (1 / J - 1 / M)`` with the variance B of the total between single judges
(`model.bbb.rows`), so those for M members are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.calibration.totals import HeldOutTotals, TotalsCalibration, fit_totals
from murho.model.predictive.plans import PredictionPlan
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.splits import HeldOut

__all__ = ["calibrate_totals"]

DRAWS_PER_JUDGE = 24
MOST_ROWS = 1_000
"""Rows of a fold whose totals are compared."""
SIZES = (5, 20, 60, 200)
"""Rows of a block."""
MOST_INPUTS = 8
"""Inputs along which rows are put into blocks."""


@torch.inference_mode()
def calibrate_totals(
    posterior: Posterior,
    encoded: Encoded,
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    conformal: ConformalMap | None,
    *,
    units: NDArray[np.generic] | None = None,
    in_time: bool = False,
    seed: int = 0,
) -> TotalsCalibration | None:
    """The calibration of totals of numbers; None for fewer than 20 held-out rows.

    Args:
        posterior: The fit.
        encoded: All rows of the table.
        targets: Their targets, ``[N]``, in the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
        conformal: Calibrates the rows; None: they are raw.
        units: Id of each row's unit, ``[N]``, such as a patient; None: each row is one.
        in_time: Whether the table is in the order of time.
        seed: Seed of random blocks.
    """
    rng, found = np.random.default_rng(seed), []
    for group in groups:
        rows = group.rows if len(group.rows) <= MOST_ROWS else rng.choice(group.rows, MOST_ROWS, replace=False)
        rows = np.sort(rows) if in_time else rng.permutation(rows)
        members = tuple(range(posterior.architecture.members)) if group.members is None else tuple(group.members)
        samples = DRAWS_PER_JUDGE * len(members)
        drawn = posterior.drawn(encoded[rows], samples, posterior.seed, members=members)
        options = PredictOptions(samples=samples, percentiles=(), draws=True, noise_moments=True)
        answer = drawn.answer(PredictionPlan.of(options, conformal, drawn.outputs.device))
        stretch = answer["epistemic_std"] / np.maximum(answer["draws"].std(axis=1), 1e-300)
        values = ((answer["draws"] - answer["draws"].mean(axis=1, keepdims=True)) * stretch[:, None]).T
        judge = drawn.members.cpu().numpy()
        of_judges = np.stack([values[judge == member].mean(axis=0) for member in members])
        errors, own, noise = targets[rows] - answer["mean"], answer["epistemic_std"] ** 2, answer["aleatoric_std"]
        share = 1.0 / len(members) - 1.0 / posterior.architecture.members
        blocks = list(
            _blocks(encoded.inputs[rows], answer["mean"], None if units is None else units[rows], in_time, rng)
        )
        for weight, block in blocks:
            between = of_judges[:, block].sum(axis=1).var(ddof=1) * share if len(members) > 1 else 0.0
            same = noise[block]
            found.append(
                HeldOutTotals(
                    rows=len(block),
                    error=float(errors[block].sum() ** 2 - between),
                    own=float(own[block].sum()),
                    noise=float((same**2).sum()),
                    noise_sum=float(same.sum()),
                    same_unit=0.0 if units is None else _same_unit(same, units[rows][block]),
                    drawn=float(values[:, block].sum(axis=1).var() + between),
                    weight=weight,
                )
            )
    if sum(len(group.rows) for group in groups) < 20 or not found:
        return None
    return fit_totals(found, units=units is not None, in_time=in_time)


def _same_unit(noise: NDArray[np.float64], units: NDArray[np.generic]) -> float:
    numbers = np.unique(units, return_inverse=True)[1]
    return float((np.bincount(numbers, noise) ** 2).sum() - (noise**2).sum())


def _blocks(
    inputs: NDArray[np.float32],
    predicted: NDArray[np.float64],
    units: NDArray[np.generic] | None,
    in_time: bool,
    rng: np.random.Generator,
) -> Iterator[tuple[float, NDArray[np.intp]]]:
    """Blocks of rows, each with its weight: all orders of the rows together count like one."""
    count, flat = len(predicted), inputs if inputs.ndim == 2 else inputs[0]
    spread = flat.std(axis=0)
    columns = [column for column in np.argsort(-spread, kind="stable")[:MOST_INPUTS].tolist() if spread[column] > 0.0]
    orders = [np.arange(count)] if in_time else [rng.permutation(count), np.argsort(predicted, kind="stable")]
    if not in_time:
        orders += [np.lexsort((rng.random(count), flat[:, column])) for column in columns]
    if units is not None:
        orders = [np.lexsort((rng.random(count), rng.permutation(int(np.unique(units).size))[_codes(units)]))]
    for order in orders:
        for size in SIZES:
            if 2 * size <= count:
                for block in np.array_split(order, count // size):
                    yield 1.0 / (len(orders) * len(SIZES)), block


def _codes(units: NDArray[np.generic]) -> NDArray[np.intp]:
    codes: NDArray[np.intp] = np.unique(units, return_inverse=True)[1].astype(np.intp)
    return codes
