"""Where `murho predict` puts its answers, chunk by chunk: memory does not grow with the table."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from murho.model.commands.written_cells import written_cells
from murho.model.data.csv_writer import csv_writer
from murho.model.data.parquet_writer import parquet_writer
from murho.model.data.tables import table_of_columns
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ScoredOutput", "scored_output"]


class ScoredOutput(Protocol):
    """Takes chunks of rows with their answers, in order."""

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        """Take a chunk of B rows and its output columns, ``[B]`` or ``[B, …]``."""
        ...


@contextmanager
def scored_output(path: Path | None, *, keep_inputs: bool) -> Iterator[ScoredOutput]:
    """A context that takes chunks. A file is whole when it ends, and not there if an error ends it.

    Args:
        path: ``.csv`` or ``.parquet``; None: CSV on stdout, where rows are as soon as they are answered.
        keep_inputs: Whether the input columns come first.

    Raises:
        TableError: The file can't be written.
        OptionError: ``keep_inputs``, and an input column has the name of an answer's.
    """
    as_parquet = path is not None and path.suffix.lower() == ".parquet"
    with parquet_writer(path) if path is not None and as_parquet else csv_writer(path) as write:
        yield _Output(write, keep_inputs=keep_inputs, as_csv=not as_parquet)


class _Output:
    """Each chunk goes to a writer at once."""

    def __init__(self, write: Callable[[pa.Table], None], *, keep_inputs: bool, as_csv: bool) -> None:
        self._write, self._keep_inputs, self._as_csv = write, keep_inputs, as_csv

    def append(self, rows: pa.Table, answers: Mapping[str, NDArray[Any]]) -> None:
        inputs = _inputs(rows, answers) if self._keep_inputs else {}
        cells = {name: written_cells(column, as_csv=self._as_csv) for name, column in answers.items()}
        self._write(table_of_columns(inputs | cells))


def _inputs(rows: pa.Table, answers: Mapping[str, Any]) -> dict[str, Any]:
    clash = sorted(set(answers) & set(rows.column_names))
    if clash:
        raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
    return {name: rows.column(name) for name in rows.column_names}
