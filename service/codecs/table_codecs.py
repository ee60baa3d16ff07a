"""Tables as bodies: CSV, Arrow streams and Parquet. Options come as query parameters."""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet

from murho.model.data.csv_files import parse_csv
from murho.model.data.index_columns import without_index
from murho.model.data.schema import FeatureKind
from murho.model.data.tables import csv_bytes
from murho.model.engines.answer_columns import table_columns
from murho.model.engines.answer_fields import Unit
from murho.model.errors import Problem, TableError
from murho.service.codecs.answer_columns import answer_columns, answer_facts, fact_headers
from murho.service.codecs.codec import Asked
from murho.service.codecs.envelope import predict_options
from murho.service.codecs.foreign_bodies import foreign_form
from murho.service.codecs.inputs import check_rows
from murho.service.codecs.query_options import parse_query
from murho.service.codecs.table_inputs import check_names, inputs_of_table
from murho.service.codecs.table_sizes import arrow_bytes, expanded_bytes, most_columns
from murho.service.errors import BadInputError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.data.schema import Schema
    from murho.model.engines.answer_columns import Column
    from murho.model.engines.prediction import PredictOptions
    from murho.service.codecs.codec import Answered
    from murho.service.settings import Settings

__all__ = ["FACTS", "ArrowCodec", "CSVCodec", "ParquetCodec"]

FACTS = b"murho"
"""Key of the schema's metadata that has the facts of an answer, as JSON."""
EXPANSION = 16
"""A table may take this many times the memory of the largest body. Compressed tables could take any amount."""

MOST_HEADER_BYTES = 2**18
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets write it before CSV in UTF-8."""
LINE_ENDS = frozenset(b"\r\n")


class _TableCodec:
    """What the codecs of tables share; see `Codec`."""

    media_type: str
    aliases: frozenset[str] = frozenset()

    def reads(self, media_type: str) -> bool:
        """Returns whether the media type is this codec's."""
        return media_type == self.media_type or media_type in self.aliases

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; see `Codec.decode`."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        try:
            table = self._table(body, schema, settings)
        except TableError as error:
            raise BadInputError([Problem("/inputs", f"{str(error)[:1].upper()}{str(error)[1:]}.")]) from None
        _check_memory(expanded_bytes(table), EXPANSION * settings.max_body_bytes)
        return Asked(inputs_of_table(table, schema, settings.max_rows), options, asked.timeout)

    def require_place(self, options: PredictOptions) -> None:
        """Accepts all options."""

    def headers(self, answered: Answered) -> Mapping[str, str]:
        """Returns the facts of the answer."""
        return fact_headers(answered)

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        """Returns the features' columns of the body, with their names checked."""
        raise NotImplementedError


class CSVCodec(_TableCodec):
    """CSV with a header line, in UTF-8; the answer is CSV too."""

    media_type = "text/csv"
    aliases = frozenset({"application/csv", "text/tab-separated-values"})

    def require_place(self, options: PredictOptions) -> None:
        """Refuses draws, which are a list in each row."""
        if options.draws:
            message = "CSV has no place for draws. Ask for the answer in JSON, Arrow or Parquet (Accept)."
            raise BadInputError([Problem("/include", message)])

    def encode(self, answered: Answered) -> bytes:
        """Returns one line a row; a list of classes is JSON."""
        columns = answer_columns(answered)
        return csv_bytes({name: _csv_column(values) for name, values in columns.items()})

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        advice = foreign_form(body)
        if advice and not body.startswith(BYTE_ORDER_MARK):
            raise BadInputError([Problem("", f"The body isn't CSV in UTF-8. {advice}")])
        check_rows(max(0, body.count(b"\n") - 1 - body.count(b'"')), settings.max_rows)
        if len(body) > MOST_HEADER_BYTES and not set(body[:MOST_HEADER_BYTES]) & LINE_ENDS:
            raise TooLargeError(f"The header line of the body takes more than {MOST_HEADER_BYTES} bytes.")
        table = without_index(parse_csv(body, "the body", most_columns=most_columns(schema)))
        check_names(table.column_names, schema)
        return table


