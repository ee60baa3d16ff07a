"""The client for asyncio: `AsyncClient`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from murho_client._answers import Reply, broken, read_ready
from murho_client._core import Call, Catalogue, Dialogue, Job, join, options_of
from murho_client._errors import DeadlineExceeded, MurhoClientError, UnknownModel, Unreachable
from murho_client._progress import Progress, ProgressBar
from murho_client._retry import Attempts, Deadline, Transient
from murho_client._setup import Setup

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from types import TracebackType

    from murho_client._model import Model
    from murho_client._model_summary import ModelSummary
    from murho_client._prediction import Prediction

__all__ = ["AsyncClient"]

Result = TypeVar("Result")


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs coroutines at the same time; the first error cancels the others and is raised alone."""
    error: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for item in work:
                tasks.create_task(item)
    except BaseExceptionGroup as group:
        error = group.exceptions[0]
    if error is not None:
        raise error


class AsyncClient:
    """A client of one Murho service, for asyncio. Arguments, results and errors are those of `Client`.

    Example:
        >>> async with AsyncClient("http://127.0.0.1:8000") as client:  # doctest: +SKIP
        ...     prediction = await client.predict({"Weight_in_lbs": [3504, 2130], "Horsepower": [130, None]})
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
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._setup = Setup.of(url, timeout, max_rows_per_request, max_concurrency, retries)
        self._catalogue = Catalogue()
        self._http = httpx.AsyncClient(transport=transport, **self._setup.http(api_key))

    def __repr__(self) -> str:
        return f"AsyncClient({self._setup.shown!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. The client can't be used afterwards."""
        await self._http.aclose()

    async def ready(self) -> bool:
        """Whether the service is ready; see `Client.ready`."""
        try:
            return bool(await self._ask(Call("GET", "/readyz", read_ready, retried=False), None))
        except (Unreachable, DeadlineExceeded):
            return False

    async def models(self) -> list[ModelSummary]:
        """The models that the service has; see `Client.models`."""
        return await self._run(self._catalogue.models(), None)

    async def model(self, name: str, version: str | None = None) -> Model:
        """One model: its target, features and metrics; see `Client.model`."""
        return await self._run(self._catalogue.model(name, version), None)

    async def predict(
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
        """Predicts the target of each row, with error bars; see `Client.predict`."""
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
        job = await self._run(Job.prepare(self._catalogue, data, (model, version), options, self._setup.rows), whole)
        try:
            answers = await self._answer(job, whole, progress)
        except UnknownModel:
            self._catalogue.forget(model, version)
            raise
        self._catalogue.learn(model, version, answers[-1]["model"])
        return join(answers, job.batch)

    async def _answer(self, job: Job, whole: Deadline | None, progress: Progress) -> list[dict[str, Any]]:
        """The answers to all requests of a job, in order; the first error cancels the others."""
        answers: dict[int, dict[str, Any]] = {}
        waiting = iter(job.starts)

        async def work(bar: ProgressBar) -> None:
            for start in waiting:
                answers[start] = await self._ask(job.call(start), whole)
                bar.advance(job.size(start))

        with ProgressBar(job.batch.rows, progress) as bar:
            if len(job.starts) == 1:
                await work(bar)
            else:
                await _together(work(bar) for _ in range(min(self._setup.concurrency, len(job.starts))))
        return [answers[start] for start in job.starts]

    async def _run(self, dialogue: Dialogue[Result], whole: Deadline | None) -> Result:
        """Exchanges the requests of a dialogue."""
        try:
            call = next(dialogue)
            while True:
                try:
                    answer = await self._ask(call, whole)
                except MurhoClientError as error:
                    call = dialogue.throw(error)
                else:
                    call = dialogue.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _ask(self, call: Call, whole: Deadline | None) -> Any:
        """What the reply to one request means, after as many attempts as it takes."""
        deadline = self._setup.deadline(whole)
        attempts = Attempts(self._setup.retries if call.retried else 0, deadline)
        while True:
            try:
                return call.read(await self._exchange(call, deadline))
            except Transient as failure:
                error, wait = failure.error, attempts.wait(failure)
            if wait is None:
                raise attempts.last(error)
            await asyncio.sleep(wait)

    async def _exchange(self, call: Call, deadline: Deadline) -> Reply:
        """One attempt: sends the request and reads the whole reply; see `Client._exchange`."""
        address = f"{self._setup.shown}{call.path}"
        timeouts = deadline.timeouts()
        answering = False
        try:
            request = self._http.build_request(
                call.method, call.path, content=call.body, headers=call.headers, timeout=timeouts
            )
            async with asyncio.timeout(deadline.remaining()):
                response = await self._http.send(request, stream=True)
                answering = True
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
            return Reply(address, response.status_code, response.headers, body)
        except httpx.ConnectTimeout as error:
            failure: Exception = broken(address, error, answering=False)
        except (httpx.TimeoutException, TimeoutError):
            failure = deadline.exceeded()
        except httpx.RequestError as error:
            failure = broken(address, error, answering=answering)
        raise failure
