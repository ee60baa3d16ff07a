"""Where `murho predict` puts its answers: a CSV file chunk by chunk; Parquet and stdout when all are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from murho.model.commands.written_cells import written_cells
from murho.model.data.csv_writer import CsvWriter
from murho.model.data.tables import table_of_columns, write_table
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

__all__ = ["ScoredOutput", "scored_output"]


class ScoredOutput(Protocol):
    """Takes chunks of rows with their answers, in order."""

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        """Take a chunk of B rows and its output columns, ``[B]`` or ``[B, …]``."""
        ...


def scored_output(path: Path | None, *, keep_inputs: bool) -> AbstractContextManager[ScoredOutput]:
    """A context that takes chunks; the file is whole when it ends, and not there if an error ends it.

    Args:
        path: ``.csv`` or ``.parquet``; None: CSV on stdout.
        keep_inputs: Whether the input columns come first.

    Raises:
        TableError: The file can't be written.
        OptionError: ``keep_inputs``, and an input column has the name of an answer's.
    """
    if path is not None and path.suffix.lower() == ".csv":
        return _CsvOutput(path, keep_inputs=keep_inputs)
    return _WholeOutput(path, keep_inputs=keep_inputs)


class _CsvOutput(CsvWriter):
    """Each chunk is written at once: the memory that it takes does not grow with the table."""

    def __init__(self, path: Path, *, keep_inputs: bool) -> None:
        super().__init__(path)
        self._keep_inputs = keep_inputs

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        inputs = _inputs(rows, answers) if self._keep_inputs else {}
        self.write(table_of_columns(inputs | _cells(answers, as_csv=True)))


class _WholeOutput:
    """All chunks are kept, for formats that need to know the types of all cells first, and for stdout."""

    def __init__(self, path: Path | None, *, keep_inputs: bool) -> None:
        self._path, self._keep_inputs = path, keep_inputs
        self._rows: list[pa.Table] = []
        self._answers: list[Mapping[str, NDArray[Any]]] = []

    def __enter__(self) -> Self:
        return self

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        if self._keep_inputs:
            _inputs(rows, answers)
            self._rows.append(rows)
        self._answers.append(answers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        whole = {name: np.concatenate([part[name] for part in self._answers]) for name in self._answers[0]}
        inputs = _inputs(pa.concat_tables(self._rows), whole) if self._keep_inputs else {}
        write_table(self._path, inputs | _cells(whole, as_csv=self._path is None))


def _inputs(rows: pa.Table, answers: Mapping[str, Any]) -> dict[str, Any]:
    clash = sorted(set(answers) & set(rows.column_names))
    if clash:
        raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
    return {name: rows.column(name) for name in rows.column_names}


def _cells(answers: Mapping[str, NDArray[Any]], *, as_csv: bool) -> dict[str, Any]:
    return {name: written_cells(cells, as_csv=as_csv) for name, cells in answers.items()}