class ArrowCodec(_TableCodec):
    """A stream of Arrow record batches; so is the answer."""

    media_type = "application/vnd.apache.arrow.stream"

    def encode(self, answered: Answered) -> bytes:
        """Returns the stream of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        table = _arrow_table(answered)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue()

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        most, batches, rows, taken = EXPANSION * settings.max_body_bytes, [], 0, 0
        try:
            _check_memory(arrow_bytes(body), most)
            with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
                _check_columns(len(reader.schema), schema)
                check_names(reader.schema.names, schema)
                for batch in reader:
                    batch.validate(full=True)
                    rows, taken = rows + batch.num_rows, taken + batch.nbytes
                    check_rows(rows, settings.max_rows)
                    _check_memory(taken, most)
                    batches.append(batch)
                return pa.Table.from_batches(batches, reader.schema)
        except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
            raise TableError(f"the body is not a whole Arrow stream: {error}") from None


class ParquetCodec(_TableCodec):
    """A Parquet file; so is the answer."""

    media_type = "application/vnd.apache.parquet"
    aliases = frozenset({"application/x-parquet", "application/parquet"})

    def encode(self, answered: Answered) -> bytes:
        """Returns the file of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        pa.parquet.write_table(_arrow_table(answered), sink)
        return sink.getvalue()

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        try:
            texts = [feature.name for feature in schema.features if feature.kind is FeatureKind.CATEGORICAL]
            # Texts stay in their dictionaries, where each is once: a small file can repeat a long one a million times.
            with pa.parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts) as file:
                _check_columns(file.metadata.num_columns, schema)
                check_names(file.schema_arrow.names, schema)
                check_rows(file.metadata.num_rows, settings.max_rows)
                groups = range(file.metadata.num_row_groups)
                taken = sum(file.metadata.row_group(group).total_byte_size for group in groups)
                _check_memory(taken, EXPANSION * settings.max_body_bytes)
                table = file.read(columns=[feature.name for feature in schema.features], use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TableError(f"the body is not a whole Parquet file: {error}") from None
        return table


def _check_columns(count: int, schema: Schema) -> None:
    if count > most_columns(schema):
        raise TooLargeError(f"The table has {count} columns; at most {most_columns(schema)} are read for this model.")


def _check_memory(taken: int, most: int) -> None:
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


def _csv_column(values: NDArray[Any]) -> Any:
    """Returns a column whose cells CSV has a text for."""
    if values.dtype != object:
        return values
    return [json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in values]


def _arrow_table(answered: Answered) -> pa.Table:
    classes = answered.prediction.classes or ()
    columns = table_columns(answered.prediction, answered.options)
    arrays = {name: _arrow_column(column, classes) for name, column in columns.items()}
    return pa.table(arrays).replace_schema_metadata({FACTS: orjson.dumps(answer_facts(answered))})


def _arrow_column(column: Column, classes: tuple[str, ...]) -> pa.Array:
    values = column.cells(classes)
    if column.unit is Unit.CLASS:
        return pa.array(values, pa.string())
    if column.unit is Unit.CLASS_SET:
        return pa.array(values, pa.list_(pa.string()))
    if values.ndim == 1:
        return pa.array(np.ascontiguousarray(values), from_pandas=True)  # NaN, which stands for none, becomes null
    if not values.shape[1]:
        return _empty_lists(len(values), values.ndim - 1)
    lists = pa.array(np.ascontiguousarray(values).ravel())
    for length in reversed(values.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, length)
    return lists


def _empty_lists(rows: int, depth: int) -> pa.Array:
    kind = pa.float64()
    for _ in range(depth):
        kind = pa.list_(kind)
    none: Sequence[list[Any]] = [[]] * rows
    return pa.array(none, kind)
