"""What a service can be asked for, as dialogues; both clients hold them."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast
from urllib.parse import quote, urlencode

from murho_client._answers import (
    Counterfactual,
    DecideOptions,
    Decisions,
    Explanation,
    Outcomes,
    Totals,
    decide_request,
    new_ids,
    outcome_requests,
    totals_request,
)
from murho_client._data import Batch, to_batch
from murho_client._display import Progress, advancing
from murho_client._errors import (
    DeadlineExceeded,
    InvalidInput,
    Problem,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)
from murho_client._model import Model, ModelSummary, prepare_batch, record
from murho_client._prediction import Prediction
from murho_client._responses import Response, read_answer, read_ready
from murho_client._transport import LIMITS, Deadline, Dialogue, Options, Settings, Together, ask

__all__ = ["AggregateOptions", "BaseClient", "PredictOptions", "Service"]


Http = TypeVar("Http")
Result = TypeVar("Result")

DRAWS_PER_REQUEST = 1_000_000
"""Numbers of one answer, where the draws of all rows are asked for: the service has a limit on them."""
CLASS_NUMBERS_PER_REQUEST = 5_000_000
"""Numbers of one answer of a classifier: a table of a thousand classes has as many in a thousand rows."""
ROWS_PER_EXPLANATION = 8
"""Of one request: each takes as long as a thousand plain ones."""
CELLS_PER_REQUEST = 200_000
"""Cells of one request: some megabytes of JSON, which a service limits."""


class PredictOptions(TypedDict, total=False):
    """Options of a prediction; see `Client.predict`."""

    samples: int
    percentiles: Iterable[float]
    seed: int | None
    noise: bool
    calibrated: bool
    thresholds: Iterable[float]
    include: Iterable[str]
    coverage: float | None
    record: bool | None
    ids: Iterable[str] | None
    timeout: float | None
    headers: Mapping[str, str] | None
    progress: Progress


OF_PREDICTIONS = PredictOptions.__annotations__.keys()


class AggregateOptions(PredictOptions, total=False):
    """Options of totals; see `Client.aggregate`."""

    statistic: str | None
    threshold: float | None
    weights: str | Sequence[float] | None
    units: str | Sequence[str | float | None] | None


class BaseClient(Generic[Http]):
    """What both clients have in common; see `Client`.

    Args:
        http: The HTTP client to send with; None for one of its own.
        make: Makes it.
    """

    def __init__(
        self, url: str | None, api_key: str | None, http: Http | None, make: Callable[..., Http], options: Options
    ) -> None:
        self._service = Service(Settings.of(url, api_key, options), {})
        self._owned = http is None
        self._http = make(limits=LIMITS) if http is None else http

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service.settings.address()!r})"

    def with_options(self, **options: Unpack[Options]) -> Self:
        """Return a client with other options, on the same connections.

        Args:
            **options: See `Client`; further headers come to those that there are.

        Raises:
            ValueError: An option can't be used.
        """
        other = copy(self)
        other._service, other._owned = self._service.with_options(options), False
        return other


class Service:
    """The dialogues with one service, and the models that it described so far.

    Args:
        settings: How to reach it.
        known: What it described, by name and version as they were asked for.
    """

    def __init__(self, settings: Settings, known: dict[tuple[str | None, str | None], Model | None]) -> None:
        self.settings = settings
        self._known = known

    def with_options(self, options: Options) -> Service:
        """Return the same service with other options; further headers come to those that there are."""
        headers = {**self.settings.headers, **options.get("headers", {})}
        return Service(replace(self.settings, **(options | {"headers": headers})), self._known)

    def request(
        self, method: str, path: str, document: Any, content: bytes | None, headers: Mapping[str, str] | None
    ) -> Dialogue[Response]:
        """Any request of the service's interface; see `Client.request`."""
        if not path.startswith("/"):  # it might go on with the host
            raise ValueError(f"path is {path!r}; it begins with '/', below the address of the service.")
        sent = dict(headers or {})
        if document is not None:
            content = _to_json(document)
            sent = {"Content-Type": "application/json", **sent}
        return ask(self.settings, method, path, Response.check, body=content, headers=sent)

    def ready(self) -> Dialogue[bool]:
        """Whether the service is ready."""
        try:
            return (yield from ask(self.settings, "GET", "/readyz", read_ready, retried=False))
        except (Unreachable, DeadlineExceeded):
            return False

    def models(self) -> Dialogue[list[ModelSummary]]:
        """All models of the service, latest versions, in one request."""
        listing = yield from self._json("GET", "/models")
        return _understood(lambda: [ModelSummary.of(item) for item in listing["models"]])

    def model(self, name: str, version: str | None = None, within: Deadline | None = None) -> Dialogue[Model]:
        """One model, as the service describes it now."""
        described = yield from self._json("GET", _path(name, version), within)
        self._known[name, version] = model = _understood(lambda: Model.of(described))
        return model

    def find(
        self, name: str | None, version: str | None, within: Deadline | None, *, fresh: bool = False
    ) -> Dialogue[Model | None]:
        """Return the model behind a prediction, as it was described or, fresh, as it is now; None without a default."""
        if fresh or (name, version) not in self._known:
            wanted = name
            if wanted is None:
                listing = yield from self._json("GET", "/models", within)
                wanted = listing.get("default")
            self._known[name, version] = None if wanted is None else (yield from self.model(wanted, version, within))
        return self._known[name, version]

    def load(self, name: str, version: str | None) -> Dialogue[dict[str, Any]]:
        """Load a model now."""
        query = "" if version is None else f"?version={quote(str(version), safe='')}"
        answer = yield from self._json("POST", f"{_path(name)}/load{query}")
        self._known.clear()
        return answer

    def unload(self, name: str) -> Dialogue[dict[str, Any]]:
        """Take a model out of service."""
        answer = yield from self._json("POST", f"{_path(name)}/unload")
        self._known.clear()
        return answer

    def predict(
        self, data: object, name: str | None, version: str | None, options: PredictOptions
    ) -> Dialogue[Prediction]:
        """Return the answer for all rows, in as many requests as it takes."""
        chosen, path, within = options_of(options), _path(name, version), _deadline(options)
        batch = to_batch(data)
        most = self.settings.max_rows_per_request
        known = (name, version) in self._known
        model = yield from self.find(name, version, within)
        if known and version is None and batch.rows > rows_of_request(chosen, model, batch, most):
            known = False
            model = yield from self.find(name, version, within, fresh=True)
        while True:
            rows = rows_of_request(chosen, model, batch, most)
            sent = prepare_batch(batch, model)
            if model is not None and batch.rows > rows:  # all requests go to one version, whatever comes meanwhile
                path = _path(model.name, model.version)
            try:
                answers, ids = yield from self._answers(sent, path, chosen, rows, options, within)
                return _understood(partial(Prediction.of, answers, sent.labels, ids))
            except (InvalidInput, UnknownModel):
                if not known:
                    raise
                # The model may have been replaced since it was described.
                newer = yield from self.find(name, version, within, fresh=True)
                if newer == model:
                    raise
                model, known = newer, False

    def aggregate(
        self,
        data: object,
        name: str | None,
        version: str | None,
        by: str | Sequence[str],
        options: AggregateOptions,
    ) -> Dialogue[Totals]:
        """Return the totals of all rows, in one request."""
        within, chosen = _deadline(options), dict(options)
        model = yield from self.find(name, version, within)
        names = (by,) if isinstance(by, str) else tuple(by)
        given = {key: chosen.pop(key, None) for key in AggregateOptions.__annotations__ if key not in OF_PREDICTIONS}
        document = totals_request(to_batch(data), model, names, given) | options_of(cast("PredictOptions", chosen))
        path = f"{_path(name, version)}/aggregate"
        return (yield from self._post(path, document, Totals.of, options.get("headers"), within))

    def outcomes(self, data: object, name: str) -> Dialogue[Outcomes]:
        """Return what became of the outcomes of a model's predictions."""
        path, answers = f"{_path(name)}/outcomes", []
        for request in outcome_requests(to_batch(data)):
            answers += [(yield from self._post(path, request, dict))]
        return _understood(lambda: Outcomes.of(answers))

    def quality(self, name: str, query: Mapping[str, object]) -> Dialogue[dict[str, Any]]:
        """How good a model's recorded predictions were."""
        asked = urlencode({key: str(value) for key, value in query.items() if value is not None})
        return self._json("GET", f"{_path(name)}/quality?{asked}")

    def decide(
        self,
        contexts: object,
        actions: Sequence[Mapping[str, Any]] | None,
        name: str | None,
        version: str | None,
        options: DecideOptions,
    ) -> Dialogue[Decisions]:
        """Return an action for each context, in one request."""
        within = _deadline(options)
        model = yield from self.find(name, version, within)
        document, path = decide_request(contexts, actions, model, options), f"{_path(name, version)}/decide"
        return (yield from self._post(path, document, Decisions.of, options.get("headers"), within))

    def explain(
        self, data: object, name: str | None, version: str | None, options: PredictOptions
    ) -> Dialogue[Explanation]:
        """Return what explains the answers for all rows, in as many requests as it takes."""
        chosen, within = options_of(options), _deadline(options)
        chosen |= {"percentiles": [], "include": ["why", *(["worth_asking"] if chosen["samples"] else [])]}
        model, batch = (yield from self.find(name, version, within)), to_batch(data)
        path = _path(name, version)
        if model is not None and batch.rows > ROWS_PER_EXPLANATION:
            path = _path(model.name, model.version)
        sent = prepare_batch(batch, model)
        answers, _ = yield from self._answers(sent, path, chosen, ROWS_PER_EXPLANATION, options, within)
        return _understood(lambda: Explanation.of(answers))

    def counterfactual(self, row: object, name: str | None, asked: Mapping[str, Any]) -> Dialogue[Counterfactual]:
        """Return the nearest rows that reach a goal."""
        model = yield from self.find(name, None, None)
        document = {key: value for key, value in asked.items() if value is not None}
        document["inputs"] = record(to_batch(row), model)
        return (yield from self._post(f"{_path(name)}/counterfactual", document, Counterfactual.of))

    def _answers(
        self,
        batch: Batch,
        path: str,
        chosen: Mapping[str, Any],
        rows: int,
        options: PredictOptions,
        within: Deadline | None,
    ) -> Dialogue[tuple[list[dict[str, Any]], list[str | None]]]:
        """Return the answers for rows in the form of the model, `rows` per request, and the ids of the requests."""
        headers = {"Content-Type": "application/json", **(options.get("headers") or {})}
        ids = chosen.get("ids") or (new_ids(batch.rows) if chosen.get("record") else None)
        if ids is not None and len(ids) != batch.rows:
            raise InvalidInput([Problem(f"There are {len(ids)} ids for {batch.rows} rows.", feature="ids")])

        def part(start: int) -> Dialogue[tuple[dict[str, Any], str | None]]:
            sent = batch.slice(start, start + rows)
            own = {} if ids is None else {"ids": ids[start : start + rows]}
            body = _to_json({"inputs": sent.inputs(), **chosen, **own})

            def read(response: Response) -> tuple[dict[str, Any], str | None]:
                return read_answer(response, sent, start)

            return (
                yield from ask(
                    self.settings, "POST", f"{path}/predict", read, body=body, headers=headers, within=within
                )
            )

        starts = range(0, batch.rows, rows)
        with advancing(batch.rows, options.get("progress")) as advance:
            answered = yield Together(
                list(map(part, starts)), lambda number: advance(min(rows, batch.rows - starts[number]))
            )
        return [answer for answer, _ in answered], [of for _, of in answered]

    def _post(
        self,
        path: str,
        document: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Result],
        headers: Mapping[str, str] | None = None,
        within: Deadline | None = None,
    ) -> Dialogue[Result]:
        """Return what `read` makes of the JSON answer to a JSON document."""

        def understood(response: Response) -> Result:
            answer = response.check().json()
            return _understood(lambda: read(answer))

        sent = {"Content-Type": "application/json", **(headers or {})}
        return ask(self.settings, "POST", path, understood, body=_to_json(document), headers=sent, within=within)

    def _json(self, method: str, path: str, within: Deadline | None = None) -> Dialogue[dict[str, Any]]:
        return ask(self.settings, method, path, lambda response: response.check().json(), within=within)


