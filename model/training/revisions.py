"""Labelled rows for a version of a checkpoint, and what they say of a new version that is made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.errors import TableError
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.tables.columns import canonical_column
from murho.model.tables.inference import infer_column
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table, read_targets
from murho.model.tables.splits import find_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded
    from murho.model.evaluation.held_out import Calibrated
    from murho.model.evaluation.rows import JudgedRows
    from murho.model.tables.schema import Columns, Feature, Target
    from murho.model.tables.splits import HeldOut, Units

__all__ = [
    "LabelledRows",
    "Revised",
    "judge_both",
    "labelled_rows",
    "score_facts",
]


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows with a target, encoded for the network of a checkpoint.

    Attributes:
        encoded: The rows as inputs.
        targets: ``[N]``, the target's unit; of classes their indices.
        columns: Canonical columns of the features, ``[N]`` each.
        numbers: Number of each row in the table, from 1, ``[N]``.
        left_out: Number of rows without a target.
        outside: Feature → number of rows that it makes unlike the training rows.
        units: Rows that are held out together: those with the same features, and the groups of the training if the
            table has their columns.
    """

    encoded: Encoded
    targets: NDArray[np.float64]
    columns: Columns
    numbers: NDArray[np.int64]
    left_out: int
    outside: dict[str, int]
    units: Units

    def __len__(self) -> int:
        return len(self.targets)

    def standardised(self, posterior: Posterior) -> torch.Tensor:
        """The transformed and standardised targets, ``[N]``, float32."""
        return posterior.spec.target.forward(torch.from_numpy(self.targets)).float()


def labelled_rows(table: pa.Table, posterior: Posterior) -> LabelledRows:
    """Encode the labelled rows of a table with the schema, encoding and transform of a checkpoint.

    Columns that are not in the schema are ignored. Cells beyond the training range and unseen categories are accepted
    and counted. Missing cells are accepted only where training rows had some: an answer averages over what a missing
    cell may have been, but the network has learned no input for it.

    Args:
        table: The table, as `model.tables.files.read_table` returns it.
        posterior: The posterior of the checkpoint.

    Raises:
        TableError: A feature or the target is missing or has the wrong kind, a cell can't be used, a class is none of
            the checkpoint's, or no row has a target; column and row are named.
    """
    schema = posterior.schema
    name = schema.target.name
    targets = _targets(table, schema.target)
    posterior.likelihood.require_targets(targets, name)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {name!r}")
    columns = columns_from_table(table, schema, complete=True)
    for feature in schema.features:
        _check_categories(feature, table.column(feature.name), columns)
    _check_domain(posterior, targets, labelled)
    columns = {feature: column[labelled] for feature, column in columns.items()}
    return LabelledRows(
        encoded=posterior.encoder.encode(columns),
        targets=targets[labelled],
        columns=columns,
        numbers=labelled + 1,
        left_out=len(targets) - len(labelled),
        outside=dict(Counter(found.feature for found in posterior.schema.outside(columns))),
        units=find_units(columns, _groups(table, posterior, labelled)),
    )


def _targets(table: pa.Table, target: Target) -> NDArray[np.float64]:
    try:
        return read_targets(table, target)
    except TableError as error:
        if target.classes is None or error.row is None:
            raise
        raise TableError(
            f"{error}. A checkpoint keeps the classes of its training: train again on all rows to predict another "
            "one, or leave its rows out",
            row=error.row,
        ) from error


def _groups(table: pa.Table, posterior: Posterior, labelled: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The canonical columns of the training's ``--group`` option that the table has, of the labelled rows."""
    names = posterior.spec.training.get("options", {}).get("group", ())
    groups = {}
    for name in names:
        if name in table.column_names:
            inference = infer_column(table.column(name), name)
            column = canonical_column(table.column(name), inference.kind, name, inference.reading)[labelled]
            if 1 < len(set(column.tolist())) < len(column):  # else there is no group to hold out
                groups[name] = column
    return groups


def _check_categories(feature: Feature, column: pa.ChunkedArray, columns: Columns) -> None:
    """Refuse numbers, dates or booleans in a categorical column; unseen texts are accepted."""
    present = [cell for cell in columns[feature.name].tolist() if cell is not None]
    if feature.kind is not FeatureKind.CATEGORICAL or not present or set(present) & set(feature.categories):
        return
    try:
        kind = infer_column(column, feature.name).kind
    except TableError:  # such as a mixture of numbers and texts: may be categories
        return
    if kind is not FeatureKind.CATEGORICAL:
        shown = ", ".join(map(repr, feature.categories[:3]))
        raise TableError(
            f"column {feature.name!r}: expected categories such as {shown}, found a {kind} column, "
            f"such as {present[0]!r}"
        )


def _check_domain(posterior: Posterior, targets: NDArray[np.float64], labelled: NDArray[np.int64]) -> None:
    """Refuse targets outside of the domain of the checkpoint's transform, such as negative ones of a logarithm."""
    observed, transform = torch.from_numpy(targets[labelled]), posterior.transform
    there_and_back = transform.inverse(transform.forward(observed)).numpy()
    kept = np.isclose(there_and_back, observed, rtol=1e-6, atol=1e-6 * float(observed.abs().mean()))
    if not kept.all():
        row = int(labelled[np.argmin(kept)])
        raise TableError(
            f"column {posterior.schema.target.name!r}, row {row + 1}: the target {targets[row]:g} lies outside of what "
            f"the checkpoint's transform {transform.kind!r} can take; train anew on all rows"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """A new version of a checkpoint, made of an old one, and what labelled rows say of both.

    Attributes:
        posterior: The new version, for `model.checkpoint.checkpoint.write_checkpoint`.
        before: Metrics of the old version on the rows, as `calibrate_held_out` returns them; None without rows.
        after: Metrics of the new version, likewise.
        calibration: What became of the calibration: ``kept``, ``none``, or how the rows have made one.
        judged: The new version's predictions for the rows that ``after`` is of; None without rows.
    """

    posterior: Posterior
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    calibration: str
    judged: JudgedRows | None


def judge_both(
    old: Posterior, new: Posterior, rows: LabelledRows, groups: Sequence[HeldOut], **options: Any
) -> tuple[dict[str, Any], Calibrated]:
    """Metrics of the old version, and what the rows say of the new one.

    NLL, CRPS and RMSE of a number are those of the raw predictive. Log loss, accuracy and Brier score of a class are of
    the probabilities that answers give: with the version's own calibration, unless the rows make another one.

    Args:
        old: The old version.
        new: The new version.
        rows: The labelled rows.
        groups: Which of them are judged, and by which members.
        options: Of the new version, see `model.evaluation.held_out.calibrate_held_out`.
    """
    before = calibrate_held_out(old, rows.encoded, rows.targets, groups, calibrating=()).metrics
    return before, calibrate_held_out(new, rows.encoded, rows.targets, groups, **options)


def score_facts(report: dict[str, Any] | None) -> dict[str, float] | None:
    """The scores that ``model.json`` keeps of metrics."""
    if report is None:
        return None
    return {name: report[name] for name in ("nll", "crps", "rmse", "log_loss", "accuracy", "brier") if name in report}
