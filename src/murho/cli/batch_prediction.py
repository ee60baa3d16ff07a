"""Predictions for a whole table, by a posterior in this process or by a running service.

The answer of a service becomes the prediction that a posterior of this process would give. So the columns of a table
come from one place, wherever the answer was computed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from murho.model.encoding.imputation import rows_to_impute
from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.predictive.answer_columns import answer_columns
from murho.model.predictive.monte_carlo_error import MonteCarloError
from murho.model.predictive.prediction import ClassMonteCarloError, ClassPrediction, Place, Prediction
from murho.model.progress import ignore_rows
from murho.model.tables.cells import format_date, parse_date
from murho.model.tables.columns import float_array, is_missing
from murho.model.tables.files import numbered_in_table, table_of_columns
from murho.model.tables.readings import reading_from_json
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.writers import csv_writer, parquet_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from murho_client import Client
    from murho_client import Prediction as Answer
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.predictive.prediction import Fielded, PredictOptions
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns

__all__ = [
    "LocalScorer",
    "Scored",
    "ScoredOutput",
    "ScoredTable",
    "Scorer",
    "ServiceScorer",
    "class_prediction_of",
    "connect",
    "json_cells",
    "lists_as_text",
    "number_prediction_of",
    "only_model",
    "schema_of",
    "score_chunks",
    "score_table",
    "scored_output",
    "warning_texts",
    "written_cells",
]


def written_cells(column: NDArray[Any], *, as_csv: bool) -> pa.Array:
    """A column of a table, to write.

    Args:
        column: Cells ``[B]``, or a list of numbers in each, ``[B, …]``.
        as_csv: Whether they go to CSV, which has no lists: these become text.

    Returns:
        NaN, and None, are missing values.
    """
    if column.ndim == 1 and column.dtype == np.float64:
        return float_array(column)
    if as_csv:
        return pa.array(lists_as_text(column), from_pandas=True)
    if column.ndim == 1:
        return pa.array(column, from_pandas=True)
    if 0 in column.shape:
        return pa.array(column.tolist(), pa.list_(pa.float64()))
    lists = pa.array(np.ascontiguousarray(column).ravel())
    for length in reversed(column.shape[1:]):
        lists = pa.FixedSizeListArray.from_arrays(lists, length)
    return lists


def lists_as_text(column: NDArray[Any]) -> NDArray[Any]:
    """Cells for CSV, ``[B]``: a list becomes JSON, such as ``["Adelie", "Gentoo"]``, whatever is in its texts."""
    if column.ndim == 1 and (column.dtype != object or not any(isinstance(cell, list) for cell in column)):
        return column
    cells = column if column.ndim == 1 else [cell.tolist() for cell in column]
    texts = [json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in cells]
    return np.array(texts, dtype=object)


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


def warning_texts(rows: int, warnings: Iterable[tuple[int, str, str]]) -> NDArray[np.object_]:
    """One text a row, ``[B]``: ``FEATURE: why; FEATURE: why``. None where there is nothing to say.

    Args:
        rows: B.
        warnings: Row, from 0, feature and message of each.
    """
    texts = np.full(rows, None, dtype=object)
    for row, feature, message in warnings:
        before = texts[row]
        said = f"{feature}: {message}"
        texts[row] = said if before is None else f"{before}; {said}"
    return texts


def schema_of(described: Mapping[str, Any]) -> Schema:
    """The schema of a model, as ``GET /models/{name}`` describes it."""
    target = described["target"]
    classes = target.get("classes")
    return Schema(
        tuple(_feature(item) for item in described["features"]),
        Target(target["name"], target.get("unit"), None if classes is None else tuple(classes)),
        dict(described.get("left_out") or {}),
    )


def _feature(item: dict[str, Any]) -> Feature:
    kind = FeatureKind(item["kind"])

    def bound(value: Any) -> float | None:
        return parse_date(value) if isinstance(value, str) else value

    return Feature(
        name=item["name"],
        kind=kind,
        unit=item["unit"],
        missing=bool(item["missing"]),
        minimum=bound(item["min"]),
        maximum=bound(item["max"]),
        categories=tuple(item["categories"] or ()),
        reading=reading_from_json(item.get("reading"), f"the reading of {item['name']!r}"),
    )


def json_cells(feature: Feature, column: NDArray[Any]) -> list[Any]:
    """The cells of a canonical column, ``[B]``, as a service takes them; None where one is missing."""
    if feature.kind is FeatureKind.CATEGORICAL:
        return list(column)
    cells = column.tolist()
    if feature.kind is FeatureKind.DATE:
        return [None if cell != cell else format_date(cell) for cell in cells]
    if feature.kind is FeatureKind.BOOLEAN:
        return [None if cell != cell else bool(cell) for cell in cells]
    return [None if cell != cell else cell for cell in cells]


def number_prediction_of(answer: Answer) -> Prediction:
    """The prediction of a number behind an answer; what was not asked for is None."""
    errors = answer.mc_error
    return Prediction(
        samples=answer.samples,
        seed=answer.seed,
        calibrated=answer.calibrated,
        mean=answer.mean,
        std=answer.std,
        epistemic_std=answer.epistemic_std,
        aleatoric_std=answer.aleatoric_std,
        percentiles=answer.percentiles,
        exceedance=_exceedance(answer),
        draws=answer.draws,
        mc_error=None if errors is None else MonteCarloError(**{"percentiles": np.empty((len(answer), 0)), **errors}),
    )


def class_prediction_of(answer: Answer, classes: Sequence[str]) -> ClassPrediction:
    """The prediction of a class behind an answer; what was not asked for is None.

    Args:
        answer: The answer.
        classes: Names of the C classes, in the order of the probabilities.
    """
    # Typed as anything: an installed client may be older than classes.
    given: Any = answer
    number = {name: place for place, name in enumerate(classes)}
    members = None
    if given.prediction_set is not None:
        members = np.array([[name in names for name in classes] for names in map(set, given.prediction_set)])
    errors = given.mc_error
    return ClassPrediction(
        samples=given.samples,
        seed=given.seed,
        calibrated=given.calibrated,
        classes=tuple(classes),
        prediction=np.array([number[name] for name in given.prediction], dtype=np.int64),
        probabilities=np.asarray(given.probabilities),
        epistemic_std=given.epistemic_std,
        entropy=given.entropy,
        epistemic_entropy=given.epistemic_entropy,
        prediction_set=members,
        draws=given.draws,
        mc_error=None if errors is None else ClassMonteCarloError(errors["probabilities"]),
    )


def _exceedance(answer: Answer) -> Any:
    if not answer.thresholds or answer.samples == 0:
        return None
    return np.stack([answer.exceedance(threshold) for threshold in answer.thresholds], axis=1)


ROWS_PER_CHUNK = 16_384
ROWS_PER_REQUEST = 4_096
SECONDS_PER_REQUEST = 120.0
RETRIES = 3
MORE_WARNINGS = "More values are unlike the training rows"
"""So begins a service's last warning where it has not listed all."""


