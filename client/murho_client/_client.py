"""The client for ordinary Python: `Client`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from murho_client._answers import Reply, broken, read_ready
from murho_client._core import Call, Catalogue, Dialogue, Job, join, options_of
from murho_client._errors import DeadlineExceeded, MurhoClientError, UnknownModel, Unreachable
from murho_client._progress import Progress, ProgressBar
from murho_client._retry import Attempts, Deadline, Transient
from murho_client._setup import Setup

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from types import TracebackType

    from murho_client._model import Model
    from murho_client._model_summary import ModelSummary
    from murho_client._prediction import Prediction

__all__ = ["Client"]

Result = TypeVar("Result")


class Client:
    """A client of one Murho service. Threads can share it.

    Args:
        url: Address of the service, such as ``http://127.0.0.1:8000``.
        api_key: Sent as bearer token; by default `MURHO_API_KEY` of the environment, if that is set. No message, repr
            or log shows it.
        timeout: Seconds for each request, with its retries.
        max_rows_per_request: Larger tables are split into several requests.
        max_concurrency: The most requests of one call at a time.
        retries: The most attempts after the first, for broken connections and for services that are busy or start.
        transport: Another httpx transport, for tests.

    Raises:
        ValueError: An argument can't be used.

    Example:
        >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
        ...     prediction = client.predict({"Weight_in_lbs": [3504, 2130], "Horsepower": [130, None]})
        ...     lower, upper = prediction.interval(0.9)
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_rows_per_request: int = 2048,
        max_concurrency: int = 4,
        retries: int = 6,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._setup = Setup.of(url, timeout, max_rows_per_request, max_concurrency, retries)
        self._catalogue = Catalogue()
        self._http = httpx.Client(transport=transport, **self._setup.http(api_key))

    def __repr__(self) -> str:
        return f"Client({self._setup.shown!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. The client can't be used afterwards."""
        self._http.close()

    def ready(self) -> bool:
        """Whether the service answers, has loaded its models and isn't about to stop.

        Raises:
            UnexpectedAnswer: Something else than a Murho service answers.
        """
        try:
            return bool(self._ask(Call("GET", "/readyz", read_ready, retried=False), None))
        except (Unreachable, DeadlineExceeded):
            return False

    def models(self) -> list[ModelSummary]:
        """The models that the service has, in their latest versions. One request, which has no model loaded.

        Raises:
            MurhoClientError: The service has no answer.
        """
        return self._run(self._catalogue.models(), None)

    def model(self, name: str, version: str | None = None) -> Model:
        """One model: its target, features and metrics.

        Args:
            name: Its name.
            version: Its version; the latest by default.

        Raises:
            UnknownModel: There is no such model.
            MurhoClientError: The service has no answer.
        """
        return self._run(self._catalogue.model(name, version), None)

    def predict(
        self,
        data: object,
        model: str | None = None,
        version: str | None = None,
        *,
        samples: int = 256,
        percentiles: Iterable[float] = (5, 50, 95),
        seed: int | None = None,
        noise: bool = True,
        calibrated: bool = True,
        thresholds: Iterable[float] = (),
        include: Iterable[str] = (),
        coverage: float | None = None,
        timeout: float | None = None,
        progress: Progress = None,
    ) -> Prediction:
        """Predicts the target of each row, with error bars.

        Args:
            data: The rows: a dict of columns, one record, a list of records, a NumPy array with the features in the
                model's order, a pandas or Polars DataFrame, or an Arrow table. None, NaN, NaT and nulls are missing
                cells. The target's column may be there; it isn't sent.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            samples: Number of draws S behind the answer; 0 for the deterministic mean alone.
            percentiles: Levels, strictly between 0 and 100.
            seed: Seed of the draws; the model's own if not given.
            noise: Whether to describe a new observation; False describes the function alone. For numbers alone.
            calibrated: Whether std and its parts, percentiles and exceedance, or all about the classes, are calibrated
                on held-out rows; False for all of them raw.
            thresholds: For each, the answer has the probability that the target exceeds it. For numbers alone.
            include: ``"draws"`` for the function value of each draw, or its probabilities of the classes;
                ``"mc_error"`` for the standard errors that come from the finite number of draws.
            coverage: Coverage of a classifier's prediction sets, between 0 and 1; the service's (0.9) if not given.
            timeout: Seconds for the whole call. If not given, each request has the client's timeout.
            progress: None shows a bar on a terminal if the work takes more than a second, True and False always and
                never. A function is called with the number of finished rows and of all rows.

        Returns:
            The prediction, with one entry a row, in order.

        Raises:
            InvalidInput: The rows or options can't be used.
            UnknownModel: There is no such model.
            DeadlineExceeded: There was no answer in time.
            Unreachable: There is no connection to the service.
            MurhoClientError: The service has no answer for another reason.
        """
        options = options_of(
            samples=samples,
            percentiles=percentiles,
            seed=seed,
            noise=noise,
            calibrated=calibrated,
            thresholds=thresholds,
            include=include,
            coverage=coverage,
        )
        whole = None if timeout is None else Deadline(timeout)
        job = self._run(Job.prepare(self._catalogue, data, (model, version), options, self._setup.rows), whole)
        try:
            answers = self._answer(job, whole, progress)
        except UnknownModel:
            self._catalogue.forget(model, version)
            raise
        self._catalogue.learn(model, version, answers[-1]["model"])
        return join(answers, job.batch)

    def predict_file(
        self,
        source: str | PathLike[str],
        destination: str | PathLike[str],
        model: str | None = None,
        version: str | None = None,
        **options: Any,
    ) -> int:
        """Predicts each row of a CSV or Parquet file, in bounded memory, and writes the answers to another file.

        Args:
            source: The file with the rows; its extension says what it is.
            destination: The file to write. It appears once it is complete.
            model: Name of the model; the service's default model if not given.
            version: Version of the model; the latest if not given.
            **options: `keep_inputs`, and the options of `predict`.

        Returns:
            Number of rows.

        Raises:
            MurhoClientError: See `predict`.
        """
        from murho_client._files import predict_file  # here, as most programs don't need it

        return predict_file(self, source, destination, model=model, version=version, **options)

    def _answer(self, job: Job, whole: Deadline | None, progress: Progress) -> list[dict[str, Any]]:
        """The answers to all requests of a job, in order; the first error ends the others."""
        starts = job.starts
        with ProgressBar(job.batch.rows, progress) as bar:
            if len(starts) == 1:
                answers = [self._ask(job.call(0), whole)]
                bar.advance(job.batch.rows)
                return answers
            stop = Event()
            pool = ThreadPoolExecutor(self._setup.concurrency, thread_name_prefix="murho-client")
            try:
                futures = {pool.submit(self._ask_part, job, start, whole, stop): start for start in starts}
                for future in as_completed(futures):
                    future.result()
                    bar.advance(job.size(futures[future]))
                return [future.result() for future in futures]
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _ask_part(self, job: Job, start: int, whole: Deadline | None, stop: Event) -> Any:
        """The answer to one request of a job, in a thread of its own."""
        return self._ask(job.call(start), whole, stop)

    def _run(self, dialogue: Dialogue[Result], whole: Deadline | None) -> Result:
        """Exchanges the requests of a dialogue."""
        try:
            call = next(dialogue)
            while True:
                try:
                    answer = self._ask(call, whole)
                except MurhoClientError as error:
                    call = dialogue.throw(error)
                else:
                    call = dialogue.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _ask(self, call: Call, whole: Deadline | None, stop: Event | None = None) -> Any:
        """What the reply to one request means, after as many attempts as it takes."""
        deadline = self._setup.deadline(whole)
        attempts = Attempts(self._setup.retries if call.retried else 0, deadline, stop)
        while True:
            try:
                return call.read(self._exchange(call, deadline))
            except Transient as failure:
                error, wait = failure.error, attempts.wait(failure)
            if wait is None:
                raise attempts.last(error)
            time.sleep(wait)

    def _exchange(self, call: Call, deadline: Deadline) -> Reply:
        """One attempt: sends the request and reads the whole reply.

        What httpx raises has the request, which has the key: so it is never part of what is raised here.
        """
        address = f"{self._setup.shown}{call.path}"
        timeouts = deadline.timeouts()
        answering = False
        try:
            request = self._http.build_request(
                call.method, call.path, content=call.body, headers=call.headers, timeout=timeouts
            )
            response = self._http.send(request, stream=True)
            answering = True
            try:
                body = b"".join(deadline.watch(response.iter_bytes()))
            finally:
                response.close()
            return Reply(address, response.status_code, response.headers, body)
        except httpx.ConnectTimeout as error:
            failure: Exception = broken(address, error, answering=False)
        except httpx.TimeoutException:
            failure = deadline.exceeded()
        except httpx.RequestError as error:
            failure = broken(address, error, answering=answering)
        raise failure
