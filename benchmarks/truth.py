"""`python -m benchmarks.truth`: every kind of answer under every condition, beside a known truth.

Made-up tables (`benchmarks.truth_tables`) are drawn anew, fitted with the defaults, and queried in every way
(`benchmarks.truth_answers`). A cell, such as ``prediction*counts``, shows what was found and its standard error over
repeats: of bands the share of truths inside, of a spread its root mean square to that of the errors. A cell is red, and
marked with ``!``, where it is off by more than three standard errors, and by more than 4 points or a quarter of a
spread; it is marked with ``~`` instead, where the answers themselves say, in nine of ten rows at least, that nothing
is promised: by `extrapolation`, or as not `calibrated`. Where fewer do, these rows are left out. Red cells come last.
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.results import Kept, Report, add_counts, command, table
from benchmarks.runner import Job, add_fits, reports_of, sources
from benchmarks.truth_answers import ANSWERS, Case, Measure, rows_with_warnings
from benchmarks.truth_service import SERVICE_CELLS, measure_service
from benchmarks.truth_tables import TABLES, known_table
from murho.model.runtime import at_most_threads
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Sequence

ERRORS = 3.0
"""Standard errors that a cell may be off by."""
WARNINGS = 0.9
"""Share of the rows whose answers warn, from which on an error is expected."""


def measure_table(
    name: str, repeat: int, budget: float | None = None, *, quick: bool = False, kinds: Collection[str] = ANSWERS
) -> Report:
    """Answers of some kinds about one table, fitted with the defaults of `murho train` but for ``budget``, ``quick``.

    Returns:
        ``cells``: name of a cell → name of a promise → what was measured; ``left_out``: name → why; ``warnings``: name
        → share of the rows whose answers warn; ``seconds``.
    """
    began, known = time.monotonic(), known_table(name, repeat)
    options = {"seed": repeat, "budget": budget, **({"quick": True} if quick else {}), **known.options}
    report: Report = {"cells": {}, "left_out": {}, "warnings": {}}
    with at_most_threads(1):
        trained = train(
            known.training.labelled(known.world.classes), "y", make_options(options), reporter=Reporter()
        ).posterior
        for condition, rows in known.queries.items():
            warns = rows_with_warnings(Case(known, trained, condition, rows))
            warnings = float(warns.mean())
            case = Case(known, trained, condition, rows if warnings >= WARNINGS else rows.some(np.flatnonzero(~warns)))
            for kind, answer in ((each, ANSWERS[each]) for each in kinds):
                cell = f"{kind}*{condition}"
                if why := answer.unless(case):
                    report["left_out"][cell] = why
                else:
                    report["warnings"][cell] = warnings if answer.calibrated else 1.0
                    report["cells"][cell] = {of: asdict(each) for of, each in answer.measure(case).items()}
    return report | {"seconds": time.monotonic() - began}


@dataclass(frozen=True, slots=True)
class CellResult:
    """A promise in a cell, over all repeats.

    Attributes:
        cell: Kind of answer and condition, with ``*`` between them.
        promise: What is promised.
        number: Share that was found, or ratio of spreads.
        aim: What it shall be.
        error: Standard error of the number; NaN for a single repeat.
        verdict: Empty, ``~`` or ``!``.
        said: Whether the aim is what the answers say, and no constant.
    """

    cell: str
    promise: str
    number: float
    aim: float
    error: float
    verdict: str
    said: bool = False

    @property
    def is_ratio(self) -> bool:
        """Whether the number is a ratio of spreads, and not a share."""
        return "/" in self.promise

    @property
    def number_text(self) -> str:
        """The number: a ratio, or per cent, with what the answers say if that is no constant."""
        if self.is_ratio:
            return f"{self.number:.2f}"
        return f"{100.0 * self.number:.1f}" + (f" of {100.0 * self.aim:.1f}" if self.said else "")

    @property
    def text(self) -> str:
        """The number ± its standard error."""
        if np.isnan(self.error):
            return self.number_text + self.verdict
        error = f"{self.error:.2f}" if self.is_ratio else f"{100.0 * self.error:.1f}"
        return f"{self.number_text} ± {error}{self.verdict}"


def judge(cell: str, promise: str, measures: Sequence[Measure], warnings: float) -> CellResult:
    """Judges what the repeats have found.

    A ratio is that of all repeats together, and its standard error that of its logarithm by a jackknife. No standard
    error is less than that of so many independent rows.

    Args:
        cell: Its name.
        promise: Its name.
        measures: One for each repeat.
        warnings: Share of the rows whose answers warn.
    """
    found, promised = (np.array([getattr(each, name) for each in measures]) for name in ("found", "promised"))
    first, repeats, count = measures[0], len(measures), sum(each.count for each in measures)
    if first.ratio:
        number, aim = _ratio(promised.sum(), found.sum()), 1.0
        without = [_ratio(promised.sum() - p, found.sum() - f) for p, f in zip(promised, found, strict=True)]
        off, least = float(np.log(number)), (0.5 / count) ** 0.5
        error = ((repeats - 1) * float(np.var(np.log(without)))) ** 0.5
    else:
        number, aim = float(found.mean()), float(promised.mean())
        off, least = number - aim, (max(aim * (1.0 - aim), 0.0) / count) ** 0.5
        error = float(np.std(found - promised)) / max(repeats - 1, 1) ** 0.5
    error = max(error, least) if repeats > 1 else float("nan")
    wrong = {"both": abs(off), "least": -off, "most": off}[first.side]
    red = wrong > first.within and (first.within == 0.0 or wrong > ERRORS * error)
    verdict = ("~" if warnings >= WARNINGS else "!") if red else ""
    return CellResult(cell, promise, number, aim, number * error if first.ratio else error, verdict, first.said)


def _ratio(promised: float, found: float) -> float:
    return float(np.sqrt(max(promised, 1e-300) / max(found, 1e-300)))


def judge_cells(reports: Sequence[Report], pattern: str) -> Iterator[CellResult]:
    """Return what was found of all cells of some repeats of one table."""
    for cell in dict.fromkeys(name for each in reports for name in each["cells"]):
        if not matching(cell, pattern):
            continue
        having = [each for each in reports if cell in each["cells"]]
        for promise in dict.fromkeys(name for each in having for name in each["cells"][cell]):
            measures = [Measure(**each["cells"][cell][promise]) for each in having if promise in each["cells"][cell]]
            warnings = [each["warnings"].get(cell, 0.0) for each in having]
            yield judge(cell, promise, measures, float(np.mean(warnings)))


@cache
def _instrument() -> str:
    """Return a digest of what draws the tables and measures the answers: another instrument keeps no reports."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("truth*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def matching(cell: str, pattern: str) -> bool:
    """Whether the name of a cell matches a pattern, in which ``*`` is any text and the end is free."""
    return fnmatch(cell, f"{pattern}*")