class Scored(NamedTuple):
    """The answer for a chunk of rows.

    Attributes:
        columns: Output columns by name, ``[B]`` each, or a list in each cell, ``[B, …]``; NaN, or None, for columns
            without an answer (``samples=0``); see `model.predictive.answer_columns`. If asked for, ``warnings`` is the
            last.
        unlike: Whether each row is unlike the training rows, ``[B]``. A service lists the first 100 warnings of a
            request, so further rows of the request don't count.
        imputed: Whether each row lacks a cell that no training row lacked, ``[B]``; found as ``unlike`` is.
        cut: Whether the service listed only the first warnings.
    """

    columns: dict[str, NDArray[Any]]
    unlike: NDArray[np.bool_]
    imputed: NDArray[np.bool_]
    cut: bool = False


class ScoredTable(NamedTuple):
    """The answer for a table.

    Attributes:
        columns: Output columns by name, as in `Scored`.
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
        cut: Whether a service listed only the first warnings of some rows.
    """

    columns: dict[str, NDArray[Any]]
    unlike: int
    imputed: int
    cut: bool = False


class Scorer(Protocol):
    """Answers for canonical columns, chunk by chunk."""

    schema: Schema

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer for a chunk of rows."""
        ...


class LocalScorer:
    """A `Scorer` with the posterior in this process."""

    def __init__(self, posterior: Posterior, *, warnings: bool = False) -> None:
        """Store a loaded posterior, and whether to write the column of warnings."""
        self.posterior, self._warnings = posterior, warnings
        self.schema = posterior.schema

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer of the posterior; see `Scorer.score`."""
        classes = self.schema.target.classes
        options = options if classes is None else replace(options, percentiles=())
        answer = self.posterior.predict(columns, options)
        # Without a distribution of the features every value beyond its range counts.
        categories_only = self.posterior.encoder.distribution is not None
        unlike = _rows_outside(self.schema, columns, categories_only=categories_only)
        if answer.outside is not None:
            unlike |= answer.outside
        imputed = np.zeros(len(unlike), dtype=bool)
        imputed[rows_to_impute(self.schema, columns)] = True
        scored = _written(answer, options)
        if self._warnings:
            found = self.posterior.input_warnings(columns, among=answer.warned)
            scored |= _warnings(len(unlike), ((item.row, item.feature, item.message) for item in found))
        return Scored(scored, unlike, imputed)


