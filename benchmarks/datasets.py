"""The tables of the accuracy benchmarks, and their splits.

The tables are not part of Murho. ``--data DIR`` names a directory with the folders ``uci``, ``tabular`` and so on. The
source of each file is given below, and in the message about a missing file. Splits are part of a benchmark: results are
comparable only on the same splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.csv

from benchmarks.results import some_of
from benchmarks.runner import Job, Task, fit_job
from murho.model.errors import OptionError
from murho.model.tables.table_files import read_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from murho.model.arrays import Doubles, Ints

STANDARD_SPLITS, STANDARD_SEED = 20, 1
REPOSITORY = "the UCI Machine Learning Repository, https://archive.ics.uci.edu/dataset/"
SEABORN = "of https://github.com/mwaskom/seaborn-data"
MUSHROOM = (
    "class,cap_shape,cap_surface,cap_color,bruises,odor,gill_attachment,gill_spacing,gill_size,gill_color,stalk_shape,"
    "stalk_root,stalk_surface_above_ring,stalk_surface_below_ring,stalk_color_above_ring,stalk_color_below_ring,"
    "veil_type,veil_color,ring_number,ring_type,spore_print_color,population,habitat"
)


@dataclass(frozen=True, slots=True)
class DataSet:
    """One table.

    Attributes:
        name: Name on the command line.
        file: Path below the data directory.
        rows: Required number of rows: a copy with another number has other splits.
        target: Name of the target column.
        source: Where to get the data, and how the file is made from it.
        standard: Whether the splits are the standard UCI ones.
        hidden: Width of the hidden layer in the standard protocol.
        most_splits: Number of splits in the standard protocol.
        header: Names of the columns of a file without a header, where ``?`` is a missing cell; empty for a table that
            `model.tables.table_files.read_table` reads.
    """

    name: str
    file: str
    rows: int
    target: str
    source: str
    standard: bool = False
    hidden: int = 50
    most_splits: int = STANDARD_SPLITS
    header: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a table, ``[N]`` and ``[B]``."""

    training: Ints
    test: Ints


def _by_name(*sets: DataSet) -> dict[str, DataSet]:
    return {each.name: each for each in sets}


def _uci(name: str, rows: int, target: str, number: str, **options: Any) -> DataSet:
    source = f"{REPOSITORY}{number}, as CSV with a header"
    return DataSet(name, f"uci/{name}.csv", rows, target, source, standard=True, **options)


def _tabular(name: str, rows: int, target: str, source: str) -> DataSet:
    return DataSet(name, f"tabular/{name}.csv", rows, target, source)


def _classes(name: str, rows: int, target: str, source: str) -> DataSet:
    more = ", as CSV with a header, missing cells empty and the target as the last column"
    return DataSet(name, f"classification/{name}.csv", rows, target, f"{source}{more}")


UCI = _by_name(
    _uci("energy", 768, "heating_load_Y1", "242 (Energy Efficiency), without Y2"),
    _uci("naval", 11_934, "comp_decay_state", "316 (Condition Based Maintenance), without turbine decay"),
    _uci("power", 9_568, "PE", "294 (Combined Cycle Power Plant), first sheet"),
    _uci("protein", 45_730, "RMSD", "265 (Protein Tertiary Structure), RMSD last", hidden=100, most_splits=5),
    _uci("wine", 1_599, "quality", "186 (Wine Quality, red)"),
    _uci("yacht", 308, "residuary_resistance", "243 (Yacht Hydrodynamics)"),
)
"""The sets of the standard splits: Hernández-Lobato & Adams (2015), Gal & Ghahramani (2016)."""

ABALONE = "sex,length,diameter,height,whole_weight,shucked_weight,viscera_weight,shell_weight,rings"
TABULAR = {name: UCI[name] for name in ("energy", "power", "wine", "yacht")} | _by_name(
    _tabular("california", 20_640, "median_house_value", "housing.csv of https://github.com/ageron/handson-ml2"),
    _tabular("bike", 17_379, "cnt", f"hour.csv of {REPOSITORY}275, without instant, dteday, casual and registered"),
    _tabular("diamonds", 53_940, "price", f"diamonds.csv {SEABORN}, as it is"),
    _tabular("autompg", 398, "mpg", f"mpg.csv {SEABORN}, without the column name"),
    _tabular("abalone", 4_177, "rings", f"{REPOSITORY}1 (Abalone), as CSV with the header {ABALONE}"),
)
"""The sets of the comparison with peers."""

