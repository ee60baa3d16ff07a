"""What both clients share, without any input or output: requests, the meaning of answers, and the models seen so far.

A dialogue of several requests is a generator: it yields each `Call` and is sent what the call's answer means, so that
`Client` and `AsyncClient` differ only in how they exchange bytes.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from murho_client._answers import Reply, read_answer, read_json
from murho_client._arrow import LEAST_CELLS, MEDIA_TYPE, arrow_body, is_installed, query_of
from murho_client._data import Batch, to_batch
from murho_client._errors import (
    Busy,
    InvalidInput,
    NotReady,
    Problem,
    ServiceError,
    UnexpectedAnswer,
)
from murho_client._model import Model, check, fitted
from murho_client._model_summary import ModelSummary
from murho_client._prediction import Prediction
from murho_client._request_sizes import rows_of_request

__all__ = ["Call", "Catalogue", "Dialogue", "Job", "join", "options_of"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: GET or POST.
        path: Below the address of the service.
        read: What the reply means; raises an error or `Transient`.
        body: The body, or None.
        media_type: Media type of the body, and of the answer to it.
        retried: Whether to try again after failures that may mend themselves.
    """

    method: str
    path: str
    read: Callable[[Reply], Any]
    body: bytes | None = None
    media_type: str = "application/json"
    retried: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """The headers of this request alone."""
        return {} if self.body is None else {"Content-Type": self.media_type, "Accept": self.media_type}


Dialogue = Generator[Call, Any, Result]


def options_of(
    *,
    samples: int,
    percentiles: Iterable[float],
    seed: int | None,
    noise: bool,
    calibrated: bool,
    thresholds: Iterable[float],
    include: Iterable[str],
    coverage: float | None,
) -> dict[str, Any]:
    """The options of a request as JSON; those that the service chooses by itself are left out.

    Raises:
        InvalidInput: An option isn't of the right kind. Whether its value fits, the service says.
    """
    options: dict[str, Any] = {
        "samples": _number("samples", samples, operator.index),
        "percentiles": _numbers("percentiles", percentiles),
    }
    if seed is not None:
        options["seed"] = _number("seed", seed, operator.index)
    if not noise:
        options["noise"] = False
    if not calibrated:
        options["calibrated"] = False
    if listed := _numbers("thresholds", thresholds):
        options["thresholds"] = listed
    if names := [include] if isinstance(include, str) else [str(name) for name in include]:
        options["include"] = names
    if coverage is not None:
        options["coverage"] = _number("coverage", coverage, float)
    return options


def _numbers(name: str, values: Iterable[float]) -> list[float]:
    try:
        return [_number(name, value, float) for value in values]
    except TypeError:
        return [_number(name, values, float)]  # a single number is meant as a list of one


