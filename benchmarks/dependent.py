"""`python -m benchmarks.dependent`: error bars on made-up tables whose rows depend on each other.

The true distribution of each table is known, so fresh rows show what the 90 % bands cover and what the CRPS is. Each
table is trained on without an option, and with the one that says how its rows belong together. Without options the
numbers that `murho train` prints are those of shuffled, independent rows.

- *four times*: every row stands four times in the table.
- *a quarter twice*: a quarter of the rows stand twice.
- *groups*: 80 groups of 15 rows with an effect of the group; asked for new groups.
- *patients*: 60 patients with 10 visits and features that are constant for a patient; asked for other patients.
- *AR(1)*: noise that is correlated from day to day, with a column of dates; asked for the days after.
- *drift*: a coefficient that drifts, without a column of dates; asked for the rows after.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import add_output, shown, some_of
from benchmarks.results import facts, table, write_json
from murho.model.evaluation.judging import evaluate_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["TABLES", "MadeTable", "main", "measure", "render"]

FRESH = 2_000
PAST, AHEAD, FUTURES = 1_000, 100, 20
"""Rows of a table in time, rows to come, and futures: a single one would say little, since its rows go together."""
FIRST_DAY = np.datetime64("2015-01-01")
COVERAGE = "90"


@dataclass(frozen=True, slots=True)
class MadeTable:
    """A made-up table and fresh rows.

    Attributes:
        rows: The training table.
        fresh: Fresh rows as they will be asked for.
        options: Options that say how the rows belong together; empty if nothing needs saying.
        ignored: Columns that are no features without these options.
    """

    rows: pa.Table
    fresh: pa.Table
    options: Mapping[str, Any]
    ignored: tuple[str, ...] = ()


def _friedman(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """A smooth function of four features in [0, 1] with interactions, scaled to a standard deviation of about 2."""
    x = features.T
    values: NDArray[np.float64] = 4.0 * np.sin(np.pi * x[0] * x[1]) + 8.0 * (x[2] - 0.5) ** 2 + 4.0 * x[3]
    return values


def _table(features: NDArray[np.float64], target: NDArray[np.float64], **columns: Any) -> pa.Table:
    named = {f"x{number}": column for number, column in enumerate(features.T)}
    return pa.table({**named, **columns, "y": target})


def four_times(generator: np.random.Generator) -> MadeTable:
    """300 different rows, each four times, in random order."""
    rows = _independent(generator, 300)
    copies = generator.permutation(np.repeat(np.arange(300), 4))
    return MadeTable(rows.take(copies), _independent(generator, FRESH), {})


def a_quarter_twice(generator: np.random.Generator) -> MadeTable:
    """800 different rows, 200 of which come twice, in random order."""
    rows = _independent(generator, 800)
    copies = generator.permutation(np.concatenate((np.arange(800), np.arange(200))))
    return MadeTable(rows.take(copies), _independent(generator, FRESH), {})


def _independent(generator: np.random.Generator, count: int) -> pa.Table:
    features = generator.random((count, 4))
    return _table(features, _friedman(features) + 0.5 * generator.standard_normal(count))


def groups(generator: np.random.Generator) -> MadeTable:
    """80 groups of 15 rows; a group adds N(0, 1.5^2) to the target and shifts its features, so that they tell of it."""

    def rows(count: int, name: str) -> pa.Table:
        group = np.repeat(np.arange(count), 15)
        centre = generator.random((count, 4))[group]
        features = 0.8 * centre + 0.2 * generator.random((len(group), 4))
        effect = 1.5 * generator.standard_normal(count)[group]
        noise = 0.3 * generator.standard_normal(len(group))
        order = generator.permutation(len(group))
        names = np.array([f"{name}{number}" for number in group])
        return _table(features[order], (_friedman(features) + effect + noise)[order], plot=names[order])

    return MadeTable(rows(80, "a"), rows(200, "b"), {"group": ("plot",)}, ("plot",))


def patients(generator: np.random.Generator) -> MadeTable:
    """60 patients with 10 visits: three features are the patient's own, one is the visit's."""

    def rows(count: int, name: str) -> pa.Table:
        patient = np.repeat(np.arange(count), 10)
        own = generator.random((count, 3))[patient]
        features = np.column_stack((own, generator.random(len(patient))))
        effect = 1.0 * generator.standard_normal(count)[patient]
        noise = 0.4 * generator.standard_normal(len(patient))
        names = np.array([f"{name}{number}" for number in patient])
        return _table(features, _friedman(features) + effect + noise, patient=names)

    return MadeTable(rows(60, "a"), rows(300, "b"), {"group": ("patient",)}, ("patient",))


def autoregressive(generator: np.random.Generator) -> MadeTable:
    """1,000 days with four features and AR(1) noise of correlation 0.98; asked for the next 100 days, in 20 futures."""
    correlation, days = 0.98, FIRST_DAY + np.arange(PAST + AHEAD)

    def rows(noise: NDArray[np.float64], when: NDArray[np.datetime64]) -> pa.Table:
        features = generator.random((len(noise), 4))
        white = 0.3 * generator.standard_normal(len(noise))
        return _table(features, _friedman(features) + 1.5 * noise + white, day=pa.array(when))

    def path(first: float, count: int) -> NDArray[np.float64]:
        noise = np.empty(count + 1)
        noise[0] = first
        for day, shock in enumerate(generator.standard_normal(count)):
            noise[day + 1] = correlation * noise[day] + np.sqrt(1.0 - correlation**2) * shock
        return noise[1:]

    past = path(float(generator.standard_normal()), PAST)
    futures = [rows(path(float(past[-1]), AHEAD), days[PAST:]) for _ in range(FUTURES)]
    return MadeTable(rows(past, days[:PAST]), pa.concat_tables(futures), {"time": "day"})


def drift(generator: np.random.Generator) -> MadeTable:
    """1,000 rows in time; a coefficient rises and wanders; asked for the next 100 rows, in 20 futures."""

    def path(first: float, count: int) -> NDArray[np.float64]:
        walk: NDArray[np.float64] = first + np.cumsum(0.006 + 0.05 * generator.standard_normal(count))
        return walk

    def rows(coefficient: NDArray[np.float64]) -> pa.Table:
        features = generator.random((len(coefficient), 4))
        noise = 0.5 * generator.standard_normal(len(coefficient))
        return _table(features, _friedman(features) + coefficient * features[:, 0] + noise)

    past = path(-2.0, PAST)
    futures = [rows(path(float(past[-1]), AHEAD)) for _ in range(FUTURES)]
    return MadeTable(rows(past), pa.concat_tables(futures), {"time": "row-order"})


TABLES: Mapping[str, Callable[[np.random.Generator], MadeTable]] = {
    "four times": four_times,
    "a quarter twice": a_quarter_twice,
    "groups": groups,
    "patients": patients,
    "AR(1)": autoregressive,
    "drift": drift,
}
"""Name → maker of the table."""


def measure(made: MadeTable, seed: int, budget: float | None, *, told: bool) -> dict[str, Any]:
    """Train on a table; returns what the training prints, and what is true on the fresh rows.

    Args:
        made: The table.
        seed: Seed of the training.
        budget: Seconds of the search; None for the default.
        told: Whether the options are given that say how the rows belong together.
    """
    values: dict[str, Any] = dict(made.options) if told else {"ignore": made.ignored}
    trained = train(made.rows, "y", make_options({"seed": seed, "budget": budget, **values}), reporter=Reporter())
    printed, true = trained.spec.metrics, evaluate_table(trained.posterior, made.fresh)
    return {"printed": _scores(printed), "true": _scores(true)}


def _scores(report: Mapping[str, Any]) -> dict[str, float]:
    bands = report["calibrated"] or report["raw"]
    return {
        "crps": report["crps"],
        "rmse": report["rmse"],
        "raw": report["raw"]["coverage"][COVERAGE],
        "coverage": bands["coverage"][COVERAGE],
    }


def render(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table, one line for each made-up table and way of training.

    Args:
        runs: Title of the line → return values of `measure`, one for each seed.
    """
    headers = ["table", "seeds", "90 % bands cover", "raw", "CRPS printed", "true", "printed / true"]
    lines = []
    for title, results in runs.items():
        true, printed = ([result[side] for result in results] for side in ("true", "printed"))
        ratios = [one["crps"] / other["crps"] for one, other in zip(printed, true, strict=True)]
        lines.append(
            [
                title,
                str(len(results)),
                shown([100.0 * scores["coverage"] for scores in true]),
                shown([100.0 * scores["raw"] for scores in true]),
                f"{np.mean([scores['crps'] for scores in printed]):.3f}",
                f"{np.mean([scores['crps'] for scores in true]):.3f}",
                f"{np.exp(np.mean(np.log(ratios))):.2f}",
            ]
        )
    return table(headers, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dependent", description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", default="0", help="seeds of tables and fits, such as 0,1,2 (default 0)")
    parser.add_argument("--tables", type=some_of(TABLES, "table"), default=list(TABLES), help="default all")
    parser.add_argument("--budget", type=float, help="seconds of each training (default: that of murho train)")
    parser.add_argument("--only", choices=("with", "without"), help="train only with the options, or only without")
    add_output(parser)
    options = parser.parse_args(arguments)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in options.tables:
        for seed in seeds:
            made = TABLES[name](np.random.default_rng((seed, list(TABLES).index(name))))
            for told in (False, True):
                way = "with" if told else "without"
                if (told and not made.options) or options.only not in (None, way if made.options else options.only):
                    continue
                said = " ".join(f"--{option} {_shown(value)}" for option, value in made.options.items())
                title = f"{name}, {said if told else 'no option'}"
                result = measure(made, seed, options.budget, told=told)
                runs.setdefault(title, []).append(result | {"seed": seed})
                print(f"{title}, seed {seed}: {result}", file=sys.stderr, flush=True)
    print(render(runs))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "dependent.json"
    write_json(path, {"benchmark": "dependent", **facts(), "budget": options.budget, "runs": runs})
    print(f"wrote {path}")
    return 0


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    sys.exit(main())
