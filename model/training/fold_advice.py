"""Advice: columns by which a table should perhaps be held out, and what its error bars are worth if it is not.

Rows held out at random say how good the answers for rows like them are: with other rows of the same group learned from,
and rows from before and after. Where new groups or later rows will be asked for, that says too much. So a cheap
predictor (`model.training.proxy_predictor`) is judged on rows held out at random, and on whole groups of each column
that may name groups, and forward in time. If it is clearly worse there, beyond chance, the user is told. Only the user
knows what will be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.column_inference import infer_column
from murho.model.data.columns import canonical_column, is_missing
from murho.model.data.duplicates import column_codes
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import IGNORED
from murho.model.data.time_blocks import ROW_ORDER, time_blocks
from murho.model.errors import OptionError, TableError
from murho.model.training.proxy_predictor import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.data.schema_inference import ColumnPlan
    from murho.model.data.splits import Split

__all__ = ["Advice", "advise"]

MOST_ROWS = 2_000
FEWEST_ROWS = 100
FEWEST_GROUPS = 10
MOST_COLUMNS = 12
ROWS_OF_A_GROUP = 40
"""Most rows of a group that are looked at in a table of more than `MOST_ROWS`."""
FOLDS = 5
STRETCHES = 5
"""Stretches of a block in time; errors within one go together, so each is one piece of evidence."""
CLEARLY, BEYOND_CHANCE = (1.15, 1.4), (4.0, 3.0)
"""Least ratio of the mean absolute errors, held out by group or time over at random, and least difference of the errors
in standard errors: either the first two or the last two. Chance needs much, because several columns are looked at, and
neighbouring stretches are not quite independent."""
NOMINAL = 0.9
SORTED = 0.9
"""Rank correlation of a column and the row number from which on a table counts as sorted by the column: its last rows
then differ from the others in any case, and row order is no time."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice.

    Attributes:
        option: The option to give, such as ``--group patient``.
        ratio: Error of a cheap predictor for new groups or later rows, over that for rows held out at random.
        coverage: Share of these rows in the 90 % bands of rows held out at random.
        message: The advice in words.
    """

    option: str
    ratio: float
    coverage: float
    message: str

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {"option": self.option, "ratio": self.ratio, "coverage": self.coverage, "message": self.message}


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Errors of the same rows, held out at random and otherwise, and the piece of evidence each row belongs to."""

    at_random: NDArray[np.float64]
    otherwise: NDArray[np.float64]
    pieces: NDArray[np.int64]

    @property
    def ratio(self) -> float:
        return float(self.otherwise.mean() / self.at_random.mean())

    @property
    def clear(self) -> bool:
        """Whether the other errors are larger, clearly and beyond chance."""
        difference = self.otherwise - self.at_random
        sums = np.bincount(self.pieces, difference - difference.mean())
        error = float(np.sqrt((sums**2).sum())) / len(difference)
        return any(
            self.ratio > least and float(difference.mean()) > errors * error
            for least, errors in zip(CLEARLY, BEYOND_CHANCE, strict=True)
        )

    @property
    def coverage(self) -> float:
        """Coverage of the other rows by bands that cover `NOMINAL` of the rows held out at random."""
        return float((self.otherwise <= np.quantile(self.at_random, NOMINAL)).mean())


@dataclass(frozen=True, slots=True)
class _Table:
    """A table to give advice on.

    Attributes:
        features: Canonical columns of the features, ``[N]`` each.
        others: Canonical columns that are no features because the user has said so.
        kinds: Kind of each of both.
        targets: ``[N]``.
        units: Unit of each row, ``[N]``.
    """

    features: Columns
    others: Columns
    kinds: Mapping[str, FeatureKind]
    targets: NDArray[np.float64]
    units: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    def column(self, name: str) -> NDArray[Any]:
        """A canonical column, feature or not, ``[N]``."""
        return self.features[name] if name in self.features else self.others[name]

    def proxy(self, rows: NDArray[np.int64], *, without: str | None = None) -> Proxy:
        """The predictor of some rows, without one of the features if asked for."""
        features = {name: column[rows] for name, column in self.features.items() if name != without}
        dates = [name for name in features if self.kinds[name] is FeatureKind.DATE]
        return Proxy.of(features, self.targets[rows], dates)