class ServiceScorer:
    """A `Scorer` that asks a running service, through its client."""

    def __init__(self, client: Client, model: str, version: str | None = None, *, warnings: bool = False) -> None:
        """Ask the service for the features of the model.

        Args:
            client: A client of the service.
            model: Name of the model.
            version: Its version; by default the latest.
            warnings: Whether to write the column of warnings.

        Raises:
            MurhoError: The service can't be reached or has no such model.
        """
        self._client, self._model, self._version, self._warnings = client, model, version, warnings
        with _client_errors():
            described = client.model(model, version).raw
        self.schema = schema_of(described)

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer of the service; see `Scorer.score`."""
        inputs = {feature.name: json_cells(feature, columns[feature.name]) for feature in self.schema.features}
        classes = self.schema.target.classes
        # What only the other kind of target has is not sent: the service would refuse it.
        own: dict[str, Any] = (
            {"percentiles": options.percentiles, "noise": options.noise, "thresholds": options.thresholds}
            if classes is None
            else {"coverage": options.coverage}
        )
        with _client_errors(), _client_for(classes):
            answer = self._client.predict(
                inputs,
                self._model,
                self._version,
                samples=options.samples,
                seed=options.seed,
                calibrated=options.calibrated,
                include=[name for name in ("draws", "mc_error") if getattr(options, name)],
                progress=False,
                **own,
            )
            if classes is None:
                scored = _written(number_prediction_of(answer), options)
            else:
                scored = _written(class_prediction_of(answer, classes), replace(options, percentiles=()))
        unlike, imputed = np.zeros((2, len(next(iter(scored.values())))), dtype=bool)
        placed = [
            (warning.row, warning.feature, warning.message)
            for warning in answer.warnings
            if warning.row is not None and warning.feature is not None
        ]
        for row, feature, _ in placed:
            (imputed if is_missing(columns[feature][row : row + 1])[0] else unlike)[row] = True
        if self._warnings:
            scored |= _warnings(len(unlike), placed)
        cut = any(warning.message.startswith(MORE_WARNINGS) for warning in answer.warnings)
        return Scored(scored, unlike, imputed, cut)


@contextmanager
def _client_for(classes: tuple[str, ...] | None) -> Iterator[None]:
    """What a client that is older than classes does with them, as an error that says so."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        if classes is None:
            raise
        raise OptionError(
            "--url: the installed murho_client does not know classes: pip install ./client in a clone of this version "
            "of the repository, or leave out --url"
        ) from error


