"""The rows of a table answered in blocks, in order, as the columns that `murho predict` writes.

A block's answer depends on its rows alone, so who answers it does not matter: a posterior of this process
(`score_block`), a service, or the workers of a cluster.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from murho.model.checkpoint.checkpoint import FACTS_FILE, read_facts, read_file
from murho.model.errors import OptionError, TableError
from murho.model.predictive.answer_columns import answer_columns
from murho.model.predictive.prediction import AnyPrediction, Place, PredictOptions, Question
from murho.model.tables.columns import list_array
from murho.model.tables.schema import Schema
from murho.model.tables.schema_inference import columns_from_table, labels_from_table, target_from_table

if TYPE_CHECKING:  # it imports PyTorch, which a mistyped name shall not wait for
    from murho.model.checkpoint.posterior import Posterior

ROWS_PER_BLOCK = 16_384
Found = TypeVar("Found")


class Scored(NamedTuple):
    """The answer for a block of B rows.

    Attributes:
        answers: The output columns; null where there is no answer (``samples=0``).
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
        cut: Whether a service listed only the first warnings.
    """

    answers: pa.Table
    unlike: int
    imputed: int
    cut: bool = False


def score_block(posterior: Posterior, block: pa.Table, options: PredictOptions, warnings: bool = False) -> Scored:
    """Return the answer for some rows by a posterior of this process.

    Args:
        posterior: The posterior.
        block: The rows.
        options: Options of the answer.
        warnings: Whether to add a column of warnings.

    Raises:
        TableError: The cells can't be used; the message names column and row.
    """
    columns = columns_from_table(block, posterior.schema)
    question = Question(slice(0, block.num_rows), options, max_warnings=sys.maxsize if warnings else 0)
    ((answer, found),) = posterior.predict_questions(columns, [question])
    written: dict[str, Any] = written_columns(answer, options)
    if warnings:
        written["warnings"] = warning_texts(block.num_rows, found)
    return Scored(answer_table(written), int(answer.extrapolation.sum()), len(posterior.schema.incomplete(columns)))


def written_columns(answer: AnyPrediction, options: PredictOptions) -> dict[str, Any]:
    """Return the columns of `murho predict` for an answer of B rows, by name; see `model.predictive.answer_columns`."""
    places = set(Place)
    if answer.classes is not None:
        options = replace(options, percentiles=())
        if not options.mc_error:
            places.remove(Place.NEXT)  # has epistemic_std of each class, asked or not
    return dict(answer_columns(answer, options, places))


def score_blocks(
    table: pa.Table, answers: Callable[[Iterable[pa.Table]], Iterable[Found]], rows: int = ROWS_PER_BLOCK
) -> Iterator[Found]:
    """Answer every row of a table, in order.

    Args:
        table: The table; the target and other columns that are no features are ignored.
        answers: Answers blocks, in order: ``partial(map, service.score)``.
        rows: Rows of a block.

    Raises:
        TableError: The table has no rows, or a feature's cells can't be used; the message names the row of the table.
    """
    if table.num_rows == 0:
        raise TableError("the table has no rows to score")
    done = 0
    try:
        for scored in answers(table.slice(start, rows) for start in range(0, table.num_rows, rows)):
            yield scored
            done += rows
    except TableError as error:
        raise error.shift_rows(done) from error


def warning_texts(rows: int, warnings: Iterable[Any]) -> list[str | None]:
    """One text a row: ``FEATURE: why; FEATURE: why``; None where there is nothing to say.

    Args:
        rows: B.
        warnings: Each with ``row`` (from 0), ``feature`` and ``message``.
    """
    texts: list[list[str]] = [[] for _ in range(rows)]
    for warning in warnings:
        texts[warning.row].append(f"{warning.feature}: {warning.message}")
    return ["; ".join(said) or None for said in texts]


def answer_table(columns: Mapping[str, Any]) -> pa.Table:
    """Columns of B rows as a table; NaN and None are null.

    Args:
        columns: Lists, or arrays ``[B]``, or ``[B, …]`` with a list in each cell.
    """
    made = {}
    for name, values in columns.items():
        objects = isinstance(values, list) or values.dtype == object
        made[name] = pa.array(values, from_pandas=True) if objects else list_array(values)
    return pa.table(made)


def beside(inputs: pa.Table, answers: pa.Table) -> pa.Table:
    """Return the columns of the answers behind those of the inputs.

    Raises:
        OptionError: Both have a column of the same name.
    """
    clash = sorted({*inputs.column_names} & {*answers.column_names})
    if clash:
        raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
    return pa.table([*inputs.columns, *answers.columns], names=[*inputs.column_names, *answers.column_names])


def lists_as_text(table: pa.Table) -> pa.Table:
    """Return the table for CSV: a list becomes JSON, such as ``["Adelie", "Gentoo"]``, whatever is in its texts."""
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            cells = table.column(place).to_pylist()
            texts = [None if cell is None else json.dumps(cell, ensure_ascii=False) for cell in cells]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table


def check_options(options: PredictOptions) -> None:
    """Check what is asked of the rows of a table, before they are read.

    Raises:
        OptionError: A value can't be used; the message names the option of `murho predict`.
    """
    for name, values, least, most in (
        ("percentiles", options.percentiles, 0.0, 100.0),
        ("thresholds", options.thresholds, -math.inf, math.inf),
        ("coverage", (options.coverage,), 0.0, 1.0),
    ):
        if len({*values}) < len(values):
            raise OptionError(f"--{name}: each number once, not {values}")
        for value in values:
            if not least < value < most:
                raise OptionError(f"--{name}: expected numbers strictly between {least:g} and {most:g}, not {value:g}")
    if options.samples < 0:
        raise OptionError(f"--samples: expected 0 or more, not {options.samples}")


FIRST_ROWS = 1_000


def stored_schema(directory: Path) -> Schema:
    """Return the schema of a version on disk; of its other facts and its tensors nothing is read. It takes no PyTorch.

    Raises:
        CheckpointError: ``model.json`` can't be read, or is damaged.
    """
    path = directory / FACTS_FILE
    return Schema.from_json(read_facts(read_file(path), str(path)).get("schema"), f"{path}: schema")


def check_first_rows(table: pa.Table, schema: Schema, *, labelled: bool = False) -> None:
    """Check that a table has the columns of a schema, and that the cells of its first rows fit them.

    Args:
        table: The table.
        schema: The features and the target.
        labelled: Whether the table needs the target, too.

    Raises:
        TableError: A column is missing, or a cell does not fit; the message names column and row.
    """
    first = table.slice(0, FIRST_ROWS)
    if not labelled:
        columns_from_table(first, schema)
    elif schema.target.classes is None:  # rows without a target may have any cells
        target_from_table(first, schema.target)
    else:  # a class that the model does not know may be meant
        labels_from_table(first, schema.target.name, schema.target.words)
