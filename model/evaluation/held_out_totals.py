"""Totals of held-out rows, compared with what was predicted for them, and the calibration that follows.

Each row has judges, the members that have not learned from it. The errors of two rows tell of the error of a total of
new rows only if the same judge has seen neither: a network that learned from one row errs about the next in the other
direction. So each judge alone predicts totals of blocks of its rows: random ones, rows alike in one feature, rows alike
in the prediction, rows of one unit, rows that follow each other in time. Of a classifier the totals are the counts of
each class. The squared error of M members together is smaller than that of J judges by ``B (1 / J - 1 / M)`` in
expectation, with the variance B of the total between single members (`model.bbb.fit_rows`).

The spread is that of the draws of all members, as they will answer. Draws of a mean-field posterior, whose weights are
independent, move all rows together far more than the data allow (`determined_share`). That is known without held-out
rows, of which a small table has too few for totals.

Rows of one unit, and rows in time, depend on each other. Members that have learned from a unit know what is its own,
and each judge of time knows another past. So there all judges of a row predict together, and only they draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from murho.model.arrays import Doubles, Floats, Ints, Places
from murho.model.calibration.class_calibration import Calibration
from murho.model.calibration.totals_calibration import HeldOutTotals, TotalsCalibration, fit_totals
from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.row_moments import RowMoments
from murho.model.tables.splits import HeldOut

DRAWS_PER_MEMBER = 24
LEAST_ROWS, MOST_ROWS = 20, 4_000
"""Held-out rows in all from which on totals are compared, and most rows of a fold: the more, the more alike are the
rows of a block. With 1,000, bands of 50 neighbours in California held 82 % where they promised 90 %."""
LEAST, SHARED_LEAST = 1e-300, 1.0 / 64.0
"""Floor of what is divided by, and of the expected share."""
SIZES = (5, 20, 60, 200)
"""Rows of a block."""
MOST_FEATURES = 8
"""Features along which rows are put into blocks: those whose inputs vary most."""


@torch.inference_mode()
def calibrate_totals(
    posterior: Posterior,
    encoded: Encoded,
    targets: Doubles,
    groups: Sequence[HeldOut],
    calibration: Calibration | None,
    *,
    units: NDArray[np.generic] | None = None,
    in_time: bool = False,
    seed: int = 0,
) -> TotalsCalibration | None:
    """Return the calibration of totals of numbers, or of counts of classes; None for fewer than 20 held-out rows.

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
    classes, count = len(posterior.schema.target.classes or (None,)), posterior.architecture.members
    every = tuple(range(count))

    def moments_of(rows: Ints, members: Sequence[int]) -> tuple[RowMoments, Ints]:
        """Return what rows add to totals under draws of some members, and the member of each draw."""
        samples = DRAWS_PER_MEMBER * len(members)
        options = PredictOptions(samples=samples, percentiles=(), draws=True, noise_moments=True)
        drawn = posterior.draw_rows(encoded[rows], samples, posterior.seed, members=members)
        plan = posterior.target.plan(options, calibration, drawn.outputs.device)
        facts = {"samples": samples, "seed": posterior.seed, "calibrated": calibration is not None}
        answer = plan.prediction(drawn.answer(plan), extrapolation=encoded.extrapolation[rows], **facts)
        return RowMoments.of(answer), drawn.members.cpu().numpy()

    def blocks_of(rows: Ints, moments: RowMoments, of_units: Places | None) -> Iterator[tuple[float, Places]]:
        alike = moments.mean[:, 0] if classes == 1 else moments.mean.argmax(axis=1) + moments.mean.max(axis=1)
        inputs = encoded.inputs[rows] if encoded.inputs.ndim == 2 else encoded.inputs[0, rows]
        features = [inputs[:, own] for own in posterior.encoder.columns_of.values()]
        return _blocks(features, alike, of_units, in_time, rng)

    if sum(len(group.rows) for group in groups) < LEAST_ROWS:
        return None
    held_out = np.concatenate([group.rows for group in groups])
    dependent = units is not None or in_time
    judged = groups if dependent else _of_single_judges(groups)
    repeats = sum(len(group.rows) for group in judged) / len(held_out)
    for group in judged:
        rows = group.rows[-MOST_ROWS:] if in_time else rng.permutation(group.rows)[:MOST_ROWS]
        judges = every if group.members is None else group.members
        members = judges if dependent else every
        moments, member = moments_of(rows, members)
        truth = targets[rows, None] if classes == 1 else np.eye(classes)[targets[rows].astype(np.intp)]
        of_members = np.stack([moments.values[:, member == each].mean(axis=1) for each in members])  # [members, B, C]
        of_judges = of_members[[members.index(each) for each in judges]].mean(axis=0)
        errors = truth - (moments.mean + of_judges - of_members.mean(axis=0))
        too_few, too_few_drawn = (1.0 / len(some) - 1.0 / count for some in (judges, members))
        of_units = None if units is None else np.unique(units[rows], return_inverse=True)[1]
        for weight, index in blocks_of(rows, moments, of_units):
            n = int(index.max()) + 1
            (values, _), (_, own, noise, _, noise_sum, imputed) = moments.add_up(index, np.ones(len(rows)), n)
            totals = np.stack([_sum_by(index, of_member) for of_member in of_members])
            between = totals.var(axis=0, ddof=1) if len(members) > 1 else np.zeros((n, classes))
            found.append(
                HeldOutTotals.of(
                    rows=np.bincount(index)[:, None],
                    error=_sum_by(index, errors) ** 2 - too_few * between,
                    own=own,
                    noise=noise,
                    noise_sum=noise_sum,
                    same_unit=0.0 if of_units is None else _pairs(moments.aleatoric, of_units, index),
                    drawn=values.var(axis=0) + imputed + too_few_drawn * between,
                    # The counts of C classes have C - 1 free ones.
                    weight=weight / repeats * max(1, classes - 1) / classes,
                )
            )
    if not found:
        return None
    expected = 1.0
    if not dependent:  # correlated noise leaves more possible, and is not known yet
        rows = rng.permutation(held_out)[:MOST_ROWS]
        moments, _ = moments_of(rows, every)
        indices = [index for _, index in blocks_of(rows, moments, None)]
        of_one = [group.rows for group in groups if group.members is None or 0 in group.members]
        learned = max(1, len(encoded) - sum(map(len, of_one)))  # rows of one member
        expected = determined_share(moments, indices, learned)
    return fit_totals(HeldOutTotals.join(found), expected, units=units is not None, in_time=in_time)


