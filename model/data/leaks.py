"""Leak suspects: features that tell the target so well that they are likely made from it, or known only after it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.columns import is_missing
from murho.model.data.duplicates import column_codes
from murho.model.data.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns

__all__ = ["Suspect", "from_other_rows", "leak_suspects", "ranks", "rows_to_look_at", "share_told"]

_ROWS, _FEWEST_ROWS = 5_000, 30
"""Rows that are looked at, spread over the table, and the fewest that tell anything."""
_TELLS = 0.995
"""Share of the target's variance that a suspect tells of rows that it was not fitted to."""
_EXACT, _EQUAL = 1e-6, 0.99
"""Deviation, in standard deviations of the target, up to which a copy or a sum is exact, and share of equal rows."""
_MOST_IN_A_SUM = 50
_AFTERWARDS = re.compile(
    r"final|actuals?|outcome|results?|after(wards)?|later|eventual|ended|reali[sz]ed|complet(ed|ion)|finished|closed"
    r"|cancell?ed|refund(ed)?|returned|discharged?|settle(d|ment)|pred(icted|iction)?|forecast|yhat|estimated"
)
_BEFORE = frozenset({"lag", "prev", "previous", "last", "old", "yesterday", "before", "prior", "past", "ago"})


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
        option = f"--ignore {shlex.quote(self.column)}"
        return f"{self.column!r} {self.reason}: if it is not known when the target is asked for, give {option}"


def leak_suspects(
    columns: Columns, kinds: Mapping[str, FeatureKind], target: str, targets: NDArray[np.float64]
) -> list[Suspect]:
    """The features that may leak the target, each once, the surest first.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        kinds: Feature → kind.
        target: Name of the target.
        targets: ``[N]``, NaN where missing.

    Returns:
        The suspects. A table of fewer than 30 rows, and the only feature of a table, are suspected by their names
        alone.
    """
    chosen = rows_to_look_at(targets)
    found: list[Suspect] = []
    if len(chosen):
        rows, wanted = {name: column[chosen] for name, column in columns.items()}, targets[chosen]
        found = [*_copies(rows, wanted), *(_telling(rows, kinds, wanted) if len(rows) > 1 else ())]
        found = found or list(_sum({name: rows[name] for name in rows if kinds[name] is FeatureKind.NUMERIC}, wanted))
    found += [Suspect(name, reason) for name in columns if (reason := _suspicious_name(name, target))]
    first: dict[str, Suspect] = {}
    for suspect in found:
        first.setdefault(suspect.column, suspect)
    return list(first.values())


def rows_to_look_at(targets: NDArray[np.float64]) -> NDArray[np.intp]:
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


def _copies(rows: Columns, targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that are the target, or the target in another unit."""
    for name, column in rows.items():
        present = ~is_missing(column)
        if column.dtype == object or present.sum() < max(_FEWEST_ROWS, len(targets) // 2):
            continue
        values, wanted = column[present], targets[present]
        equal = float(np.mean(np.abs(values - wanted) <= _EXACT * targets.std()))
        if equal >= _EQUAL:
            share = "every row" if equal == 1.0 else f"{100 * equal:.1f} % of the rows"
            yield Suspect(name, f"equals the target in {share}", equal)
        elif np.ptp(values) > 0.0 < np.ptp(wanted) and np.corrcoef(values, wanted)[0, 1] ** 2 > 1.0 - _EXACT**2:
            yield Suspect(name, "is the target in another unit", 1.0)


def _telling(rows: Columns, kinds: Mapping[str, FeatureKind], targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that alone tell almost all of the target; not time, which tells whatever changes slowly."""
    dates = [ranks(column) for name, column in rows.items() if kinds[name] is FeatureKind.DATE]
    for name, column in rows.items():
        ordered = kinds[name] is not FeatureKind.CATEGORICAL
        # A year with decimals has the order of a date.
        if ordered and any(abs(np.corrcoef(ranks(column), date)[0, 1]) > 0.999 for date in dates):
            continue
        share = max(share_told(column, wanted, ordered=ordered) for wanted in (targets, ranks(targets)))
        if share >= _TELLS:
            yield Suspect(name, f"alone tells {100 * min(share, 0.9999):.2f} % of the target's variance", share)


def ranks(column: NDArray[Any]) -> NDArray[np.float64]:
    """The place of each cell in the order of all, ``[N]``, from 0; equal cells in the order of their rows."""
    return np.argsort(np.argsort(column, kind="stable"), kind="stable").astype(np.float64)


def share_told(column: NDArray[Any], targets: NDArray[np.float64], *, ordered: bool) -> float:
    """The share of the targets' variance that a column tells: 1 - (squared errors) / (squared deviations).

    Takes what `from_other_rows` takes.
    """
    total = float(((targets - targets.mean()) ** 2).sum())
    errors = targets - from_other_rows(column, targets, ordered=ordered)
    return 1.0 - float((errors**2).sum()) / total if total > 0.0 else 0.0


def from_other_rows(column: NDArray[Any], targets: NDArray[np.float64], *, ordered: bool) -> NDArray[np.float64]:
    """Each row's target, ``[N]``, as the other rows tell it.

    A row is predicted from the other rows with the same cell, or else between the two rows with the next smaller and
    the next larger number. So neither the form of the relation matters, nor can a column with a value of its own in
    each row tell more than it knows.

    Args:
        column: Canonical column, ``[N]``.
        targets: ``[N]``, without NaN.
        ordered: Whether the cells are numbers.
    """
    codes = column_codes(column)
    counts, sums = np.bincount(codes), np.bincount(codes, weights=targets)
    others = counts[codes] - 1
    predicted = np.where(others > 0, (sums[codes] - targets) / np.maximum(others, 1), targets.mean())
    if ordered:
        present = np.flatnonzero(~is_missing(column))
        x, first, place = np.unique(column[present], return_index=True, return_inverse=True)
        if len(x) > 2:
            y = (sums / counts)[codes[present[first]]]
            weight = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
            between = np.concatenate((y[1:2], (1.0 - weight) * y[:-2] + weight * y[2:], y[-2:-1]))
            alone = others[present] == 0
            predicted[present[alone]] = between[place[alone]]
    return predicted


def _sum(columns: Columns, targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Numbers whose sum, with factors, is exactly the target."""
    complete = {name: column for name, column in columns.items() if np.ptp(column) > 0.0}  # NaN is not
    if not 2 <= len(complete) <= _MOST_IN_A_SUM or len(targets) < 3 * len(complete):
        return
    matrix = np.stack([(column - column.mean()) / column.std() for column in complete.values()], axis=1)
    wanted = (targets - targets.mean()) / targets.std()
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    parts = [name for name, factor in zip(complete, factors, strict=True) if abs(factor) > 1e-4]
    if np.abs(matrix @ factors - wanted).max() <= _EXACT and 2 <= len(parts) <= 5:
        for name in parts:
            others = " and ".join(repr(other) for other in parts if other != name)
            yield Suspect(name, f"and {others} add up to the target exactly", 1.0)


def _suspicious_name(name: str, target: str) -> str | None:
    words, of_target = _words(name), _words(target)
    if set(words) & _BEFORE:
        return None
    known = sorted(filter(_AFTERWARDS.fullmatch, words))
    if known:
        return f"has {known[0]!r} in its name, as what is known only afterwards"
    if len(target) >= 3 and of_target and words != of_target and f" {' '.join(of_target)} " in f" {' '.join(words)} ":
        return "has the target in its name, as what is made from it"
    return None


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
