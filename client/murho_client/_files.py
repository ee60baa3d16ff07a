"""Predictions for a CSV or Parquet file: read, sent and written a chunk of rows at a time.

The memory that it takes depends on the chunk, not on the file. The destination is written under a temporary name and
renamed at the end, so it is there completely or not at all. Parquet takes pyarrow.
"""

from __future__ import annotations

import csv
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import numpy as np

from murho_client._display import advancing, number
from murho_client._errors import InvalidInput, Problem
from murho_client._service import PredictOptions, Service

if TYPE_CHECKING:
    from murho_client._prediction import Prediction
    from murho_client._transport import Dialogue

__all__ = ["FileOptions", "predict_file"]


CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")
MISSING = frozenset(
    {"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "Null", "null", "None"}
)
"""Texts that mark a missing cell in a CSV file; those of ``murho train``, unless they are categories."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


class FileOptions(PredictOptions, total=False):
    """Options of the prediction of a file; see `Client.predict_file`."""

    keep_inputs: bool
    rows_per_chunk: int


Chunk: TypeAlias = "tuple[dict[str, Any], list[str]]"
"""Consecutive rows of a file: its columns by name, ``[B]`` texts (CSV) or an Arrow array (Parquet) each, and what
people call the rows: ``line 7`` in a CSV file, ``row 6`` (from 1) in a Parquet file."""
Writer: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Appends the columns of one chunk."""


def predict_file(
    service: Service,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    model: str | None,
    version: str | None,
    options: FileOptions,
) -> Dialogue[int]:
    """Predicts every row of a file, in order; see `Client.predict_file`."""
    source, destination = Path(source), Path(destination)
    _check_paths(source, destination)
    keep_inputs, rows = options.get("keep_inputs", False), options.get("rows_per_chunk", 16_384)
    levels = tuple(options.get("percentiles", (5, 50, 95)))
    asked: Any = {name: value for name, value in options.items() if name not in ("keep_inputs", "rows_per_chunk")}
    asked |= {"percentiles": levels, "progress": False}
    described = yield from service.find(model, version, None)
    kinds = None if described is None else {feature.name: feature.kind for feature in described.features}
    done = 0
    read = _csv_chunks if source.suffix.lower() in CSV else _parquet_chunks
    with _open_writer(destination) as write, advancing(None, options.get("progress")) as advance:
        for columns, labels in read(source, rows, None if keep_inputs else kinds):
            cells = {
                name: _cells(values, None if kinds is None else kinds[name])
                for name, values in columns.items()
                if kinds is None or name in kinds
            }
            if not cells:
                raise _unusable(source, f"no column is a feature of the model, which has {', '.join(kinds or ())}")
            try:
                answer = yield from service.predict(cells, model, version, asked)
            except InvalidInput as error:
                raise _locate_rows(error, source, done, labels) from error
            scored = _output_columns(answer, levels)
            if keep_inputs:
                if clash := sorted(columns.keys() & scored.keys()):
                    raise _unusable(source, f"keep_inputs: there is a column {clash[0]!r} already; rename it")
                scored = columns | scored
            write(scored)
            done += len(labels)
            advance(len(labels))
            model, version = answer.model, answer.version
        if not done:
            raise _unusable(source, "the file has no rows below its header")
    return done


def _unusable(path: Path, message: str) -> InvalidInput:
    return InvalidInput([Problem(f"{path}: {message}")])


def _check_paths(source: Path, destination: Path) -> None:
    for path, known in ((source, CSV + PARQUET), (destination, (CSV[0], PARQUET[0]))):
        if path.suffix.lower() not in known:
            raise ValueError(f"{path}: the extension {path.suffix!r} is not known; use one of {', '.join(known)}")
    if destination.exists() and destination.samefile(source):
        raise ValueError(f"{destination} is the source, too: give another name to the destination")


def _cells(column: Any, kind: str | None) -> Any:
    """Return a column with its texts read as the kind of the feature says."""
    if not isinstance(column, list):  # of Parquet
        if not str(column.type).startswith(("string", "large_string", "dictionary")):
            return column
        column = column.to_pylist()
    return [_cell(value.strip(), kind) if isinstance(value, str) else value for value in column]


def _cell(text: str, kind: str | None) -> Any:
    """Return a cell of a CSV file. A text that does not fit its kind stays, and is refused with its row."""
    if not text or (text in MISSING and kind != "categorical"):  # there the service knows which words are categories
        return None
    if kind == "boolean":
        return _TRUTH.get(text.lower(), text)
    return float(text) if kind == "numeric" and _NUMBER.fullmatch(text) else text


def _locate_rows(error: InvalidInput, source: Path, first: int, labels: Sequence[str]) -> InvalidInput:
    """Return the same error with rows of the file instead of rows of the chunk."""
    problems = []
    for problem in error.problems:
        row = None if problem.row is None else first + problem.row
        place = source.name if problem.row is None else f"{source.name}, {labels[problem.row]}"
        problems.append(replace(problem, message=f"{problem.message} ({place})", row=row, label=row))
    return InvalidInput(problems, error.total, error.status, error.problem)


def _output_columns(answer: Prediction, levels: Sequence[float]) -> dict[str, Any]:
    """Return the columns to write; without draws (``samples=0``) columns that need them have no values."""
    columns = answer.columns()
    if answer.samples:
        return columns
    if answer.classes is not None:
        empty = ["entropy", "epistemic_entropy", "prediction_set"]
    else:
        empty = ["std", "epistemic_std", "aleatoric_std", *(f"p{number(level)}" for level in levels)]
    return columns | dict.fromkeys(empty, np.full(len(answer), np.nan))


def _csv_chunks(source: Path, rows: int, _: Collection[str] | None) -> Iterator[Chunk]:
    """Return the rows of a CSV file."""
    with source.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            head = next((line for line in file if line.strip()), "")
            file.seek(0)
            reader = csv.reader(file, delimiter=max(SEPARATORS, key=head.count), strict=True)
            names = [name.strip() for name in next((line for line in reader if any(line)), [])]
            _check_names(source, names)
            while lines := list(islice(_lines(source, reader, len(names)), rows)):
                columns = zip(*(cells for _, cells in lines), strict=True)
                yield dict(zip(names, map(list, columns), strict=True)), [f"line {at}" for at, _ in lines]
        except csv.Error as error:
            raise _unusable(source, f"line {reader.line_num}: {error}: check the quotes from this line on") from error
        except UnicodeDecodeError as error:
            raise _unusable(source, "the file is not UTF-8 text: save it as UTF-8") from error


def _lines(source: Path, reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    before = reader.line_num
    for cells in reader:
        at, before = before + 1, reader.line_num
        if not cells:
            continue
        if len(cells) != width:
            raise _unusable(source, f"line {at}: {len(cells)} cells where the header has {width}")
        yield at, cells


def _check_names(source: Path, names: Sequence[str]) -> None:
    if not names:
        raise _unusable(source, "the file is empty: the first line names the columns")
    for place, name in enumerate(names, start=1):
        if not name:
            raise _unusable(source, f"column {place} has no name: name every column")
        if name in names[: place - 1]:
            raise _unusable(source, f"two columns are named {name!r}: names must differ")


def _parquet_chunks(source: Path, rows: int, wanted: Collection[str] | None) -> Iterator[Chunk]:
    """Return the rows of a Parquet file; of the wanted columns, where some are named."""
    pa, parquet = _pyarrow(source)
    with source.open("rb") as opened:
        try:
            file = parquet.ParquetFile(opened)
            names = file.schema_arrow.names
            _check_names(source, names)
            first = 1
            if wanted is not None:
                names = [name for name in names if name in wanted]
            for batch in file.iter_batches(batch_size=rows, columns=names):
                if batch.num_rows:
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield columns, [f"row {at}" for at in range(first, first + batch.num_rows)]
                    first += batch.num_rows
        except pa.ArrowException as error:
            raise _unusable(source, f"not a whole Parquet file: {error}") from error


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: Parquet files take pyarrow: pip install pyarrow") from error


@contextmanager
def _open_writer(destination: Path) -> Iterator[Writer]:
    """Return a writer of the destination, which is there when the block has ended without an error."""
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.tmp")
    try:
        if destination.suffix.lower() in CSV:
            with temporary.open("x", newline="", encoding="utf-8") as text:
                yield _csv_writer(text)
                _to_disk(text)
        else:
            with temporary.open("xb") as binary:
                with _parquet_writer(destination, binary) as write:
                    yield write
                _to_disk(binary)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _csv_writer(file: TextIO) -> Writer:
    """Comma-separated lines; numbers as the shortest text that reads back the same, missing cells empty."""
    writer = csv.writer(file, lineterminator="\n")
    begun = False

    def write(columns: Mapping[str, Any]) -> None:
        nonlocal begun
        if not begun:
            writer.writerow(columns)
            begun = True
        lists = (values if isinstance(values, list) else values.tolist() for values in columns.values())
        writer.writerows(zip(*(map(_text, column) for column in lists), strict=True))

    return write


def _text(value: Any) -> Any:
    """Return a cell for ``csv.writer``, which writes floats by `repr` and None as an empty cell."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


@contextmanager
def _parquet_writer(path: Path, file: Any) -> Iterator[Writer]:
    """Return a Parquet file with a row group per chunk."""
    pa, parquet = _pyarrow(path)
    writer: Any = None

    def array(values: Any) -> Any:
        return pa.array(np.ascontiguousarray(values), from_pandas=True) if isinstance(values, np.ndarray) else values

    def write(columns: Mapping[str, Any]) -> None:
        nonlocal writer
        table = pa.table({name: array(values) for name, values in columns.items()})
        if writer is None:
            writer = parquet.ParquetWriter(file, table.schema)
        writer.write_table(table.cast(writer.schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