def _shown(cells: Sequence[CellResult]) -> Iterator[str]:
    """Return a table for each kind of answer: a line for each condition, a column for each promise."""
    for kind, of_kind in groupby(cells, lambda each: each.cell.partition("*")[0]):
        lines: dict[str, dict[str, str]] = {}
        for each in of_kind:
            lines.setdefault(each.cell.partition("*")[2], {})[each.promise] = each.text
        promises = list(dict.fromkeys(name for line in lines.values() for name in line))
        yield table([kind, *promises], [[name, *(of.get(each, "") for each in promises)] for name, of in lines.items()])


OVERVIEW: dict[str, tuple[str, ...]] = {
    "predictions": ("prediction", "raw", "function", "noise", "exceedance"),
    "other": ("decide", "why", "worth asking", "counterfactual", "update", "prune", "onnx", "client", "ray"),
    "totals": ("totals, sum", "totals, rows alike", "totals, mean", "totals, count_above", "totals, weighted"),
    "classes": ("probabilities", "raw probabilities", "sets", "totals, count", "abstain"),
    "outcomes": ("quality", "alarm", "adaptation"),
}
"""Tables of the overview: title → kinds of answers."""


def _overview(cells: Sequence[CellResult]) -> Iterator[str]:
    """Tables of all conditions: for each kind of answer the number of its first promise, and the worst verdict."""
    promises: dict[tuple[str, str], list[CellResult]] = {}
    for each in cells:
        kind, _, condition = each.cell.partition("*")
        promises.setdefault((kind, condition), []).append(each)
    for title, kinds in OVERVIEW.items():
        conditions = dict.fromkeys(condition for kind, condition in promises if kind in kinds)
        lines = [[name, *(_in_short(promises.get((kind, name), ())) for kind in kinds)] for name in conditions]
        if lines:
            yield table([title, *(kind.removeprefix("totals, ") for kind in kinds)], lines)


def _in_short(promises: Sequence[CellResult]) -> str:
    if not promises:
        return ""
    verdicts = {each.verdict for each in promises}
    return promises[0].number_text + next((mark for mark in "!~" if mark in verdicts), "")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_fits(parser)
    add_counts(parser, repeats=(8, "tables drawn for each condition"))
    parser.add_argument("--only", default="*", metavar="CELLS", help="such as 'totals*missing*' (default: all)")
    parser.add_argument("--left-out", action="store_true", help="also list the cells that are left out, and why")


def run(options: argparse.Namespace) -> Report:
    """Fits, asks and prints."""
    known = {name: [f"{kind}*{of}" for of in known_table(name, 0).queries for kind in ANSWERS] for name in TABLES}
    known |= {name: list(cells) for name, cells in SERVICE_CELLS.items()}
    wanted = [name for name, cells in known.items() if any(matching(each, options.only) for each in cells)]
    jobs = [
        Job(
            f"truth-{name}-{repeat}",
            name,
            measure_service if name in SERVICE_CELLS else measure_table,
            (name, repeat, options.budget),
            [sources(), _instrument(), options.budget],
        )
        for repeat in range(options.repeats)
        for name in wanted
    ]
    reports = reports_of(jobs, Kept(options.output / "truth.jsonl"), workers=options.jobs, fresh=options.fresh)
    lines = {name: [reports[job.name] for job in jobs if job.line == name] for name in wanted}
    order = {
        kind: place
        for place, kind in enumerate(
            dict.fromkeys(each.partition("*")[0] for cells in known.values() for each in cells)
        )
    }
    cells = [each for of in lines.values() for each in judge_cells(of, options.only)]
    cells.sort(key=lambda each: order[each.cell.partition("*")[0]])
    print("\n\n".join((*_shown(cells), "the first promise of each, with the worst verdict", *_overview(cells))))
    if options.left_out:
        left = {
            cell: why
            for of in lines.values()
            for cell, why in of[0]["left_out"].items()
            if matching(cell, options.only)
        }
        print("\nleft out\n" + table(["cell", "why"], list(left.items())))
    for verdict, title in (("~", "off, and said in the answers"), ("!", "red")):
        some = [each for each in cells if each.verdict == verdict]
        print(f"\n{title}: {len(some)} of {len(cells)} promises")
        if some:
            print(
                table(
                    ["cell", "promise", "found", "shall be"],
                    [[each.cell, each.promise, each.text, f"{each.aim:.3g}"] for each in some],
                )
            )
    return {"cells": [asdict(each) for each in cells]}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
