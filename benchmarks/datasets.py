"""The tables of the accuracy benchmarks, and their splits.

The tables are not part of Murho. ``--data DIR`` names a directory with the folders ``uci``, ``tabular`` and ``co2``.
The source of each file is given below, and in the message about a missing file. Splits are part of a benchmark:
results are comparable only on the same splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.csv

from murho.model.errors import OptionError
from murho.model.tables.files import read_table

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SETS", "TABULAR", "UCI", "UCI_REPOSITORY", "DataSet", "Split", "chosen_sets", "read_set", "splits"]

STANDARD_SPLITS, STANDARD_SEED = 20, 1
UCI_REPOSITORY = "the UCI Machine Learning Repository, https://archive.ics.uci.edu/dataset/"


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
        header: Column names of a file of comma-separated texts without a header, where ``?`` is a missing cell; empty
            for a table that `model.tables.files.read_table` reads.
    """

    name: str
    file: str
    rows: int
    target: str
    source: str
    standard: bool = False
    hidden: int = 50
    most_splits: int = STANDARD_SPLITS
    header: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of a table, ``[N]`` and ``[B]``."""

    training: NDArray[np.int64]
    test: NDArray[np.int64]


def _uci(name: str, rows: int, target: str, number: str, more: str = "", **options: Any) -> DataSet:
    source = f"{UCI_REPOSITORY}{number}, as CSV with a header{more}"
    return DataSet(name, f"uci/{name}.csv", rows, target, source, standard=True, **options)


UCI: dict[str, DataSet] = {
    dataset.name: dataset
    for dataset in (
        _uci("energy", 768, "heating_load_Y1", "242 (Energy Efficiency)", ", without Y2"),
        _uci(
            "naval",
            11_934,
            "comp_decay_state",
            "316 (Condition Based Maintenance)",
            ", without turbine decay",
        ),
        _uci("power", 9_568, "PE", "294 (Combined Cycle Power Plant)", ", first sheet"),
        _uci(
            "protein",
            45_730,
            "RMSD",
            "265 (Physicochemical Properties of Protein Tertiary Structure)",
            ", RMSD last",
            hidden=100,
            most_splits=5,
        ),
        _uci("wine", 1_599, "quality", "186 (Wine Quality, red)"),
        _uci("yacht", 308, "residuary_resistance", "243 (Yacht Hydrodynamics)"),
    )
}
"""The sets of the standard splits: Hernández-Lobato & Adams (2015), Gal & Ghahramani (2016)."""

TABULAR: dict[str, DataSet] = {name: UCI[name] for name in ("energy", "power", "wine", "yacht")} | {
    dataset.name: dataset
    for dataset in (
        DataSet(
            "california",
            "tabular/california.csv",
            20_640,
            "median_house_value",
            "housing.csv of https://github.com/ageron/handson-ml2 (datasets/housing), as it is",
        ),
        DataSet(
            "bike",
            "tabular/bike.csv",
            17_379,
            "cnt",
            f"hour.csv of {UCI_REPOSITORY}275 (Bike Sharing), without instant, dteday, casual and registered",
        ),
        DataSet(
            "diamonds",
            "tabular/diamonds.csv",
            53_940,
            "price",
            "diamonds.csv of https://github.com/mwaskom/seaborn-data, as it is",
        ),
        DataSet(
            "autompg",
            "tabular/autompg.csv",
            398,
            "mpg",
            "mpg.csv of https://github.com/mwaskom/seaborn-data, without the column name",
        ),
        DataSet(
            "abalone",
            "tabular/abalone.csv",
            4_177,
            "rings",
            f"{UCI_REPOSITORY}1 (Abalone), as CSV with the header "
            "sex,length,diameter,height,whole_weight,shucked_weight,viscera_weight,shell_weight,rings",
        ),
    )
}
"""The sets of the comparison with peers."""

SETS = UCI | TABULAR


def chosen_sets(names: str | None, known: Collection[str]) -> list[str]:
    """Names of sets from a comma-separated list; all of ``known`` if there is no list.

    Raises:
        OptionError: A name is unknown.
    """
    if names is None:
        return list(known)
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise OptionError(f"--sets: {name!r} is none of {', '.join(known)}")
    if not chosen:
        raise OptionError(f"--sets: name at least one of {', '.join(known)}")
    return chosen


def read_set(dataset: DataSet, data: Path) -> pa.Table:
    """The table of a set, as `model.tables.files.read_table` reads it: texts, null for missing cells.

    Raises:
        OptionError: The file is missing, or is not the expected table; the message says where to get it.
        TableError: The file can't be read.
    """
    path = data / dataset.file
    if not path.exists():
        raise OptionError(f"{path} does not exist; make it from {dataset.source}")
    table = _without_header(path, dataset.header) if dataset.header else read_table(path)
    if dataset.target not in table.column_names:
        raise OptionError(f"{path} has no column {dataset.target!r}; make it from {dataset.source}")
    if table.num_rows != dataset.rows:
        raise OptionError(
            f"{path} has {table.num_rows} rows instead of {dataset.rows}, so its splits would be others; "
            f"make it from {dataset.source}"
        )
    return table


def _without_header(path: Path, header: tuple[str, ...]) -> pa.Table:
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=list(header)),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pyarrow.string()), null_values=["?"], strings_can_be_null=True
        ),
    )


def splits(dataset: DataSet, rows: int, count: int) -> list[Split]:
    """The first splits of a set.

    The standard UCI splits are 90/10: numpy's legacy generator is seeded once with 1 and draws one permutation per
    split, ``choice(range(n), n, replace=False)``; the first ``round(0.9 n)`` rows are for training. The other splits
    are 80/20: ``default_rng(number).permutation(n)``, of which the first ``int(0.8 n)`` rows are for training.

    Args:
        dataset: The set.
        rows: Rows of its table, n.
        count: Number of splits; the standard protocol has no more than ``dataset.most_splits``.
    """
    if not dataset.standard:
        orders = [np.random.default_rng(number).permutation(rows) for number in range(count)]
        return [Split(order[: int(0.8 * rows)], order[int(0.8 * rows) :]) for order in orders]
    generator = np.random.RandomState(STANDARD_SEED)
    training = round(0.9 * rows)
    chosen = []
    for _ in range(min(count, dataset.most_splits)):
        order = generator.choice(range(rows), rows, replace=False)
        chosen.append(Split(order[:training], order[training:]))
    return chosen