def advise(
    table: pa.Table, plan: ColumnPlan, columns: Columns, targets: NDArray[np.float64], split: Split, seed: int
) -> list[Advice]:
    """Compare random folds with folds by group and in time.

    Args:
        table: The rows with a target, N, with the columns that are no features.
        plan: The features of the table.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: Targets, ``[N]``.
        split: How the rows are held out without further options.
        seed: Seed of the training.

    Returns:
        The advice, the most urgent first; empty for fewer than 100 rows.
    """
    if len(targets) < FEWEST_ROWS:
        return []
    generator = np.random.default_rng(seed)
    units = np.arange(len(targets)) if split.units is None else split.units.of_rows
    kinds, others = dict(plan.kinds), {}
    for name in (name for name, reason in plan.left_out.items() if reason == IGNORED):
        try:
            inference = infer_column(table.column(name), name, None, plan.hints)
            others[name] = canonical_column(table.column(name), inference.kind, name, inference.reading)
            kinds[name] = inference.kind
        except TableError:
            continue
    known = _Table(columns, others, kinds, targets, units)
    found = list(_by_group(known, generator))
    # Rows of a group that stand together make the order of the rows matter; the group says it better.
    ordered = not any(_stand_together(known.column(advice.option.removeprefix("--group "))) for advice in found)
    # Several dates, and the order of the rows, mostly say the same: the first is enough.
    found += islice(_in_time(known, generator, ordered=ordered), 1)
    return sorted(found, key=lambda advice: advice.coverage)


def _by_group(known: _Table, generator: np.random.Generator) -> Iterator[Advice]:
    """Advice on columns that may name groups."""
    for name, codes in islice(_candidates(known), MOST_COLUMNS):
        rows = _whole_groups(codes, generator)
        groups, proxy = codes[rows], known.proxy(rows)
        at_random = _held_out(proxy, known.units[rows], generator)
        comparison = _Comparison(at_random, _held_out(proxy, groups, generator), groups)
        if not comparison.clear:
            continue
        if name in known.features and len(known.features) > 1 and known.kinds[name] is FeatureKind.NUMERIC:
            without = _held_out(known.proxy(rows, without=name), groups, generator)
            if without.mean() > comparison.otherwise.mean():
                continue  # the number tells about new values: it is a quantity and names nothing
        coverage = comparison.coverage
        yield Advice(
            f"--group {name}",
            comparison.ratio,
            coverage,
            f"column {name!r} looks like groups: {int(codes.max()) + 1} values, and rows of the same value tell about "
            f"each other. If rows of new values will be asked for, give --group {name}: of those, 90 % bands from rows "
            f"held out at random would cover about {100.0 * coverage:.0f} %",
        )


def _in_time(known: _Table, generator: np.random.Generator, *, ordered: bool) -> Iterator[Advice]:
    """Advice on dates and, with ``ordered``, on the order of the rows."""
    times = {name: known.column(name) for name, kind in known.kinds.items() if kind is FeatureKind.DATE}
    if ordered and not any(_sorted_by(column) for column in (known.targets, *known.features.values(), *times.values())):
        times[ROW_ORDER] = np.arange(len(known), dtype=np.float64)
    for name, time in times.items():
        for rows in _stretches(time):
            comparison = _forward(known, rows, time[rows], generator)
            if comparison is None or not comparison.clear:
                continue
            coverage = comparison.coverage
            what = "the order of the rows" if name == ROW_ORDER else f"column {name!r}"
            yield Advice(
                f"--time {name}",
                comparison.ratio,
                coverage,
                f"{what} matters like time: rows before and after a row tell about it. If later rows will be asked "
                f"for, give --time {name}: of those, 90 % bands from rows held out at random would cover about "
                f"{100.0 * coverage:.0f} %",
            )
            break


