"""Labelled rows for a version of a checkpoint, and what they say of a new version that is made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.errors import TableError
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.tables.columns import canonical_column
from murho.model.tables.inference import infer_column
from murho.model.tables.schema import Columns, Feature, FeatureKind, Target
from murho.model.tables.schema_inference import columns_from_table, read_targets
from murho.model.tables.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut, Units, find_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.bbb.fit import Epoch
    from murho.model.calibration.class_calibration import Calibration
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded
    from murho.model.evaluation.judged_rows import JudgedRows


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

    def standardise_targets(self, posterior: Posterior) -> torch.Tensor:
        """Return the transformed and standardised targets, ``[N]``, float32."""
        return posterior.spec.target.forward(torch.from_numpy(self.targets)).float()


def labelled_rows(table: pa.Table, posterior: Posterior) -> LabelledRows:
    """Encode the labelled rows of a table with the schema, encoding and transform of a checkpoint.

    Columns that are not in the schema are ignored. Cells beyond the training range and unseen categories are accepted
    and counted. Missing cells are accepted only where training rows had some: an answer averages over what a missing
    cell may have been, but the network has learned no input for it.

    Args:
        table: The table, as `model.tables.table_files.read_table` returns it.
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
    """Return the labels of the training's ``--group`` columns that the table has, of the labelled rows."""
    names = posterior.spec.training.get("options", {}).get("group", ())
    groups = {}
    for name in names:
        if name in table.column_names:
            column = canonical_column(table.column(name), FeatureKind.CATEGORICAL, name)[labelled]
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


@dataclass(frozen=True, slots=True)
class Revised:
    """A version that was made of another one.

    Attributes:
        posterior: The version, with its specification.
        kind: ``update`` or ``pruning``.
        before: Metrics of the version before on the labelled rows; None if there are none.
        after: Those of the new one.
        judged: The rows that ``after`` is about, judged; None if there are none, or if it has learned from them.
        history: All epochs of a fit.
    """

    posterior: Posterior
    kind: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    judged: JudgedRows | None = None
    history: tuple[Epoch, ...] = ()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the version says of the revision."""
        facts: Mapping[str, Any] = self.posterior.spec.records[self.kind]
        return facts


def revise(
    old: Posterior,
    new: Posterior,
    kind: str,
    facts: Mapping[str, Any],
    rows: LabelledRows | None,
    groups: Sequence[HeldOut] = (),
    *,
    calibrating: Sequence[int] = (),
    units: Units | None = None,
    earlier: Calibration | None = None,
    history: tuple[Epoch, ...] = (),
) -> Revised:
    """Judge a new version beside the old one by the same rows, calibrate it, and record what made it.

    Scores take the place of those in ``model.json`` if the rows are many, or if it has none.

    Args:
        old: The version before.
        new: The new one, with the calibration of the old one.
        kind: ``update`` or ``pruning``.
        facts: What the version says of the revision, besides rows, scores and the calibration: ``pooled`` with that of
            the version before, ``made`` anew, ``kept`` or ``none``.
        rows: Labelled rows; None: the version is not judged.
        groups: Numbers of the rows to judge by, with the members that have not learned from them.
        calibrating: Numbers of the groups whose rows make the calibration.
        units: Rows that are not independent.
        earlier: A calibration to pool with.
        history: All epochs of a fit.
    """
    spec, before, found = new.spec, None, None
    calibration = "none" if spec.calibration is None else "kept"
    if rows is not None:
        before = calibrate_held_out(old, rows.encoded, rows.targets, groups, calibrating=()).metrics
        found = calibrate_held_out(
            new,
            rows.encoded,
            rows.targets,
            groups,
            calibrating=calibrating,
            units=None if units is None else units.of_rows,
            even=units is not None and units.grouped,
            earlier=earlier,
        )
        if found.conformal is not None:
            calibration = "made" if earlier is None else "pooled"
            spec = replace(spec, calibration=found.conformal)
    after = None if found is None else {**found.metrics, "held_out": facts.get("held_out", True)}
    if rows is not None and after is not None and (len(rows) >= FEWEST_ROWS_TO_CALIBRATE or not spec.metrics):
        spec = replace(spec, metrics=after)
    record = {
        **facts,
        "from_version": old.version,
        "rows": None if rows is None else len(rows),
        "calibration": calibration,
        "before": _scores(before),
        "after": _scores(after),
    }
    spec = replace(spec, records={**spec.records, kind: record})
    return Revised(new.with_spec(spec), kind, before, after, None if found is None else found.held_out, history)


def _scores(report: dict[str, Any] | None) -> dict[str, float] | None:
    """Return the scores of an evaluation that are kept."""
    kept = ("nll", "crps", "rmse", "log_loss", "accuracy", "brier")
    return None if report is None else {name: report[name] for name in kept if name in report}
