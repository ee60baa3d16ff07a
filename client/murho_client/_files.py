"""`Client.predict_file`: a CSV or Parquet file in, a CSV or Parquet file out, a chunk of rows at a time.

The memory that it takes depends on the chunk, not on the file. The destination is written under a temporary name and
renamed at the end, so it is there completely or not at all. Parquet takes pyarrow.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from murho_client._errors import InvalidInput
from murho_client._file_formats import CSV, PARQUET, read_chunks, unusable, written
from murho_client._progress import Progress, ProgressBar
from murho_client._text_table import number

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from murho_client._client import Client
    from murho_client._prediction import Prediction

__all__ = ["predict_file"]

ROWS_PER_CHUNK = 16_384
MISSING = frozenset(
    {"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "Null", "null", "None"}
)
"""Texts that mark a missing cell in a CSV file; those of ``murho train`` and ``murho predict``."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def predict_file(
    client: Client,
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    model: str | None = None,
    *,
    version: str | None = None,
    keep_inputs: bool = False,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    progress: Progress = None,
    **options: Any,
) -> int:
    """Predict every row of a file, in order and in bounded memory.

    The output columns are those of ``murho predict``: ``mean, std, epistemic_std, aleatoric_std``, then ``p5, p50, …``;
    for a classifier ``prediction, p_CLASS…, entropy, epistemic_entropy, prediction_set``. Columns of the source that
    are no features, such as the target, are ignored. Every chunk is answered by the version that answered the first.

    Args:
        client: Sends the rows.
        source: ``.csv`` (``.tsv``, ``.txt``) or ``.parquet`` (``.pq``), with a header. CSV is UTF-8; the separator is a
            comma, semicolon, tab or bar.
        destination: ``.csv`` or ``.parquet``; replaced if it exists.
        model: Name of the model; by default the only one of the service, or its default.
        version: Version of the model; by default the latest.
        keep_inputs: Put the columns of the source first.
        rows_per_chunk: Rows that are read, sent and written at a time.
        progress: Whether to show a progress bar; None: on a terminal, after a second.
        options: The other options of `Client.predict`; ``timeout`` holds for a chunk.

    Returns:
        Number of rows.

    Raises:
        InvalidInput: The source has no rows, ragged lines or cells that can't be used; the message names file and line.
        ValueError: An extension is neither CSV nor Parquet, or the source is the destination.
        OSError: A file can't be read or written.
        MurhoClientError: As for `Client.predict`.
    """
    source, destination = Path(source), Path(destination)
    _check_paths(source, destination)
    options["percentiles"] = levels = tuple(options.get("percentiles", (5, 50, 95)))
    kinds = _kinds(client, model, version)
    done = 0
    with written(destination) as writer, ProgressBar(None, progress) as bar:
        for chunk in read_chunks(source, rows_per_chunk, None if keep_inputs else kinds):
            try:
                answer = client.predict(_cells(chunk.columns, kinds), model, version, progress=False, **options)
            except InvalidInput as error:
                raise _located(error, source, done, chunk.labels) from error
            scored = _output_columns(answer, levels)
            if keep_inputs:
                _check_no_clash(source, chunk.columns, scored)
                scored = chunk.columns | scored
            writer.write(scored)
            done += chunk.rows
            bar.advance(chunk.rows)
            model, version = answer.model, answer.version
        if not done:
            raise unusable(source, "the file has no rows below its header")
    return done


def _check_paths(source: Path, destination: Path) -> None:
    for path, known in ((source, CSV + PARQUET), (destination, (CSV[0], PARQUET[0]))):
        if path.suffix.lower() not in known:
            raise ValueError(f"{path}: the extension {path.suffix!r} is not known; use one of {', '.join(known)}")
    if destination.exists() and destination.samefile(source):
        raise ValueError(f"{destination} is the source, too: give another name to the destination")


def _kinds(client: Client, model: str | None, version: str | None) -> dict[str, str] | None:
    """Kind of each feature by its name; None where the service does not describe the model."""
    described = client._run(client._catalogue.find(model, version), None)
    return None if described is None else {feature.name: feature.kind for feature in described.features}


def _cells(columns: Mapping[str, Any], kinds: Mapping[str, str] | None) -> dict[str, Any]:
    """The features alone, with texts read as the kind of the feature says."""
    names = columns if kinds is None else [name for name in columns if name in kinds]
    return {name: _column(columns[name], None if kinds is None else kinds[name]) for name in names}


def _column(cells: Any, kind: str | None) -> Any:
    if not isinstance(cells, list):  # of Parquet
        if not str(cells.type).startswith(("string", "large_string", "dictionary")):
            return cells
        cells = cells.to_pylist()
    return [_cell(value, kind) if isinstance(value, str) else value for value in cells]


def _cell(text: str, kind: str | None) -> Any:
    """A cell of a CSV file. A text that does not fit its kind stays, and is refused with its row."""
    text = text.strip()
    if text in MISSING:
        return None
    match kind:
        case "numeric":
            return float(text) if _NUMBER.fullmatch(text) else text
        case "boolean":
            return _TRUTH.get(text.lower(), text)
        case None:  # the service does not say; 007 is a code, no number
            return float(text) if _PLAIN_NUMBER.fullmatch(text) else text
    return text


def _located(error: InvalidInput, source: Path, first: int, labels: Sequence[str]) -> InvalidInput:
    """The same error with rows of the file instead of rows of the chunk."""
    problems = []
    for problem in error.problems:
        if problem.row is None:
            problems.append(replace(problem, message=f"{problem.message} ({source.name})"))
            continue
        row, message = first + problem.row, f"{problem.message} ({source.name}, {labels[problem.row]})"
        problems.append(replace(problem, message=message, row=row, label=row))
    return InvalidInput(problems, error.total, error.status, error.problem)


def _check_no_clash(source: Path, columns: Mapping[str, Any], scored: Mapping[str, Any]) -> None:
    clash = sorted(set(columns) & set(scored))
    if clash:
        raise unusable(source, f"keep_inputs: there is a column {clash[0]!r} already; rename it")


def _output_columns(answer: Prediction, levels: Sequence[float]) -> dict[str, Any]:
    """The columns to write; without draws (``samples=0``) columns that need them have no values."""
    columns = answer.columns()
    none = np.full(len(answer), np.nan)
    if answer.classes is not None:
        unknown: dict[str, Any] = {"entropy": none, "epistemic_entropy": none, "prediction_set": [None] * len(answer)}
        return columns | {name: values for name, values in unknown.items() if name not in columns}
    names = ["mean", "std", "epistemic_std", "aleatoric_std", *(f"p{number(level)}" for level in levels)]
    return {name: columns.get(name, none) for name in names} | columns
