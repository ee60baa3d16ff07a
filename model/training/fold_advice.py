"""Advice: columns by which a table should perhaps be held out.

Rows held out at random say how good the answers for rows like them are: with other rows of the same group learned from,
and rows from before and after. Where new groups or later rows will be asked for, that says too much. So a column that
looks like groups or like time is named if the other rows of a group, or the rows before and after, tell the target.
Only the user knows what will be asked for.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.column_inference import infer_column
from murho.model.data.columns import canonical_column, is_missing
from murho.model.data.leaks import from_other_rows, ranks
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import IGNORED
from murho.model.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.data.schema_inference import ColumnPlan

__all__ = ["Advice", "advise"]

FEWEST_ROWS, FEWEST_GROUPS, FEWEST_TIMES = 100, 10, 21
TELLS = 0.3
"""Least correlation of the targets with what other rows tell. By chance it is 0 or less: no row counts for itself."""
_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|no|nr|num|number|code|key|uid|uuid|subject|patient|person|customer|user|client|member)$"
    r"|(?-i:(?<=[a-z])(?:I[dD]|No|Nr|Code)$)|^(?:id|zip|zipcode|postcode|plz)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice.

    Attributes:
        option: The option to give, such as ``--group patient``.
        correlation: Of the targets' ranks with those that other rows of the same group, or next in time, tell.
        message: The advice in words.
    """

    option: str
    correlation: float
    message: str

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"option": self.option, "correlation": self.correlation, "message": self.message}


def advise(table: pa.Table, plan: ColumnPlan, columns: Columns, targets: NDArray[np.float64]) -> list[Advice]:
    """Name columns whose values tell the target beyond the row itself.

    Args:
        table: The rows with a target, N, with the columns that are no features.
        plan: The features of the table.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: Targets, ``[N]``.

    Returns:
        The advice, the most urgent first; empty for fewer than 100 rows.
    """
    if len(targets) < FEWEST_ROWS:
        return []
    order, found = ranks(targets), []
    for name, kind, column in _columns(table, plan, columns):
        present = ~is_missing(column)
        values = len(set(column[present].tolist()))
        if kind is FeatureKind.DATE and values >= FEWEST_TIMES:
            option, what = "time", "matters like time: rows before and after a row tell about it. If later rows"
        elif _may_group(name, kind, column[present]) and FEWEST_GROUPS <= values <= present.sum() / 2:
            option, alike = "group", f"{values} values, and rows of the same value tell about each other"
            what = f"looks like groups: {alike}. If rows of new values"
        else:
            continue
        told = from_other_rows(column[present], order[present], ordered=option == "time")
        correlation = float(np.corrcoef(told, order[present])[0, 1]) if np.ptp(told) > 0.0 else 0.0
        if correlation >= TELLS:
            given = f"--{option} {shlex.quote(name)}"
            found.append(Advice(given, correlation, f"column {name!r} {what} will be asked for, give {given}"))
    return sorted(found, key=lambda advice: -advice.correlation)


def _columns(table: pa.Table, plan: ColumnPlan, features: Columns) -> Iterator[tuple[str, FeatureKind, NDArray[Any]]]:
    """The features, and the columns that are none because the user has said so."""
    for name, column in features.items():
        yield name, plan.kinds[name], column
    for name in (name for name, reason in plan.left_out.items() if reason == IGNORED):
        try:
            inference = infer_column(table.column(name), name, None, plan.hints)
            column = canonical_column(table.column(name), inference.kind, name, inference.reading)
        except TableError:
            continue
        yield name, inference.kind, column


def _may_group(name: str, kind: FeatureKind, present: NDArray[Any]) -> bool:
    """Texts may name groups; whole numbers only under the name of an identifier: an hour is a quantity."""
    if kind is FeatureKind.CATEGORICAL:
        return True
    whole = kind is FeatureKind.NUMERIC and bool((present == np.rint(present)).all())
    return whole and _IDENTIFIERS.search(name) is not None
