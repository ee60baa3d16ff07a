"""The client for ordinary Python: `Client`."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextvars import copy_context
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import httpx2

from murho_client._files import FileOptions, predict_file
from murho_client._service import AggregateOptions, BaseClient, PredictOptions
from murho_client._transport import Attempt, Dialogue, Options, Step, Together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from murho_client._answers import Counterfactual, DecideOptions, Decisions, Explanation, Outcomes, Totals
    from murho_client._model import Model, ModelSummary
    from murho_client._prediction import Prediction
    from murho_client._responses import Response

__all__ = ["Client"]


Result = TypeVar("Result")


class Client(BaseClient[httpx2.Client]):
    """A client of one Murho service. Threads can share it.

    Args:
        url: Address of the service, such as ``http://127.0.0.1:8000``; by default `MURHO_URL` of the environment.
        api_key: Sent as bearer token; by default `MURHO_API_KEY` of the environment, if that is set. No message, repr
            or log shows it.
        http_client: The HTTP client to send with, such as one with a proxy, certificates or another transport of yours.
            It stays open: you close it.
        timeout: Seconds for each request, with its retries; 60 by default.
        max_rows_per_request: Larger tables are split into several requests; 2048 by default.
        max_concurrency: The most requests of one call at a time; 4 by default.
        retries: The most attempts after the first, for broken connections and for services that are busy or start; 6 by
            default.
        headers: Further headers of each request.

    Raises:
        ValueError: An argument can't be used.

    Example:
        >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
        ...     prediction = client.predict({"Weight_in_lbs": [3504, 2130], "Horsepower": [130, None]})
        ...     lower, upper = prediction.interval(0.9)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        http_client: httpx2.Client | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(url, api_key, http_client, httpx2.Client, options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The client can't be used afterwards."""
        if self._owned:
            self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send any request of the service's HTTP interface, and return the response as it came.

        Args:
            method: Such as GET.
            path: Below the address of the service, such as ``/models/cars/predict``.
            json: The body, as what `json.dumps` takes.
            content: The body as bytes instead; `headers` say what they are.
            headers: Further headers.

        Raises:
            MurhoClientError: The service can't be reached, or its answer is an error.
        """
        return self._run(self._service.request(method, path, json, content, headers))

    def ready(self) -> bool:
        """Whether the service answers, has loaded its models and isn't about to stop.

        Raises:
            UnexpectedAnswer: Something else than a Murho service answers.
        """
        return self._run(self._service.ready())

    def models(self) -> list[ModelSummary]:
        """Return the models that the service has, in their latest versions. One request.

        Raises:
            MurhoClientError: The service has no answer.
        """
        return self._run(self._service.models())

    def model(self, name: str, version: str | None = None) -> Model:
        """One model: its target, features and metrics.

        Args:
            name: Its name.
            version: Its version; the latest by default.

        Raises:
            UnknownModel: There is no such model.
            MurhoClientError: The service has no answer.
        """
        return self._run(self._service.model(name, version))

    def load(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Have a model loaded now; take the key of an admin where there are keys.

        Args:
            name: Its name.
            version: The version to serve alone; the latest by default.

        Returns:
            What the service says: `version`, `versions`, `changed`, `until`, `refused`.

        Raises:
            UnknownModel: There is no such model or version.
            MurhoClientError: It can't be loaded, or the service has no answer.
        """
        return self._run(self._service.load(name, version))

    def unload(self, name: str) -> dict[str, Any]:
        """Take all versions of a model out of service; take the key of an admin where there are keys.

        Returns:
            What the service says: `unloaded`, `changed`, `until`.

        Raises:
            UnknownModel: There is no such model.
            MurhoClientError: The service has no answer.
        """
        return self._run(self._service.unload(name))

    def predict(
        self, data: object, model: str | None = None, version: str | None = None, **options: Unpack[PredictOptions]
    ) -> Prediction:
        """Predicts the target of each row, with error bars.

        Args:
            data: The rows: a dict of columns, one record, a list of records, a NumPy array with the features in the
                model's order, a pandas or Polars DataFrame, or an Arrow table. None, NaN, NaT and nulls are missing
                cells. The target's column may be there; it isn't sent.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            samples: Number of draws S behind the answer; 0 for the deterministic mean alone. By default 256.
            percentiles: Levels, strictly between 0 and 100. By default 5, 50 and 95.
            seed: Seed of the draws; the model's own if not given.
            noise: Whether to describe a new observation, as by default; False describes the function alone. For numbers
                alone.
            calibrated: Whether std and its parts, percentiles and exceedance, or all about the classes, are calibrated
                on held-out rows, as by default; False for all of them raw.
            thresholds: For each, the answer has the probability that the target exceeds it. For numbers alone.
            include: ``"draws"`` for the function value of each draw, or its probabilities of the classes;
                ``"mc_error"`` for the standard errors that come from the finite number of draws.
            coverage: Coverage of a classifier's prediction sets, between 0 and 1; the service's (0.9) if not given.
            record: Whether the service keeps the answer; the prediction then has `ids`, for `outcomes`.
            ids: The rows' own ids, which ask for a record, too.
            timeout: Seconds for the whole call. If not given, each request has the client's timeout.
            headers: Further headers of the requests, such as ``{"X-Request-ID": "…"}``.
            progress: None shows the number of finished rows on a terminal if the work takes more than a second, True
                and False always and never. A function is called with the number of finished rows and of all rows.

        Returns:
            The prediction, with one entry a row, in order.

        Raises:
            InvalidInput: The rows or options can't be used.
            UnknownModel: There is no such model.
            DeadlineExceeded: There was no answer in time.
            Unreachable: There is no connection to the service.
            MurhoClientError: The service has no answer for another reason.
        """
        return self._run(self._service.predict(data, model, version, options))

    def aggregate(
        self,
        data: object,
        by: str | Sequence[str] = (),
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Totals:
        """Add up predictions: the sum, the mean or a count over the rows of each group, with error bars.

        Args:
            data: The rows, as `predict` takes them; all go in one request.
            by: Columns whose cells say which rows belong together: features, or one other column. None: all do.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            **options: The options of `predict`, and ``statistic``: ``sum`` (default), ``mean`` or ``count_above``, of
                classes ``count`` of each class; ``threshold`` of ``count_above``, in the target's unit; ``weights``, a
                column or one number a row, such as a quantity; ``units``, a column or one label a row, such as a
                patient: the noise of one unit is correlated, where the model was trained with ``--group``.

        Raises:
            MurhoClientError: See `predict`.
        """
        return self._run(self._service.aggregate(data, model, version, by, options))

    def outcomes(self, data: object, model: str) -> Outcomes:
        """Tell what came true of recorded predictions: late, in any order, and again; another value revises.

        Args:
            data: A table with the columns ``id`` and ``value``, as `predict` takes tables.
            model: Name of the model.

        Raises:
            InvalidInput: A value is none of the target's; nothing of its request is kept.
            MurhoClientError: See `predict`. What was sent before is kept; sending all of it again is right.
        """
        return self._run(self._service.outcomes(data, model))

    def quality(
        self,
        model: str,
        *,
        window: str = "30d",
        by: str | None = None,
        coverage: float | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """How good recorded predictions were, by their outcomes; and whether the alarm says that the model is wrong.

        Args:
            model: Name of the model.
            window: How far back the predictions go: hours, days or weeks, such as 24h, 30d or 4w.
            by: A feature whose groups are told apart; the service must record inputs.
            coverage: Of a further central band, such as 0.98.
            version: The only version; by default all.

        Returns:
            What the service says, with one entry of ``versions`` for each.

        Raises:
            MurhoClientError: See `predict`.
        """
        asked = {"window": window, "by": by, "coverage": coverage, "version": version}
        return self._run(self._service.quality(model, asked))

    def decide(
        self,
        contexts: object,
        actions: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[DecideOptions],
    ) -> Decisions:
        """Chooses one of several actions for each context, by draws of the model.

        Args:
            contexts: Rows as `predict` takes them, with the features that no action sets.
            actions: ``{"id": "eat", "inputs": {…}, "cost": 0}`` each: the features that the action sets, and its cost
                in the target's unit. Of a classifier also ``"utility": {class: number}``, and inputs may be left out;
                None: its classes are the actions.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            policy: ``thompson`` (default), ``greedy``, ``ucb`` (with ``width``) or ``threshold`` (with ``threshold``
                and ``at_least``).
            goal: ``max`` (default) or ``min``.
            abstain: ``{"risk": 0.05}`` answers ``unsure`` so that at most about 5 % of a classifier's other decisions
                are wrong, as held-out rows show; ``raw["evidence"]`` says which, and how they were judged.
            draw: Number of the draw that decides for each context, to repeat a decision; at random if not given.
            samples: Number of draws; by default the service's.
            seed: Their seed; the model's own if not given.
            calibrated: Whether means and spreads are calibrated, as by default.
            record: Whether the service's store keeps the decisions, so that `outcomes` can be told of them.
            ids: Your own ids of the contexts; they ask for a record, too.
            timeout: Seconds for the whole call.
            headers: Further headers of the request.

        Raises:
            MurhoClientError: See `predict`.
        """
        return self._run(self._service.decide(contexts, actions, model, version, options))

    def explain(
        self, data: object, model: str | None = None, version: str | None = None, **options: Unpack[PredictOptions]
    ) -> Explanation:
        """Return what each known cell adds to the answer of its row, and what missing cells are worth.

        Args:
            data: The rows, as `predict` takes them.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            **options: ``samples``, ``seed``, ``noise``, ``calibrated``, ``timeout``, ``headers``, ``progress`` of
                `predict`.

        Raises:
            MurhoClientError: See `predict`.
        """
        return self._run(self._service.explain(data, model, version, options))

    def counterfactual(
        self,
        row: object,
        goal: Mapping[str, Any],
        model: str | None = None,
        *,
        fixed: Sequence[str] = (),
        count: int = 3,
        samples: int | None = None,
        seed: int | None = None,
    ) -> Counterfactual:
        """Return the nearest rows to a given one whose answer reaches a goal.

        Args:
            row: One row, a dict with a value for each feature.
            goal: ``{"exceedance": {"threshold": 30, "at_least": 0.9}}``, ``{"mean": {"at_least": 20, "at_most": 25}}``,
                ``{"std": {"at_most": 2}}``, or of classes ``{"probability": {"class": "Adelie", "at_least": 0.9}}``.
            model: Name of the model; the service's default model if not given.
            fixed: Features whose cells stay as they are.
            count: How many rows to find, at most 10; each changes another set of cells.
            samples: Draws behind each answer.
            seed: Seed of the draws; the model's own if not given.

        Raises:
            MurhoClientError: See `predict`.
        """
        asked = {"goal": goal, "fixed": list(fixed), "count": count, "samples": samples, "seed": seed}
        return self._run(self._service.counterfactual(row, model, asked))

    def predict_file(
        self,
        source: str | PathLike[str],
        destination: str | PathLike[str],
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[FileOptions],
    ) -> int:
        """Predicts each row of a CSV or Parquet file, in bounded memory, and writes the answers to another file.

        The columns are those of ``murho predict``: ``mean, std, epistemic_std, aleatoric_std``, then ``p5, p50, …``;
        for a classifier ``prediction, p_CLASS…, entropy, epistemic_entropy, prediction_set``. Columns of the source
        that are no features, such as the target, are ignored. Every chunk is answered by the version that answered the
        first.

        Args:
            source: ``.csv`` (``.tsv``, ``.txt``) or ``.parquet`` (``.pq``), with a header. CSV is UTF-8; the separator
                is a comma, semicolon, tab or bar.
            destination: ``.csv`` or ``.parquet``; replaced if it exists, once the new one is complete.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            keep_inputs: Whether the columns of the source come first.
            rows_per_chunk: Rows that are read, sent and written at a time; by default 16,384.
            **options: The options of `predict`; ``timeout`` holds for a chunk.

        Returns:
            Number of rows.

        Raises:
            InvalidInput: The source has no rows, ragged lines or cells that can't be used; the message names file and
                line.
            ValueError: An extension is neither CSV nor Parquet, or the source is the destination.
            OSError: A file can't be read or written.
            MurhoClientError: See `predict`.
        """
        return self._run_files(predict_file(self._service, source, destination, model, version, options))

    def _run_files(self, dialogue: Dialogue[Result]) -> Result:
        """Hold a dialogue that reads and write files between its steps."""
        return self._run(dialogue)

    def _run(self, dialogue: Dialogue[Result], stop: Event | None = None) -> Result:
        """Hold a dialogue.

        Args:
            dialogue: The dialogue.
            stop: Set once its result is no longer wanted, which ends a wait early.
        """
        try:
            step = next(dialogue)
            while True:
                try:
                    answer = self._take(step, stop)
                except Exception as error:
                    step = dialogue.throw(error)
                else:
                    step = dialogue.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _take(self, step: Step, stop: Event | None) -> Any:
        """Return what comes of one step of a dialogue."""
        if isinstance(step, Attempt):
            return self._send(step)
        if isinstance(step, Together):
            return self._hold(step)
        if stop is None:
            time.sleep(step)
        elif stop.wait(step):
            raise CancelledError
        return None

    def _hold(self, step: Together) -> list[Any]:
        """Return the results of dialogues that are held at the same time, in order; the first error ends the others."""
        if len(step.dialogues) == 1:
            results = [self._run(step.dialogues[0])]
            step.done(0)
            return results
        stop = Event()
        pool = ThreadPoolExecutor(self._service.settings.max_concurrency, thread_name_prefix="murho-client")
        try:
            # Each has the context of the caller, and so its trace.
            futures = [pool.submit(copy_context().run, self._run, each, stop) for each in step.dialogues]
            numbers = {future: number for number, future in enumerate(futures)}
            for future in as_completed(futures):
                future.result()
                step.done(numbers[future])
            return [future.result() for future in futures]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, attempt: Attempt) -> Response:
        """Send a request once, and read the whole response."""
        answering = False
        try:
            request = attempt.request(self._http, self._service.settings)
            response = self._http.send(request, stream=True, follow_redirects=False)
            answering = True
            try:
                body = b"".join(attempt.deadline.watch(response.iter_bytes()))
            finally:
                response.close()
            return attempt.response(response, body)
        except (httpx2.RequestError, TimeoutError) as error:
            failure = attempt.failure(error, answering=answering)
        raise failure
