"""Totals of held-out rows, compared with what was predicted for them, and the calibration that follows.

Rows of a fold have judges, the members that have not seen them. Their draws predict totals of blocks of these rows:
random ones, rows alike in one feature, rows alike in the prediction, rows of one unit, rows that follow each other in
time. Of a classifier the totals are the counts of each class. With J judges and M members the squared error of a total,
and the covariance that draws give it, are those for J; both fall or rise in expectation by ``B (1 / J - 1 / M)`` with
the variance B of the total between single judges (`model.bbb.rows`), so those for M members are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.calibration.totals import HeldOutTotals, TotalsCalibration, fit_totals
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.totals import RowMoments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.calibration.classes import Calibration
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.splits import HeldOut

__all__ = ["calibrate_totals"]

DRAWS_PER_JUDGE = 24
LEAST_ROWS, MOST_ROWS = 20, 4_000
"""Held-out rows in all from which on totals are compared, and most rows of a fold: the more, the more alike are the
rows of a block. With 1,000, bands of 50 neighbours in California held 82 % where they promised 90 %."""
SIZES = (5, 20, 60, 200)
"""Rows of a block."""
MOST_FEATURES = 8
"""Features along which rows are put into blocks: those whose inputs vary most."""


@torch.inference_mode()
def calibrate_totals(
    posterior: Posterior,
    encoded: Encoded,
    targets: NDArray[np.float64],
    groups: Sequence[HeldOut],
    calibration: Calibration | None,
    *,
    units: NDArray[np.generic] | None = None,
    in_time: bool = False,
    seed: int = 0,
) -> TotalsCalibration | None:
    """The calibration of totals of numbers, or of counts of classes; None for fewer than 20 held-out rows.

    Args:
        posterior: The fit.
        encoded: All rows of the table.
        targets: Their targets, ``[N]``, in the target's unit; of a classifier the indices of their classes.
        groups: Held-out rows, each with the members that have not seen them.
        calibration: Calibrates the rows; None: they are raw.
        units: Id of each row's unit, ``[N]``, such as a patient; None: each row is one.
        in_time: Whether the table is in the order of time.
        seed: Seed of random blocks.
    """
    rng, found = np.random.default_rng(seed), []
    classes = len(posterior.schema.target.classes or (None,))
    for group in groups:
        rows = group.rows[-MOST_ROWS:] if in_time else rng.permutation(group.rows)[:MOST_ROWS]
        members = range(posterior.architecture.members) if group.members is None else group.members
        samples = DRAWS_PER_JUDGE * len(members)
        options = PredictOptions(samples=samples, percentiles=(), draws=True, noise_moments=True)
        drawn = posterior.drawn(encoded[rows], samples, posterior.seed, members=tuple(members))
        plan = posterior.target.plan(options, calibration, drawn.outputs.device)
        facts = {"samples": samples, "seed": posterior.seed, "calibrated": calibration is not None}
        moments = RowMoments.of(plan.prediction(drawn.answer(plan), **facts))
        truth = targets[rows, None] if classes == 1 else np.eye(classes)[targets[rows].astype(np.intp)]
        judge, errors = drawn.members.cpu().numpy(), truth - moments.mean
        share = 1.0 / len(members) - 1.0 / posterior.architecture.members
        of_units = None if units is None else np.unique(units[rows], return_inverse=True)[1]
        alike = moments.mean[:, 0] if classes == 1 else moments.mean.argmax(axis=1) + moments.mean.max(axis=1)
        inputs = encoded.inputs[rows] if encoded.inputs.ndim == 2 else encoded.inputs[0, rows]
        features = [inputs[:, own] for own in posterior.encoder.columns_of.values()]
        for weight, index in _blocks(features, alike, of_units, in_time, rng):
            count = int(index.max()) + 1
            (values, _), (_, own, noise, _, noise_sum, imputed) = moments.added(index, np.ones(len(rows)), count)
            of_judges = np.stack([values[judge == member].mean(axis=0) for member in members])
            between = share * of_judges.var(axis=0, ddof=1) if len(members) > 1 else np.zeros((count, classes))
            found.append(
                HeldOutTotals.of(
                    rows=np.bincount(index)[:, None],
                    error=_summed(index, errors) ** 2 - between,
                    own=own,
                    noise=noise,
                    noise_sum=noise_sum,
                    same_unit=0.0 if of_units is None else _pairs(moments.aleatoric, of_units, index),
                    drawn=values.var(axis=0) + imputed + between,
                    weight=weight * max(1, classes - 1) / classes,  # the counts of C classes have C - 1 free ones
                )
            )
    if sum(len(group.rows) for group in groups) < LEAST_ROWS or not found:
        return None
    return fit_totals(HeldOutTotals.joined(found), units=units is not None, in_time=in_time)


def _summed(index: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over rows with the same index, ``[n, C]``, from ``[B, C]``."""
    return np.stack([np.bincount(index, column) for column in values.T], axis=1)


def _pairs(noise: NDArray[np.float64], units: NDArray[np.intp], index: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sum over pairs of rows of one unit and block of the products of their noise std, for each block, ``[n, C]``."""
    both = index * (int(units.max()) + 1) + units
    pairs, places = np.unique(both, return_inverse=True)
    squares = _summed(places, noise) ** 2
    return _summed(pairs // (int(units.max()) + 1), squares) - _summed(index, noise**2)


def _blocks(
    features: Sequence[NDArray[np.float32]],
    predicted: NDArray[np.float64],
    units: NDArray[np.intp] | None,
    in_time: bool,
    rng: np.random.Generator,
) -> Iterator[tuple[float, NDArray[np.intp]]]:
    """Ways to put the rows into blocks: the weight of one, and the number of each row's block.

    Together they count as if each row were in one block. In time there is one block of all rows as well, and small ones
    count less: those that follow each other err alike.
    """
    count = len(predicted)
    if in_time:
        orders = [np.arange(count)]
    elif units is not None:
        orders = [np.argsort(rng.permutation(int(units.max()) + 1)[units], kind="stable")]
    else:
        spread = [float(each.var(axis=0).sum()) for each in features]
        varied = [features[place] for place in np.argsort(spread)[::-1] if spread[place] > 0.0]
        orders = [rng.permutation(count), np.argsort(predicted, kind="stable")]
        orders += [np.lexsort((rng.random(count), *each.T)) for each in varied[:MOST_FEATURES]]
    sizes = [size for size in SIZES if 2 * size <= count] + [count] * in_time
    for order in orders:
        for size in sizes:
            index = np.empty(count, dtype=np.intp)
            index[order] = np.arange(count) * (count // size) // count
            yield (size / count) ** 0.5 if in_time else 1.0 / (len(orders) * len(SIZES)), index