def connect(url: str) -> Client:
    """A client of the service at an address.

    Raises:
        OptionError: The client is not installed.
        MurhoError: The text is no address.
    """
    try:
        from murho_client import Client
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--url takes the client of the service, but there is no {error.name}: "
            "pip install ./client in a clone of the repository"
        ) from error
    try:
        return Client(url, timeout=SECONDS_PER_REQUEST, max_rows_per_request=ROWS_PER_REQUEST, retries=RETRIES)
    except ValueError as error:
        raise MurhoError(f"{url}: not an address of a service ({error})") from error


def only_model(client: Client, url: str) -> str:
    """The name of the only model of a service.

    Raises:
        OptionError: It has several.
        MurhoError: The service can't be reached.
    """
    with _client_errors():
        names = sorted(model.name for model in client.models())
    if len(names) != 1:
        raise OptionError(f"{url} serves {len(names)} models ({', '.join(names)}): choose one with --model NAME")
    return names[0]


@contextmanager
def _client_errors() -> Iterator[None]:
    """The client's errors as Murho's, in one line."""
    from murho_client import MurhoClientError

    try:
        yield
    except MurhoClientError as error:
        raise MurhoError(" ".join(str(error).split())) from error


def _written(answer: Fielded, options: PredictOptions) -> dict[str, NDArray[Any]]:
    """The output columns of an answer: the contract's, then what else was asked for."""
    places = set(Place)
    if answer.classes is not None and not options.mc_error:
        places.remove(Place.NEXT)  # has epistemic_std of each class, asked or not
    return answer_columns(answer, options, places)


def _warnings(rows: int, warnings: Iterable[tuple[int, str, str]]) -> dict[str, NDArray[Any]]:
    return {"warnings": warning_texts(rows, warnings)}


def _rows_outside(schema: Schema, columns: Columns, *, categories_only: bool) -> NDArray[np.bool_]:
    """Mask of the rows with an unseen category or, unless ``categories_only``, a value beyond its range, ``[B]``."""
    outside = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    if categories_only:
        chosen = tuple(feature for feature in schema.features if feature.kind is FeatureKind.CATEGORICAL)
        schema = Schema(chosen, schema.target, {})
    outside[[item.row for item in schema.outside(columns)]] = True
    return outside


def score_table(
    table: pa.Table, scorer: Scorer, options: PredictOptions, advance: Advance = ignore_rows
) -> ScoredTable:
    """Predict every row, in order, a chunk at a time.

    Args:
        table: The table; the target and other columns that are not features are ignored.
        scorer: Answers for the rows.
        options: Options of the prediction.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The output columns, and how many rows are unlike the training rows or lack a cell.

    Raises:
        TableError: The table has no rows, or a feature's cells can't be used.
    """
    parts = list(score_chunks(table, scorer, options, advance))
    scored = {name: np.concatenate([part.columns[name] for _, part in parts]) for name in parts[0][1].columns}
    unlike, imputed = (sum(int(getattr(part, name).sum()) for _, part in parts) for name in ("unlike", "imputed"))
    return ScoredTable(scored, unlike, imputed, any(part.cut for _, part in parts))


def score_chunks(
    table: pa.Table, scorer: Scorer, options: PredictOptions, advance: Advance = ignore_rows
) -> Iterator[tuple[pa.Table, Scored]]:
    """Predict every row, in order; yields each chunk of rows with its answer. See `score_table`.

    Raises:
        TableError: The table has no rows, or a feature's cells can't be used; the message names the row of the table.
    """
    if table.num_rows == 0:
        raise TableError("the table has no rows to score")
    for start in range(0, table.num_rows, ROWS_PER_CHUNK):
        chunk = table.slice(start, ROWS_PER_CHUNK)
        try:
            columns = columns_from_table(chunk, scorer.schema)
        except TableError as error:
            raise numbered_in_table(error, np.arange(start, start + chunk.num_rows)) from error
        answer = scorer.score(columns, options)
        advance(chunk.num_rows)
        yield chunk, answer