def _number(name: str, value: Any, convert: Callable[[Any], float]) -> float:
    try:
        number = None if isinstance(value, bool | str) or not math.isfinite(value) else convert(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        wanted = "a whole number" if convert is operator.index else "numbers"
        raise InvalidInput([Problem(f"This is {value!r:.80}; it takes {wanted}.", feature=name, pointer=f"/{name}")])
    return number


class Catalogue:
    """The models that a service described, each asked for once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str | None], Model | None] = {}
        self._formats: frozenset[str] | None = None

    def formats(self) -> Dialogue[frozenset[str]]:
        """The media types that the service reads; it is asked once."""
        if self._formats is None:
            try:
                listing = yield Call("GET", "/models", read_json)
                self._formats = frozenset(map(str, listing.get("formats", ())))
            except (Busy, NotReady):
                raise
            except (ServiceError, UnexpectedAnswer, TypeError):
                self._formats = frozenset()
        return self._formats

    def models(self) -> Dialogue[list[ModelSummary]]:
        """All models of the service, latest versions, in one request."""
        listing = yield Call("GET", "/models", read_json)
        try:
            return [ModelSummary.of(item) for item in _get(listing, "models")]
        except (ValueError, TypeError) as error:
            message = f"The service lists its models in a way that this client doesn't know: {error}."
            raise UnexpectedAnswer(f"{message} One of the two is too old for the other.") from None

    def model(self, name: str, version: str | None = None) -> Dialogue[Model]:
        """One model, as the service describes it now."""
        described = yield Call("GET", _path(name, version), read_json)
        try:
            model = Model.of(described)
        except (ValueError, TypeError, KeyError) as error:
            message = f"The service describes {name!r} in a way that this client doesn't know: {error}."
            raise UnexpectedAnswer(f"{message} One of the two is too old for the other.") from None
        self._known[name, version] = model
        return model

    def find(self, name: str | None, version: str | None, *, fresh: bool = False) -> Dialogue[Model | None]:
        """The model behind a prediction; None if the service doesn't describe it: then its own words count.

        Args:
            name: Its name; None for the default model.
            version: Its version; None for the latest.
            fresh: Whether to ask again.
        """
        key = (name, version)
        if fresh or key not in self._known:
            try:
                wanted = name
                if wanted is None:
                    wanted = _get((yield Call("GET", "/models", read_json)), "default")
                self._known[key] = None if wanted is None else (yield from self.model(wanted, version))
            except (Busy, NotReady):
                raise
            except (ServiceError, UnexpectedAnswer):
                self._known[key] = None
        return self._known[key]

    def knows(self, name: str | None, version: str | None) -> bool:
        """Whether `find` answers from memory."""
        return (name, version) in self._known

    def learn(self, name: str | None, version: str | None, answered: Mapping[str, Any]) -> None:
        """Forgets a description that is older than an answer."""
        known = self._known.get((name, version))
        if known is not None and (known.name, known.version) != (answered.get("name"), answered.get("version")):
            self.forget(name, version)

    def forget(self, name: str | None, version: str | None) -> None:
        """Asks the service again next time."""
        self._known.pop((name, version), None)


def _get(document: Any, key: str) -> Any:
    try:
        return document[key]
    except (KeyError, TypeError):
        raise UnexpectedAnswer(f"The answer has no {key!r}; the service is no Murho, or too old or too new.") from None


def _path(name: str | None, version: str | None = None) -> str:
    if name is None:
        if version is not None:
            raise InvalidInput([Problem("A version needs the name of its model.", feature="version")])
        return ""
    path = f"/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(str(version), safe='')}"


@dataclass(frozen=True, slots=True)
class Job:
    """One prediction, cut into requests.

    Attributes:
        batch: The rows to send.
        options: The options of each request, as JSON.
        path: Path of all requests.
        rows: The most rows of one request.
        arrow: The columns' names, where the rows go as Arrow; None where they go as JSON.
    """

    batch: Batch
    options: dict[str, Any]
    path: str
    rows: int
    arrow: tuple[str, ...] | None = None

    @classmethod
    def prepare(
        cls,
        catalogue: Catalogue,
        data: object,
        target: tuple[str | None, str | None],
        options: dict[str, Any],
        rows: int,
    ) -> Dialogue[Job]:
        """The job for the rows of `data`, which are checked against the model's features.

        Args:
            catalogue: The models seen so far.
            data: The rows, as the user gave them.
            target: Name and version of the model.
            options: The options as JSON.
            rows: The most rows of one request.

        Raises:
            InvalidInput: The rows can't be used.
        """
        name, version = target
        path = _path(name, version)
        batch = to_batch(data)
        most = rows
        rows = rows_of_request(options, None, most)
        several = batch.rows > rows
        known = catalogue.knows(name, version)
        model = yield from catalogue.find(name, version, fresh=several and version is None)
        rows = rows_of_request(options, model, most)
        if batch.rows > rows and not several:
            several = True
            model = yield from catalogue.find(name, version, fresh=known and version is None)
        if model is not None:
            try:
                check(batch, model)
            except InvalidInput:
                if not known:
                    raise
                # The model may have been replaced since it was described.
                model = yield from catalogue.find(name, version, fresh=True)
                if model is not None:
                    check(batch, model)
        if model is not None:
            batch = fitted(batch, model)
            if several:  # all requests of a table go to one version, also when a newer one appears meanwhile
                path = _path(model.name, model.version)
        arrow = None
        if model is not None and min(rows, batch.rows) * len(batch.columns) >= LEAST_CELLS and is_installed():
            formats = yield from catalogue.formats()
            if MEDIA_TYPE in formats:
                arrow = batch.names or tuple(feature.name for feature in model.features)
        return cls(batch, options, f"{path}/predict", rows, arrow)

    @property
    def starts(self) -> range:
        """The first row of each request."""
        return range(0, self.batch.rows, self.rows)

    def size(self, start: int) -> int:
        """Number of rows of the request for the rows from `start` on."""
        return min(self.rows, self.batch.rows - start)

    def call(self, start: int) -> Call:
        """The request for the rows from `start` on."""
        part = self.batch.slice(start, start + self.size(start))

        def read(reply: Reply) -> dict[str, Any]:
            return read_answer(reply, part, start)

        if self.arrow is not None and (stream := arrow_body(part, self.arrow)) is not None:
            return Call("POST", f"{self.path}?{query_of(self.options)}", read, stream, MEDIA_TYPE)
        body = json.dumps(
            {"inputs": part.inputs(), **self.options}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        return Call("POST", self.path, read, body.encode("utf-8", "surrogatepass"))


def join(answers: Sequence[Mapping[str, Any]], batch: Batch) -> Prediction:
    """The prediction from the answers of all requests, in order.

    Raises:
        UnexpectedAnswer: They don't fit together.
    """
    models = {json.dumps(answer["model"], sort_keys=True) for answer in answers}
    if len(models) > 1:
        raise UnexpectedAnswer("The model was replaced during the prediction. Predict again, or name a version.")
    try:
        return Prediction.of(answers, batch.labels)
    except (KeyError, TypeError, ValueError) as error:
        fault = f"{type(error).__name__}: {error}"
    raise UnexpectedAnswer(f"The answer isn't one that this client knows ({fault}). One of the two is too old.")
