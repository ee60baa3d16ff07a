"""Predictions for a whole table, by a posterior in this process or by a running service."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from murho.model.commands.row_warnings import warning_texts
from murho.model.commands.service_answers import class_prediction_of, number_prediction_of
from murho.model.commands.service_schema import json_cells, schema_of
from murho.model.data.columns import is_missing
from murho.model.data.row_blocks import numbered_in_table
from murho.model.data.schema import FeatureKind, Schema
from murho.model.data.schema_inference import columns_from_table
from murho.model.encoding.imputation import rows_to_impute
from murho.model.engines.answer_columns import answer_columns
from murho.model.engines.answer_fields import Place
from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.runtime.row_progress import ignore_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from murho_client import Client
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.engines.answer_fields import Fielded
    from murho.model.engines.prediction import PredictOptions
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = [
    "LocalScorer",
    "Scored",
    "ScoredTable",
    "Scorer",
    "ServiceScorer",
    "connect",
    "only_model",
    "score_chunks",
    "score_table",
]

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
            without an answer (``samples=0``); see `model.engines.answer_columns`. If asked for, ``warnings`` is the
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
