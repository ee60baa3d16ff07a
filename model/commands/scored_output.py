"""Where `murho predict` puts its answers, chunk by chunk: memory does not grow with the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from murho.model.commands.written_cells import written_cells
from murho.model.data.csv_writer import CsvWriter
from murho.model.data.parquet_writer import ParquetWriter
from murho.model.data.tables import table_of_columns
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ScoredOutput", "scored_output"]


class ScoredOutput(Protocol):
    """Takes chunks of rows with their answers, in order."""

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        """Take a chunk of B rows and its output columns, ``[B]`` or ``[B, …]``."""
        ...


def scored_output(path: Path | None, *, keep_inputs: bool) -> AbstractContextManager[ScoredOutput]:
    """A context that takes chunks. A file is whole when it ends, and not there if an error ends it.

    Args:
        path: ``.csv`` or ``.parquet``; None: CSV on stdout, where rows are as soon as they are answered.
        keep_inputs: Whether the input columns come first.

    Raises:
        TableError: The file can't be written.
        OptionError: ``keep_inputs``, and an input column has the name of an answer's.
    """
    if path is not None and path.suffix.lower() == ".parquet":
        return _Output(ParquetWriter(path), keep_inputs=keep_inputs, as_csv=False)
    return _Output(CsvWriter(path), keep_inputs=keep_inputs, as_csv=True)


class _Output:
    """Each chunk goes to a writer at once."""

    def __init__(self, writer: CsvWriter | ParquetWriter, *, keep_inputs: bool, as_csv: bool) -> None:
        self._writer, self._keep_inputs, self._as_csv = writer, keep_inputs, as_csv

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        inputs = _inputs(rows, answers) if self._keep_inputs else {}
        cells = {name: written_cells(column, as_csv=self._as_csv) for name, column in answers.items()}
        self._writer.write(table_of_columns(inputs | cells))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


def _inputs(rows: pa.Table, answers: Mapping[str, Any]) -> dict[str, Any]:
    clash = sorted(set(answers) & set(rows.column_names))
    if clash:
        raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
    return {name: rows.column(name) for name in rows.column_names}