CLASSES = _by_name(
    _classes("wheat_seeds", 210, "variety", f"{REPOSITORY}236 (Seeds)"),
    _classes("breast_cancer_recurrence", 286, "recurrence", f"{REPOSITORY}14 (Breast Cancer, Ljubljana)"),
    _classes("haberman", 306, "survival", f"{REPOSITORY}43 (Haberman's Survival)"),
    _classes("ecoli", 336, "site", f"{REPOSITORY}39 (Ecoli), without the names of the sequences"),
    _classes("ionosphere", 351, "signal", f"{REPOSITORY}52 (Ionosphere)"),
    _classes("banknote", 1_372, "kind", f"{REPOSITORY}267 (Banknote Authentication)"),
    _classes("phoneme", 5_404, "sound", "OpenML, https://www.openml.org/d/1489 (phoneme)"),
    DataSet(
        "mushroom",
        "mushroom/agaricus-lepiota.data",
        8_124,
        "class",
        f"agaricus-lepiota.data of {REPOSITORY}73 (Mushroom), as it is",
        header=MUSHROOM,
    ),
    _classes("mammography", 11_183, "calcification", "OpenML, https://www.openml.org/d/310 (mammography)"),
    _classes("adult", 32_561, "income", f"adult.data of {REPOSITORY}2 (Adult)"),
)
"""The sets of the comparison of classifiers, the smallest first."""

SETS = UCI | TABULAR | CLASSES


def add_data(
    parser: argparse.ArgumentParser, known: Collection[str] = (), default: Collection[str] | None = None
) -> None:
    """Add ``--data`` and, where sets can be chosen, ``--sets``, some names of ``known``."""
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with the folders uci, tabular, …")
    if known:
        chosen = list(default or known)
        said = f"some of {','.join(known)} (default {','.join(chosen)})"
        parser.add_argument("--sets", type=some_of(known), default=chosen, metavar="NAMES", help=said)


def read_set(dataset: DataSet, data: Path) -> pa.Table:
    """Return the table of a set, as `model.tables.table_files.read_table` reads it: texts, null for missing cells.

    Raises:
        OptionError: The file is missing, or is not the expected table; the message says where to get it.
        TableError: The file can't be read.
    """
    path = data / dataset.file
    if not path.exists():
        raise OptionError(f"{path} does not exist; make it from {dataset.source}")
    table = _without_header(path, dataset.header.split(",")) if dataset.header else read_table(path)
    if dataset.target not in table.column_names or table.num_rows != dataset.rows:
        raise OptionError(
            f"{path} must have {dataset.rows} rows, or its splits would be others, and the column {dataset.target!r}; "
            f"it has {table.num_rows} and {', '.join(table.column_names)}; make it from {dataset.source}"
        )
    return table


def _without_header(path: Path, header: list[str]) -> pa.Table:
    texts = dict.fromkeys(header, pyarrow.string())
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=header),
        convert_options=pyarrow.csv.ConvertOptions(column_types=texts, null_values=["?"], strings_can_be_null=True),
    )


def splits(dataset: DataSet, count: int) -> list[Split]:
    """Return the first splits of a set.

    The standard UCI splits are 90/10: numpy's legacy generator is seeded once with 1 and draws one permutation per
    split, ``choice(range(n), n, replace=False)``; the first ``round(0.9 n)`` rows are for training. The other splits
    are 80/20: ``default_rng(number).permutation(n)``, of which the first ``int(0.8 n)`` rows are for training.

    Args:
        dataset: The set, whose table has n rows.
        count: Number of splits; the standard protocol has no more than ``dataset.most_splits``.
    """
    rows = dataset.rows
    if not dataset.standard:
        orders = [np.random.default_rng(number).permutation(rows) for number in range(count)]
        return [Split(order[: int(0.8 * rows)], order[int(0.8 * rows) :]) for order in orders]
    generator, training = np.random.RandomState(STANDARD_SEED), round(0.9 * rows)
    orders = [generator.choice(range(rows), rows, replace=False) for _ in range(min(count, dataset.most_splits))]
    return [Split(order[:training], order[training:]) for order in orders]


def split_task(data: Path, name: str, split: Split, options: Mapping[str, Any]) -> Task:
    """Return a split of a set, for `benchmarks.runner.fit_job`."""
    table = read_set(SETS[name], data)
    return Task(table.take(split.training), table.take(split.test), SETS[name].target, options)


def split_jobs(
    options: argparse.Namespace,
    make: Callable[[Path, str, Split, Mapping[str, Any]], Task] = split_task,
    kind: str = "",
    **own: Any,
) -> list[Job]:
    """Return a fit of each split of each set, with ``--data``, ``--sets``, ``--splits`` and ``--budget``.

    Args:
        options: Of the command.
        make: Makes a task.
        kind: Begins the names of the jobs; without one they are fits with the defaults, which all benchmarks share.
        own: Options of `murho train`.
    """
    given, jobs = {**own, "budget": options.budget}, []
    for name in options.sets:
        read_set(SETS[name], options.data)  # before hours of fits
        for number, split in enumerate(splits(SETS[name], options.splits)):
            label = f"{kind}{name}-{number:02d}-{options.budget}"
            jobs.append(fit_job(label, name, make, options.data, name, split, given))
    return jobs


def numeric(cells: Sequence[str | None]) -> Doubles | None:
    """Return a column of texts as numbers, NaN for missing cells; None if one is no number."""
    try:
        return np.array([np.nan if cell in (None, "") else float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