def determined_share(moments: RowMoments, blocks: Sequence[Places], learned: float) -> float:
    """Return the share of the covariance of rows under draws that data leave possible, from 0 to 1.

    Of a linear function with independent Gaussian noise D and the prior covariance P of the function at the training
    rows, the posterior covariance K is ``(1 / P + 1 / D)^-1``. So no eigenvalue of ``D^-1/2 K D^-1/2`` is above 1. In a
    mean-field posterior the largest are: 6 to 30 in smooth functions of 500 rows. With those above 1 cut to 1, the
    covariance within totals is the returned share of what it was. It was 0.13 to 0.32 for four functions; the errors of
    totals of new rows had 0.18 to 0.35.

    Args:
        moments: Of B training rows, held out or not. The variance of a row counts as its noise: what the network can't
            follow tells nothing of the function either.
        blocks: Ways to put these rows into blocks, each the number of the block of each row, ``[B]``.
        learned: N, the number of training rows that the B rows stand for.
    """
    rows, samples, classes = moments.values.shape
    kept, all_of_it = 0.0, LEAST
    for number in range(classes):
        drawn = moments.values[..., number] * moments.stretch[0, :, None]
        drawn = (drawn - drawn.mean(axis=1, keepdims=True)) / samples**0.5
        noise = (moments.epistemic[:, number] ** 2 + moments.aleatoric[:, number] ** 2) * rows / learned
        sizes, axes = np.linalg.eigh(drawn.T @ (drawn / np.maximum(noise, LEAST)[:, None]))
        cut = axes / np.sqrt(np.maximum(sizes, 1.0))
        for index in blocks:
            totals = _sum_by(index, drawn)
            all_of_it += np.square(totals).sum() - np.square(drawn).sum()
            kept += np.square(totals @ cut).sum() - np.square(drawn @ cut).sum()
    return float(np.clip(kept / max(all_of_it, LEAST), SHARED_LEAST, 1.0))


def _of_single_judges(groups: Sequence[HeldOut]) -> list[HeldOut]:
    """Held-out rows of each judge alone, and the groups that all members judge."""
    judges = sorted({judge for group in groups for judge in group.members or ()})
    alone = [
        HeldOut(np.concatenate([group.rows for group in groups if group.members and judge in group.members]), (judge,))
        for judge in judges
    ]
    return alone + [group for group in groups if group.members is None]


def _sum_by(index: Places, values: Doubles) -> Doubles:
    """Return sums over rows with the same index, ``[n, C]``, from ``[B, C]``."""
    return np.stack([np.bincount(index, column) for column in values.T], axis=1)


def _pairs(noise: Doubles, units: Places, index: Places) -> Doubles:
    """Sum over pairs of rows of one unit and block of the products of their noise std, for each block, ``[n, C]``."""
    both = index * (int(units.max()) + 1) + units
    pairs, places = np.unique(both, return_inverse=True)
    squares = _sum_by(places, noise) ** 2
    return _sum_by(pairs // (int(units.max()) + 1), squares) - _sum_by(index, noise**2)


def _blocks(
    features: Sequence[Floats],
    predicted: Doubles,
    units: Places | None,
    in_time: bool,
    rng: np.random.Generator,
) -> Iterator[tuple[float, Places]]:
    """Ways to put the rows into blocks: the weight of one, and the number of each row's block.

    Of each size they count together as if each row were in one block; of units, those of all sizes do. In time there is
    one block of all rows as well, and small ones count less: those that follow each other err alike.
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
    least, at_once = (1, 1) if units is None and not in_time else (2, len(SIZES))
    sizes = [size for size in SIZES if least * size <= count] + [count] * in_time
    for order in orders:
        for size in sizes:
            index = np.empty(count, dtype=np.intp)
            index[order] = np.arange(count) * (count // size) // count
            yield (size / count) ** 0.5 if in_time else 1.0 / (len(orders) * at_once), index
