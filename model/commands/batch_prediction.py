"""Predictions for a whole table, by a posterior in this process or by a running service."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from murho.model.commands.class_columns import columns_of_answer, columns_of_prediction
from murho.model.data.cells import format_date, parse_date
from murho.model.data.columns import is_missing
from murho.model.data.readings import reading_from_json
from murho.model.data.schema import Feature, FeatureKind, Schema, Target
from murho.model.data.schema_inference import columns_from_table
from murho.model.encoding.imputation import rows_to_impute
from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.runtime.row_progress import ignore_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from murho_client import Client
    from murho_client import Prediction as Answer
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.engines.prediction import Prediction, PredictOptions
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = [
    "LocalScorer",
    "Scored",
    "ScoredTable",
    "Scorer",
    "ServiceScorer",
    "connect",
    "percentile_name",
    "require_options",
    "score_table",
]

ROWS_PER_CHUNK = 16_384
ROWS_PER_REQUEST = 4_096
SECONDS_PER_REQUEST = 120.0
RETRIES = 3


class Scored(NamedTuple):
    """The answer for a chunk of rows.

    Attributes:
        columns: Output columns by name, ``[B]`` each; NaN for columns without an answer (``samples=0``). Those of a
            class: `model.commands.class_columns`.
        unlike: Whether each row is unlike the training rows, ``[B]``. A service lists the first 100 warnings of a
            request, so further rows of the request don't count.
        imputed: Whether each row lacks a cell that no training row lacked, ``[B]``; found as ``unlike`` is.
    """

    columns: dict[str, NDArray[Any]]
    unlike: NDArray[np.bool_]
    imputed: NDArray[np.bool_]


class ScoredTable(NamedTuple):
    """The answer for a table.

    Attributes:
        columns: Output columns by name, ``[B]`` each.
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
    """

    columns: dict[str, NDArray[Any]]
    unlike: int
    imputed: int


class Scorer(Protocol):
    """Answers for canonical columns, chunk by chunk."""

    schema: Schema

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer for a chunk of rows."""
        ...


def percentile_name(level: float) -> str:
    """Name of the column of a percentile: ``p5``, ``p97.5``."""
    return f"p{level:g}"


class LocalScorer:
    """A `Scorer` with the posterior in this process."""

    def __init__(self, posterior: Posterior) -> None:
        """Store a loaded posterior."""
        self.posterior = posterior
        self.schema = posterior.schema

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer of the posterior; see `Scorer.score`."""
        classes = self.schema.target.classes
        answer = self.posterior.predict(columns, options if classes is None else replace(options, percentiles=()))
        # Older checkpoints have no distance of rows: every value beyond its range counts.
        categories_only = self.posterior.encoder.distribution is not None
        unlike = _rows_outside(self.schema, columns, categories_only=categories_only)
        if answer.outside is not None:
            unlike |= answer.outside
        imputed = np.zeros(len(unlike), dtype=bool)
        imputed[rows_to_impute(self.schema, columns)] = True
        scored = _scored_columns(answer, options) if classes is None else columns_of_prediction(answer)
        return Scored(scored, unlike, imputed)


class ServiceScorer:
    """A `Scorer` that asks a running service, through its client."""

    def __init__(self, client: Client, model: str, version: str | None = None) -> None:
        """Ask the service for the features of the model.

        Args:
            client: A client of the service.
            model: Name of the model.
            version: Its version; by default the latest.

        Raises:
            MurhoError: The service can't be reached or has no such model.
        """
        self._client, self._model, self._version = client, model, version
        with _client_errors():
            described = client.model(model, version).raw
        target = described["target"]
        classes = target.get("classes")
        self.schema = Schema(
            tuple(_feature(item) for item in described["features"]),
            Target(target["name"], target.get("unit"), None if classes is None else tuple(classes)),
            {},
        )

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answer of the service; see `Scorer.score`."""
        inputs = {feature.name: _json_cells(feature, columns[feature.name]) for feature in self.schema.features}
        classes = self.schema.target.classes
        # What only the other kind of target has is not sent: the service would refuse it.
        own: dict[str, Any] = (
            {"percentiles": options.percentiles, "noise": options.noise}
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
                progress=False,
                **own,
            )
            scored = _scored_columns(answer, options) if classes is None else columns_of_answer(answer, classes)
        unlike, imputed = np.zeros((2, len(next(iter(scored.values())))), dtype=bool)
        for warning in answer.warnings:
            if warning.row is not None and warning.feature is not None:
                cell = columns[warning.feature][warning.row : warning.row + 1]
                (imputed if is_missing(cell)[0] else unlike)[warning.row] = True
        return Scored(scored, unlike, imputed)


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