def rows_of_request(options: Mapping[str, Any], model: Model | None, batch: Batch, most: int) -> int:
    """Return the most rows of one request, at least 1: fewer where rows or answers have many numbers.

    Args:
        options: The options as JSON.
        model: The model; None where the service doesn't describe it.
        batch: The rows.
        most: What the user set as the most.
    """
    classes = 1 if model is None or model.classes is None else len(model.classes)
    most = min(most, CELLS_PER_REQUEST // len(batch.columns))
    if "draws" in options.get("include", ()):
        most = min(most, DRAWS_PER_REQUEST // max(options["samples"] * classes, 1))
    if classes > 1:
        most = min(most, CLASS_NUMBERS_PER_REQUEST // (classes * (3 + len(options["percentiles"]))))
    return max(1, most)


def options_of(options: PredictOptions) -> dict[str, Any]:
    """Return the options of a request as JSON; those that the service chooses by itself are left out.

    Raises:
        TypeError: There is no such option.
        InvalidInput: An option isn't of the right kind. Whether its value fits, the service says.
    """
    for name in options.keys() - OF_PREDICTIONS:
        raise TypeError(f"There is no option {name!r}. There are {', '.join(OF_PREDICTIONS)}.")
    kinds: dict[str, Callable[[Any], Any]] = {
        "samples": operator.index,
        "percentiles": _numbers,
        "seed": operator.index,
        "thresholds": _numbers,
        "coverage": float,
        "record": bool,
        "ids": lambda ids: list(map(str, ids)),
    }
    sent: dict[str, Any] = {}
    chosen: dict[str, Any] = {"samples": 256, "percentiles": (5, 50, 95), **options}
    for name, value in chosen.items():
        if name in kinds and value is not None:
            try:
                sent[name] = kinds[name](value)
            except (TypeError, ValueError, OverflowError) as error:
                message = f"This is {value!r:.80}, which can't be used: {error}."
                raise InvalidInput([Problem(message, feature=name, pointer=f"/{name}")]) from None
    sent |= {name: False for name in ("noise", "calibrated") if not options.get(name, True)}
    include = options.get("include", ())
    sent["include"] = [include] if isinstance(include, str) else list(map(str, include))
    return {name: value for name, value in sent.items() if value != [] or name == "percentiles"}


def _numbers(values: Any) -> list[float]:
    """Numbers, or a single one, as a list."""
    listed = [float(value) for value in (values if isinstance(values, Iterable) else [values])]
    if not all(map(math.isfinite, listed)):
        raise ValueError("numbers are finite")
    return listed


def _to_json(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _understood(read: Callable[[], Result]) -> Result:
    """Return what the service said, in the client's words.

    Raises:
        UnexpectedAnswer: It has another form than the client knows.
    """
    try:
        return read()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fault = f"{type(error).__name__}: {error}"
    raise UnexpectedAnswer(f"The answer isn't one that this client knows ({fault}). One of the two is too old.")


def _deadline(options: Mapping[str, Any]) -> Deadline | None:
    """When the whole call must be answered; None: only each request has a timeout."""
    timeout = options.get("timeout")
    return None if timeout is None else Deadline(timeout)


def _path(name: str | None, version: str | None = None) -> str:
    if name is None:
        if version is not None:
            raise InvalidInput([Problem("A version needs the name of its model.", feature="version")])
        return ""
    path = f"/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(str(version), safe='')}"
