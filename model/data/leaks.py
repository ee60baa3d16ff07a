"""Leak suspects: features that tell the target so well that they are likely made from it, or known only after it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murho.model.data.columns import is_missing
from murho.model.data.duplicates import column_codes
from murho.model.data.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from murho.model.data.schema import Columns

__all__ = ["Suspect", "leak_suspects", "rows_to_look_at"]

_ROWS = 5_000
"""Rows that are looked at, spread over the table."""
_FEWEST_ROWS = 30
_TELLS = 0.995
"""Share of the target's variance that a suspect tells of rows that it was not fitted to."""
_EXACT = 1e-6
"""Deviation, in standard deviations of the target, up to which a copy or a sum is exact."""
_EQUAL = 0.99
_ORDER_OF_A_DATE = 0.999
_MOST_IN_A_SUM = 50

_AFTERWARDS = frozenset(
    {"final", "actual", "actuals", "outcome", "result", "results", "after", "afterwards", "later", "eventual", "ended"}
    | {"realised", "realized", "completed", "completion", "finished", "closed", "cancelled", "canceled", "refund"}
    | {"refunded", "returned", "discharged", "discharge", "settlement", "settled"}
)
_PREDICTIONS = frozenset({"pred", "predicted", "prediction", "forecast", "yhat", "estimated"})
_BEFORE = frozenset({"lag", "prev", "previous", "last", "old", "yesterday", "before", "prior", "past", "ago"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A feature that may leak the target.

    Attributes:
        column: The feature.
        reason: Why it is suspected, as the end of a sentence that begins with its name.
        share: Share of the target's variance that it tells alone; None where only its name is suspected.
    """

    column: str
    reason: str
    share: float | None = None

    @property
    def message(self) -> str:
        """The suspicion in a sentence, with what to do."""
        return (
            f"{self.column!r} {self.reason}: if it is not known when the target is asked for, give --ignore "
            f"{shlex.quote(self.column)}"
        )


def leak_suspects(
    columns: Columns, kinds: Mapping[str, FeatureKind], target: str, targets: npt.NDArray[np.float64]
) -> list[Suspect]:
    """The features that may leak the target, each at most once, the surest first.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        kinds: Feature → kind.
        target: Name of the target.
        targets: ``[N]``, NaN where missing.

    Returns:
        The suspects. A table of fewer than 30 rows, and the only feature of a table, are suspected by their names
        alone.
    """
    found: dict[str, Suspect] = {}
    chosen = rows_to_look_at(targets)
    if len(chosen):
        rows = {name: column[chosen] for name, column in columns.items()}
        wanted = targets[chosen]
        for suspect in (*_copies(rows, wanted), *(_telling(rows, kinds, wanted) if len(rows) > 1 else ())):
            found.setdefault(suspect.column, suspect)
        for suspect in _sum(rows, kinds, wanted) if not found else ():
            found.setdefault(suspect.column, suspect)
    for name in columns:
        reason = _suspicious_name(name, target)
        if reason and name not in found:
            found[name] = Suspect(name, reason)
    return list(found.values())


def rows_to_look_at(targets: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """The rows that `leak_suspects` looks at; it finds the same in these rows alone.

    Args:
        targets: ``[N]``, NaN where missing.

    Returns:
        Indices of rows with different targets, ascending; none if there are fewer than 30.
    """
    labelled = np.flatnonzero(np.isfinite(targets))
    if len(labelled) < _FEWEST_ROWS or np.ptp(targets[labelled]) == 0.0:
        return labelled[:0]
    return labelled[np.linspace(0, len(labelled) - 1, min(_ROWS, len(labelled))).astype(np.intp)]


def _copies(rows: Columns, targets: npt.NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that are the target, or the target in another unit."""
    spread = float(targets.std())
    for name, column in rows.items():
        if column.dtype == object:
            continue
        present = ~np.isnan(column)
        values, wanted = column[present], targets[present]
        if len(values) < max(_FEWEST_ROWS, len(targets) // 2) or np.ptp(values) == 0.0:
            continue
        equal = float(np.mean(np.abs(values - wanted) <= _EXACT * spread))
        if equal >= _EQUAL:
            rows_equal = "every row" if equal == 1.0 else f"{100 * equal:.1f} % of the rows"
            yield Suspect(name, f"equals the target in {rows_equal}", equal)
            continue
        centred = values - values.mean()
        slope = float(centred @ (wanted - wanted.mean()) / (centred @ centred))
        deviation = wanted - wanted.mean() - slope * centred
        if np.abs(deviation).max() <= _EXACT * spread:
            offset = float(wanted.mean() - slope * values.mean())
            shift = "" if abs(offset) <= _EXACT * spread else f" {'+' if offset > 0 else '-'} {abs(offset):.4g}"
            yield Suspect(name, f"is the target in another unit (the target is {slope:.4g} times it{shift})", 1.0)


def _telling(rows: Columns, kinds: Mapping[str, FeatureKind], targets: npt.NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that alone tell almost all of the target; not time, which tells whatever changes slowly."""
    dates = [_ranks(rows[name]) for name in rows if kinds[name] is FeatureKind.DATE]
    ranks = _ranks(targets)
    for name, column in rows.items():
        if kinds[name] is FeatureKind.DATE or (column.dtype != object and _is_time(column, dates)):
            continue
        share = max(
            share_told(column, wanted, ordered=kinds[name] is not FeatureKind.CATEGORICAL)
            for wanted in (targets, ranks)
        )
        if share >= _TELLS:
            yield Suspect(name, f"alone tells {100 * min(share, 0.9999):.2f} % of the target's variance", share)


def _ranks(column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.argsort(np.argsort(column)).astype(np.float64)


def _is_time(column: npt.NDArray[Any], dates: Sequence[npt.NDArray[np.float64]]) -> bool:
    """Whether a number has the order of a date, as a year with decimals has."""
    ranks = _ranks(column)
    return any(abs(float(np.corrcoef(ranks, date)[0, 1])) > _ORDER_OF_A_DATE for date in dates)


def share_told(column: npt.NDArray[Any], targets: npt.NDArray[np.float64], *, ordered: bool) -> float:
    """The share of the targets' variance that a column tells: 1 - (squared errors) / (squared deviations).

    A row is predicted from the other rows with the same cell, or else between the two rows with the next smaller and
    the next larger number. So neither the form of the relation matters, nor can a column with a value of its own in
    each row tell more than it knows.

    Args:
        column: Canonical column, ``[N]``.
        targets: ``[N]``, without NaN.
        ordered: Whether the cells are numbers.
    """
    total = float(((targets - targets.mean()) ** 2).sum())
    if total == 0.0:
        return 0.0
    codes = column_codes(column)
    counts = np.bincount(codes).astype(np.float64)
    sums = np.bincount(codes, weights=targets)
    others = counts[codes] - 1.0
    predicted = np.where(others > 0.0, (sums[codes] - targets) / np.maximum(others, 1.0), targets.mean())
    if ordered:
        present = np.flatnonzero(~is_missing(column))
        values, inverse = np.unique(column[present].astype(np.float64), return_inverse=True)
        if len(values) > 2:
            group_counts = np.bincount(inverse).astype(np.float64)
            means = np.bincount(inverse, weights=targets[present]) / group_counts
            place = np.arange(len(values))
            before, after = np.maximum(place - 1, 0), np.minimum(place + 1, len(values) - 1)
            before[0], after[-1] = after[0], before[-1]
            width = values[after] - values[before]
            weight = np.where(width > 0.0, (values - values[before]) / np.where(width > 0.0, width, 1.0), 0.5)
            between = (1.0 - weight) * means[before] + weight * means[after]
            alone = group_counts[inverse] == 1.0
            predicted[present[alone]] = between[inverse[alone]]
    return 1.0 - float(((targets - predicted) ** 2).sum()) / total


def _sum(rows: Columns, kinds: Mapping[str, FeatureKind], targets: npt.NDArray[np.float64]) -> Iterator[Suspect]:
    """Features whose sum, with factors, is exactly the target."""
    names = [
        name
        for name, column in rows.items()
        if kinds[name] is FeatureKind.NUMERIC and not np.isnan(column).any() and np.ptp(column) > 0.0
    ]
    if not 2 <= len(names) <= _MOST_IN_A_SUM or len(targets) < 3 * len(names):
        return
    matrix = np.stack([(rows[name] - rows[name].mean()) / rows[name].std() for name in names], axis=1)
    wanted = (targets - targets.mean()) / targets.std()
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    if np.abs(matrix @ factors - wanted).max() > _EXACT:
        return
    parts = [name for name, factor in zip(names, factors, strict=True) if abs(factor) > 1e-4]
    if 2 <= len(parts) <= 5:
        for name in parts:
            others = " and ".join(repr(other) for other in parts if other != name)
            yield Suspect(name, f"and {others} add up to the target exactly", 1.0)


def _suspicious_name(name: str, target: str) -> str | None:
    words, of_target = _words(name), _words(target)
    if not words or set(words) & _BEFORE:
        return None
    known = sorted(set(words) & (_AFTERWARDS | _PREDICTIONS))
    if known:
        return f"has {known[0]!r} in its name, as what is known only afterwards"
    if len(target) < 3 or not of_target or words == of_target:
        return None
    length = len(of_target)
    if any(words[start : start + length] == of_target for start in range(len(words) - length + 1)):
        return "has the target in its name, as what is made from it"
    return None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]
