"""Predictions for a whole table, by a posterior in this process or by a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from murho.model.data.cells import format_date, parse_date
from murho.model.data.schema import Feature, FeatureKind, Schema, Target
from murho.model.data.schema_inference import columns_from_table
from murho.model.errors import MurhoError, TableError
from murho.model.runtime.row_progress import ignore_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.engines.prediction import PredictOptions
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = ["LocalScorer", "RemoteScorer", "Scored", "Scorer", "percentile_name", "score_table"]

ROWS_PER_CHUNK = 16_384
ROWS_PER_REQUEST = 4_096


class Scored(NamedTuple):
    """The answer for a chunk of rows.

    Attributes:
        columns: Output columns by name, ``[B]`` each; NaN for columns without an answer (``samples=0``).
        unlike: Whether each row is unlike the training rows, ``[B]``. With a `RemoteScorer`, only values beyond the
            training range and unseen categories count.
    """

    columns: dict[str, NDArray[np.float64]]
    unlike: NDArray[np.bool_]


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
        answer = self.posterior.predict(columns, options)
        none = np.full((len(answer.mean), len(options.percentiles)), np.nan)
        scored = {
            name: none[:, 0] if (values := getattr(answer, name)) is None else values
            for name in ("mean", "std", "epistemic_std", "aleatoric_std")
        }
        percentiles = none if answer.percentiles is None else answer.percentiles
        for index, level in enumerate(options.percentiles):
            scored[percentile_name(level)] = percentiles[:, index]
        outside = _rows_outside(self.schema, columns)
        return Scored(scored, outside if answer.outside is None else outside | answer.outside)


class RemoteScorer:
    """A `Scorer` that asks a running service, with a few thousand rows per request."""

    def __init__(self, url: str, model: str, timeout: float = 120.0) -> None:
        """Ask the service for the features of the model.

        Args:
            url: Address of the service, such as ``http://127.0.0.1:8000``.
            model: Name of the model.
            timeout: Seconds to wait for each answer.

        Raises:
            MurhoError: The service can't be reached or has no such model.
        """
        import httpx

        self._client = httpx.Client(base_url=url.rstrip("/"), timeout=timeout)
        self._path = f"/models/{model}"
        described = self._ask("GET", self._path)
        self.schema = Schema(
            tuple(_feature(item) for item in described["features"]),
            Target(described["target"]["name"], described["target"]["unit"]),
            {},
        )

    def score(self, columns: Columns, options: PredictOptions) -> Scored:
        """The answers of the service; see `Scorer.score`."""
        count = len(next(iter(columns.values())))
        parts = [
            self._score({name: column[start : start + ROWS_PER_REQUEST] for name, column in columns.items()}, options)
            for start in range(0, count, ROWS_PER_REQUEST)
        ]
        scored = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return Scored(scored, _rows_outside(self.schema, columns))

    def _score(self, columns: Columns, options: PredictOptions) -> dict[str, NDArray[np.float64]]:
        body: dict[str, Any] = {
            "inputs": {feature.name: _json_cells(feature, columns[feature.name]) for feature in self.schema.features},
            "samples": options.samples,
            "percentiles": list(options.percentiles),
            "noise": options.noise,
        }
        if options.seed is not None:
            body["seed"] = options.seed
        answer = self._ask("POST", f"{self._path}/predict", body)
        count = len(answer["mean"])
        none = [None] * count
        scored = {
            name: np.array(answer[name] or none, dtype=np.float64)
            for name in ("mean", "std", "epistemic_std", "aleatoric_std")
        }
        rows = answer["percentiles"]["values"] if answer["percentiles"] else [[None] * len(options.percentiles)] * count
        values = np.array(rows, dtype=np.float64).reshape(count, len(options.percentiles))
        for index, level in enumerate(options.percentiles):
            scored[percentile_name(level)] = values[:, index]
        return scored

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        import httpx

        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise MurhoError(f"{self._client.base_url}: the service can't be reached ({error})") from error
        except httpx.InvalidURL as error:
            raise MurhoError(f"{self._client.base_url}: not an address of a service ({error})") from error
        if response.is_success:
            return response.json()
        try:
            detail = response.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = response.text[:200]
        raise MurhoError(f"{response.request.url} answered {response.status_code}: {detail}")


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
    )


def _rows_outside(schema: Schema, columns: Columns) -> NDArray[np.bool_]:
    """Mask of the rows with a value beyond its training range or an unseen category, ``[B]``."""
    outside = np.zeros(len(next(iter(columns.values()))), dtype=bool)
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


def score_table(
    table: pa.Table, scorer: Scorer, options: PredictOptions, advance: Advance = ignore_rows
) -> tuple[dict[str, NDArray[np.float64]], int]:
    """Predict every row, in order, a chunk at a time.

    Args:
        table: The table; the target and other columns that are not features are ignored.
        scorer: Answers for the rows.
        options: Options of the prediction.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        Output columns by name, and the number of rows unlike the training rows.

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
    return scored, sum(int(part.unlike.sum()) for part in parts)