@contextmanager
def _client_errors() -> Iterator[None]:
    """The client's errors as Murho's, in one line."""
    from murho_client import MurhoClientError

    try:
        yield
    except MurhoClientError as error:
        raise MurhoError(" ".join(str(error).split())) from error


def _scored_columns(answer: Prediction | Answer, options: PredictOptions) -> dict[str, NDArray[np.float64]]:
    """The output columns of an answer; NaN where it has none."""
    none = np.full((len(answer.mean), len(options.percentiles)), np.nan)
    missing = np.full(len(answer.mean), np.nan)
    scored = {
        name: missing if (values := getattr(answer, name)) is None else values
        for name in ("mean", "std", "epistemic_std", "aleatoric_std")
    }
    percentiles = none if answer.percentiles is None else answer.percentiles
    return scored | {percentile_name(level): percentiles[:, index] for index, level in enumerate(options.percentiles)}


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


def _rows_outside(schema: Schema, columns: Columns, *, categories_only: bool) -> NDArray[np.bool_]:
    """Mask of the rows with an unseen category or, unless ``categories_only``, a value beyond its range, ``[B]``."""
    outside = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    if categories_only:
        chosen = tuple(feature for feature in schema.features if feature.kind is FeatureKind.CATEGORICAL)
        schema = Schema(chosen, schema.target, {})
    outside[[item.row for item in schema.outside(columns)]] = True
    return outside


def _json_cells(feature: Feature, column: NDArray[Any]) -> list[Any]:
    if feature.kind is FeatureKind.CATEGORICAL:
        return list(column)
    cells = column.tolist()
    if feature.kind is FeatureKind.DATE:
        return [None if cell != cell else format_date(cell) for cell in cells]
    if feature.kind is FeatureKind.BOOLEAN:
        return [None if cell != cell else bool(cell) for cell in cells]
    return [None if cell != cell else cell for cell in cells]


def require_options(schema: Schema, *, percentiles: bool, coverage: bool) -> None:
    """Check that no option is given that only the other kind of target has.

    Args:
        schema: The schema of the model.
        percentiles: Whether ``--percentiles`` is given.
        coverage: Whether ``--coverage`` is given.

    Raises:
        OptionError: One is given.
    """
    target = schema.target
    if target.classes is not None and percentiles:
        raise OptionError(
            f"--percentiles is for a target that is a number; {target.name!r} has {len(target.classes)} classes: leave "
            "it out. --coverage sets how often the prediction set holds the class; percentiles of probabilities come "
            "over HTTP and in Python"
        )
    if target.classes is None and coverage:
        raise OptionError(
            f"--coverage is for the prediction sets of classes; {target.name!r} is a number: leave it out. "
            "--percentiles 5,95 are the ends of a 90 % band"
        )


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
    if table.num_rows == 0:
        raise TableError("the table has no rows to score")
    parts = []
    for start in range(0, table.num_rows, ROWS_PER_CHUNK):
        columns = columns_from_table(table.slice(start, ROWS_PER_CHUNK), scorer.schema)
        parts.append(scorer.score(columns, options))
        advance(len(next(iter(columns.values()))))
    scored = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    unlike, imputed = (sum(int(getattr(part, name).sum()) for part in parts) for name in ("unlike", "imputed"))
    return ScoredTable(scored, unlike, imputed)
