"""What is odd about a column, and what to do: codes that look like numbers, values that stand for missing ones."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.columns import CellType, cell_type, distinct, is_missing
from murho.model.data.feature import MOST_CATEGORIES
from murho.model.data.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["oddities", "sounds_like_an_id"]

_SENTINELS = frozenset({-1.0, -9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0})
_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|no|nr|num|number|code|key|uid|uuid|subject|patient|person|customer|user|client|member)$"
    r"|(?-i:(?<=[a-z])(?:I[dD]|No|Nr|Code)$)|^(?:id|zip|zipcode|postcode|plz)",
    re.IGNORECASE,
)
_LEADING_ZERO = re.compile(r"0[0-9]+")
_MOSTLY_MISSING = 0.5
_ALMOST_ALL = 0.995
_ROWS = 20_000
_FEW = 20


def sounds_like_an_id(name: str) -> bool:
    """Whether the name of a column is that of an identifier, a code or a person."""
    return _IDENTIFIERS.search(name) is not None


def oddities(name: str, kind: FeatureKind, column: npt.NDArray[Any], cells: pa.ChunkedArray) -> list[str]:
    """What is odd about a feature, one phrase each.

    Args:
        name: Its name.
        kind: Its kind.
        column: Its canonical column, ``[N]``.
        cells: Its cells as stored, from `model.data.columns.plain`, ``[N]``.
    """
    absent = is_missing(column)
    present = column[~absent]
    if not len(present):
        return []
    found = [f"{100 * absent.mean():.0f} % of the cells are missing"] if absent.mean() > _MOSTLY_MISSING else []
    if kind is FeatureKind.CATEGORICAL:
        found += _of_categories(present)
    elif kind is FeatureKind.NUMERIC:
        found += _of_numbers(name, present, cells)
    elif kind is FeatureKind.DATE and np.unique(present).size > _FEW:
        found.append(
            f"a time: if later rows will be asked for, --time {shlex.quote(name)} judges the model on later rows"
        )
    return found


def _of_categories(present: npt.NDArray[Any]) -> Iterator[str]:
    counts = Counter(present.tolist())
    value, most = counts.most_common(1)[0]
    if most >= _ALMOST_ALL * len(present) and len(present) > _FEW:
        yield f"{100 * most / len(present):.1f} % of the cells are {value!r}"
    if len(counts) > MOST_CATEGORIES:
        yield f"{len(counts)} categories: the {MOST_CATEGORIES} most frequent are told apart, all others are one"
    alike: dict[str, list[str]] = {}
    for category in counts:
        alike.setdefault(" ".join(category.casefold().split()), []).append(category)
    several = [ways for ways in alike.values() if len(ways) > 1]
    if several:
        ways = " and ".join(repr(way) for way in sorted(several[0])[:3])
        yield f"{ways} differ in case or blanks alone, and count as different categories"
    units = Counter(match[1].casefold() for category in counts if (match := _WITH_UNIT.fullmatch(category)))
    if len(units) > 1 and units.total() >= 0.8 * len(counts) and len(counts) > _FEW:
        shown = ", ".join(repr(unit) for unit, _ in units.most_common(4))
        yield f"numbers with different units ({shown}) are read as categories: bring them to one unit"


_WITH_UNIT = re.compile(r"[0-9.,]+\s*([A-Za-z%°]{1,8})")


def _of_numbers(name: str, present: npt.NDArray[Any], cells: pa.ChunkedArray) -> Iterator[str]:
    values, counts = np.unique(present, return_counts=True)
    most = int(counts.argmax())
    whole = bool(np.all(values == np.floor(values)))
    if counts[most] >= _ALMOST_ALL * len(present) and len(present) > _FEW:
        yield f"{100 * counts[most] / len(present):.1f} % of the cells are {values[most]:.12g}"
    if cell_type(cells) is CellType.TEXT and whole:
        zero = next(
            (text for text in distinct(cells.slice(0, _ROWS)).values if _LEADING_ZERO.fullmatch(str(text))), None
        )
        if zero is not None:
            yield f'{zero!r} looks like a code: declare kind = "categorical" if it is one'
    for edge, count, rest in ((values[0], counts[0], values[1:]), (values[-1], counts[-1], values[:-1])):
        if float(edge) not in _SENTINELS or count < 2 or len(rest) < 3:
            continue
        gap = float(rest[0] - edge if edge < rest[0] else edge - rest[-1])
        spread = float(np.ptp(rest))
        if gap > spread or (edge < 0.0 <= rest[0] and edge <= -9.0):
            yield f"{edge:.12g} in {count} cells may stand for missing values: if so, leave these cells empty"
    if whole and sounds_like_an_id(name) and len(values) > _FEW:
        rows = len(present) / len(values)
        quoted = shlex.quote(name)
        advice = f'--ignore {quoted}, or declare kind = "categorical" if it is a code'
        if rows >= 2.0:
            advice = f"--group {quoted} if rows of new ones will be asked for, else {advice}"
        yield f"looks like an id ({len(values)} different numbers): give {advice}"
