"""Predictions for the blocks of a table by a running service, through its client."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import MurhoError, OptionError
from murho.model.json_validation import read_strictly
from murho.model.predictive.prediction import ClassPrediction, MonteCarloError, Prediction, PredictOptions
from murho.model.python.table_scoring import Scored, answer_table, warning_texts, written_columns
from murho.model.tables.readings import Reading
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target, is_missing, json_cells
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from murho_client import Client
    from murho_client import Prediction as Answer

ROWS_PER_REQUEST = 4_096
SECONDS_PER_REQUEST = 120.0
RETRIES = 3
MORE_WARNINGS = "More values are unlike the training rows"
"""So begins a service's last warning where it has not listed all."""


def connect(url: str) -> Client:
    """Return a client of the service at an address.

    Raises:
        OptionError: The client is not installed.
        MurhoError: The text is no address.
    """
    try:
        from murho_client import Client
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--url takes the client of the service, but there is no {error.name}: "
            "pip install 'murho[client]', or in a clone: pip install ./client"
        ) from error
    try:
        return Client(url, timeout=SECONDS_PER_REQUEST, max_rows_per_request=ROWS_PER_REQUEST, retries=RETRIES)
    except ValueError as error:
        raise MurhoError(f"{url}: {error}") from error


class ServiceScorer:
    """Answers blocks as `model.python.table_scoring.score_block` does, but asks a running service.

    Attributes:
        schema: The schema of the model.
    """

    def __init__(
        self,
        client: Client,
        model: str | None,
        version: str | None,
        options: PredictOptions,
        *,
        warnings: bool = False,
    ) -> None:
        """Ask the service for the features of the model.

        Args:
            client: A client of the service.
            model: Name of the model; None: the only one.
            version: Its version; by default the latest.
            options: Options of the answers.
            warnings: Whether to add a column of warnings.

        Raises:
            OptionError: No model is named, and there are several.
            MurhoError: The service can't be reached or has no such model.
        """
        self._client, self._version, self._options, self._warnings = client, version, options, warnings
        with client_errors():
            if model is None:
                names = sorted(each.name for each in client.models())
                if len(names) != 1:
                    raise OptionError(
                        f"the service has {len(names)} models ({', '.join(names)}): choose one with --model NAME"
                    )
                (model,) = names
            self.schema = _schema(client.model(model, version).raw)
        self._model = model

    def score(self, block: pa.Table) -> Scored:
        """Return the answer of the service; it lists the first 100 warnings, so further imputed rows don't count."""
        columns = columns_from_table(block, self.schema)
        options, classes = self._options, self.schema.target.classes
        # What only the other kind of target has is not sent: the service would refuse it.
        own: dict[str, Any] = {"coverage": options.coverage}
        if classes is None:
            own = {"percentiles": options.percentiles, "noise": options.noise, "thresholds": options.thresholds}
        with client_errors():
            answer = self._client.predict(
                {feature.name: json_cells(feature, columns[feature.name]) for feature in self.schema.features},
                self._model,
                self._version,
                samples=options.samples,
                seed=options.seed,
                calibrated=options.calibrated,
                include=[name for name in ("draws", "mc_error") if getattr(options, name)],
                progress=False,
                **own,
            )
        written = written_columns(_prediction(answer, options), options)
        imputed: set[int] = set()
        placed = []
        for warning in answer.warnings:
            if warning.row is not None and warning.feature is not None:
                placed.append(warning)
                cell = columns[warning.feature][warning.row : warning.row + 1]
                if is_missing(cell)[0]:
                    imputed.add(warning.row)
        if self._warnings:
            written["warnings"] = warning_texts(len(answer), placed)
        cut = any(warning.message.startswith(MORE_WARNINGS) for warning in answer.warnings)
        return Scored(answer_table(written), int(answer.extrapolation.sum()), len(imputed), cut)


def _prediction(answer: Answer, options: PredictOptions) -> Prediction | ClassPrediction:
    """Return the answer of a service as one of this process."""
    names = ("samples", "seed", "calibrated", "extrapolation", "epistemic_std", "percentiles", "draws")
    shared = {name: getattr(answer, name) for name in names}
    shared["mc_error"] = None if answer.mc_error is None else MonteCarloError(**answer.mc_error)
    if answer.classes is None:
        asked = options.thresholds if answer.samples else ()
        exceedance = np.stack([answer.exceedance(value) for value in asked], axis=1) if asked else None
        moments = {name: getattr(answer, name) for name in ("mean", "std", "aleatoric_std")}
        return Prediction(**moments, exceedance=exceedance, **shared)
    classes, sets = np.array(answer.classes), answer.prediction_set
    shared |= {name: getattr(answer, name) for name in ("probabilities", "entropy", "epistemic_entropy")}
    return ClassPrediction(
        classes=answer.classes,
        prediction=np.searchsorted(classes, np.array(answer.prediction)),
        prediction_set=None if sets is None else np.array([np.isin(classes, members) for members in sets]),
        **shared,
    )


def _schema(described: Mapping[str, Any]) -> Schema:
    """Return the schema of a model, as ``GET /models/{name}`` describes it."""
    target, classes = described["target"], described["target"].get("classes")
    return Schema(
        tuple(map(_feature, described["features"])),
        Target(target["name"], target.get("unit"), classes and tuple(classes)),
        dict(described.get("left_out") or {}),
    )


def _feature(item: dict[str, Any]) -> Feature:
    """Return a feature with what reading its cells takes: the service itself knows the training range."""
    return Feature(
        name=item["name"],
        kind=FeatureKind(item["kind"]),
        unit=item["unit"],
        missing=bool(item["missing"]),
        minimum=None,
        maximum=None,
        categories=tuple(item["categories"] or ()),
        reading=read_strictly(Reading | None, item.get("reading"), f"the reading of {item['name']!r}"),
        missing_words=tuple(item.get("missing_words", ())),
    )


@contextmanager
def client_errors() -> Iterator[None]:
    """Return the client's errors as Murho's, in one line."""
    from murho_client import MurhoClientError

    try:
        yield
    except MurhoClientError as error:
        raise MurhoError(" ".join(str(error).split())) from error