def _forward(
    known: _Table, rows: NDArray[np.int64], time: NDArray[np.float64], generator: np.random.Generator
) -> _Comparison | None:
    """Errors at rows in blocks of time, learned from as many rows: from those before, or from any others.

    Args:
        known: The table.
        rows: Numbers of n rows.
        time: Their times, ``[n]``.
        generator: Source of the other rows.
    """
    try:
        blocks = time_blocks(time, FOLDS).of_rows
    except OptionError:  # all rows have the same time
        return None
    proxy = known.proxy(rows)
    order = np.argsort(time, kind="stable")
    at_random, otherwise, pieces = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    for block in range(int(blocks.max()) + 1):
        asked = order[blocks[order] == block]
        before = np.flatnonzero(blocks < block)
        otherwise[asked] = proxy.errors(before, asked)
        shuffled = generator.permutation(asked)
        for half in np.array_split(shuffled, 2):
            others = np.setdiff1d(np.arange(len(rows)), half)
            learned = generator.choice(others, min(len(before), len(others)), replace=False)
            at_random[half] = proxy.errors(learned, half)
        pieces[asked] = STRETCHES * block + STRETCHES * np.arange(len(asked)) // len(asked)
    judged = blocks >= 0
    return _Comparison(at_random[judged], otherwise[judged], pieces[judged])


def _held_out(proxy: Proxy, units: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Errors of all rows, each predicted from the folds that its unit is not in."""
    units = column_codes(units)
    folds = generator.permutation(int(units.max()) + 1)[units] % FOLDS
    errors = np.zeros(len(units))
    for fold in range(FOLDS):
        asked = np.flatnonzero(folds == fold)
        errors[asked] = proxy.errors(np.flatnonzero(folds != fold), asked)
    return errors


def _candidates(known: _Table) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Columns of texts or whole numbers that repeat, and the number of each row's value, ``[N]``."""
    for name, column in (*known.features.items(), *known.others.items()):
        kind = known.kinds[name]
        if kind not in (FeatureKind.CATEGORICAL, FeatureKind.NUMERIC) or is_missing(column).any():
            continue
        if kind is FeatureKind.NUMERIC and not (column == np.rint(column)).all():
            continue
        codes = column_codes(column)
        if FEWEST_GROUPS <= int(codes.max()) + 1 <= len(codes) / 2:
            yield name, codes


def _whole_groups(codes: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """About `MOST_ROWS` rows: of random groups the first ones in random order, so that each group keeps several."""
    if len(codes) <= MOST_ROWS:
        return np.arange(len(codes))
    shuffled = generator.permutation(len(codes))
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    sizes = np.bincount(codes)
    place = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = order[place < ROWS_OF_A_GROUP]
    groups = generator.permutation(len(sizes))
    taken = groups[
        : max(FEWEST_GROUPS, int(np.searchsorted(np.cumsum(np.minimum(sizes, ROWS_OF_A_GROUP)[groups]), MOST_ROWS)))
    ]
    rows: NDArray[np.int64] = np.sort(kept[np.isin(codes[kept], taken)])
    return rows


def _stretches(time: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Rows of a long table to look at: evenly over time, for what drifts; the newest, for what lasts a few rows."""
    order = np.argsort(time, kind="stable")
    order = order[~np.isnan(time[order])]
    if len(order) <= MOST_ROWS:
        yield order
        return
    yield order[np.linspace(0, len(order) - 1, MOST_ROWS).round().astype(int)]
    yield order[-MOST_ROWS:]


def _stand_together(column: NDArray[Any]) -> bool:
    """Whether the rows of each value stand next to each other, by and large."""
    codes = column_codes(column)
    return int(np.count_nonzero(np.diff(codes))) < 1.5 * int(codes.max())


def _sorted_by(column: NDArray[Any]) -> bool:
    """Whether the table is sorted by a column, up or down, by and large: its rank correlation with the row number."""
    ranks = column_codes(column)  # ties share a rank
    if ranks.max(initial=0) == 0:
        return False
    return abs(float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])) > SORTED
