"""The client for asyncio: `AsyncClient`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import httpx2

from murho_client._errors import DeadlineExceeded, Unreachable
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

__all__ = ["AsyncClient"]

Result = TypeVar("Result")


class AsyncClient(BaseClient[httpx2.AsyncClient]):
    """A client of one Murho service, for asyncio. Arguments, results and errors are those of `Client`.

    Example:
        >>> async with AsyncClient("http://127.0.0.1:8000") as client:  # doctest: +SKIP
        ...     prediction = await client.predict({"Weight_in_lbs": [3504, 2130], "Horsepower": [130, None]})
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        http_client: httpx2.AsyncClient | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(url, api_key, http_client, httpx2.AsyncClient, options)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. The client can't be used afterwards."""
        if self._owned:
            await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Sends any request of the service's HTTP interface; see `Client.request`."""
        return await self._run(self._service.request(method, path, json, content, headers))

    async def ready(self) -> bool:
        """Whether the service is ready; see `Client.ready`."""
        try:
            return await self._run(self._service.ready())
        except (Unreachable, DeadlineExceeded):
            return False

    async def models(self) -> list[ModelSummary]:
        """The models that the service has; see `Client.models`."""
        return await self._run(self._service.models())

    async def model(self, name: str, version: str | None = None) -> Model:
        """One model: its target, features and metrics; see `Client.model`."""
        return await self._run(self._service.model(name, version))

    async def load(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Has a model loaded now; see `Client.load`."""
        return await self._run(self._service.load(name, version))

    async def unload(self, name: str) -> dict[str, Any]:
        """Takes all versions of a model out of service; see `Client.unload`."""
        return await self._run(self._service.unload(name))

    async def predict(
        self, data: object, model: str | None = None, version: str | None = None, **options: Unpack[PredictOptions]
    ) -> Prediction:
        """Predicts the target of each row, with error bars; see `Client.predict`."""
        return await self._run(self._service.predict(data, model, version, options))

    async def aggregate(
        self,
        data: object,
        by: str | Sequence[str] = (),
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Totals:
        """Adds up predictions, with error bars; see `Client.aggregate`."""
        return await self._run(self._service.aggregate(data, model, version, by, options))

    async def outcomes(self, data: object, model: str) -> Outcomes:
        """Tells what came true of recorded predictions; see `Client.outcomes`."""
        return await self._run(self._service.outcomes(data, model))

    async def quality(
        self,
        model: str,
        *,
        window: str = "30d",
        by: str | None = None,
        coverage: float | None = None,
        version: str | None = None,
    ) -> dict[str, Any]:
        """How good recorded predictions were, by their outcomes; see `Client.quality`."""
        asked = {"window": window, "by": by, "coverage": coverage, "version": version}
        return await self._run(self._service.quality(model, asked))

    async def decide(
        self,
        contexts: object,
        actions: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[DecideOptions],
    ) -> Decisions:
        """Chooses one of several actions for each context; see `Client.decide`."""
        return await self._run(self._service.decide(contexts, actions, model, version, options))

    async def explain(
        self, data: object, model: str | None = None, version: str | None = None, **options: Unpack[PredictOptions]
    ) -> Explanation:
        """What each known cell adds to the answer of its row; see `Client.explain`."""
        return await self._run(self._service.explain(data, model, version, options))

    async def counterfactual(
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
        """The nearest rows whose answer reaches a goal; see `Client.counterfactual`."""
        asked = {"goal": goal, "fixed": list(fixed), "count": count, "samples": samples, "seed": seed}
        return await self._run(self._service.counterfactual(row, model, asked))

    async def predict_file(
        self,
        source: str | PathLike[str],
        destination: str | PathLike[str],
        model: str | None = None,
        version: str | None = None,
        **options: Unpack[FileOptions],
    ) -> int:
        """Predicts each row of a file, and writes the answers to another file; see `Client.predict_file`.

        Files are read and written in a thread, so the event loop goes on.
        """
        dialogue = predict_file(self._service, source, destination, model, version, options)
        return await self._run(dialogue, in_thread=True)

    async def _run(self, dialogue: Dialogue[Result], *, in_thread: bool = False) -> Result:
        """Holds a dialogue; what it does between its steps may be done in a thread."""

        async def advance(go: Any, *given: Any) -> tuple[Step | None, Any]:
            def one() -> tuple[Step | None, Any]:  # a future holds no StopIteration
                try:
                    return go(*given), None
                except StopIteration as end:
                    return None, end.value

            return await asyncio.to_thread(one) if in_thread else one()

        try:
            step, result = await advance(next, dialogue)
            while step is not None:
                try:
                    answer = await self._take(step)
                except Exception as error:
                    step, result = await advance(dialogue.throw, error)
                else:
                    step, result = await advance(dialogue.send, answer)
        finally:
            dialogue.close()
        return result  # type: ignore[no-any-return]  # of the dialogue

    async def _take(self, step: Step) -> Any:
        """What comes of one step of a dialogue."""
        if isinstance(step, Attempt):
            return await self._send(step)
        if isinstance(step, Together):
            return await self._hold(step)
        return await asyncio.sleep(step)

    async def _hold(self, step: Together) -> list[Any]:
        """The results of dialogues that are held at the same time, in order; the first error cancels the others."""
        results: list[Any] = [None] * len(step.dialogues)
        waiting = iter(enumerate(step.dialogues))
        error: BaseException | None = None

        async def work() -> None:
            for number, dialogue in waiting:
                results[number] = await self._run(dialogue)
                step.done(number)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(self._service.settings.max_concurrency, len(results))):
                    tasks.create_task(work())
        except BaseExceptionGroup as group:
            error = group.exceptions[0]
        if error is not None:
            raise error
        return results

    async def _send(self, attempt: Attempt) -> Response:
        """Sends a request once, and reads the whole response."""
        answering = False
        try:
            request = attempt.request(self._http, self._service.settings)
            async with asyncio.timeout(attempt.deadline.remaining()):
                response = await self._http.send(request, stream=True, follow_redirects=False)
                answering = True
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
            return attempt.response(response, body)
        except (httpx2.RequestError, TimeoutError) as error:
            failure = attempt.failure(error, answering=answering)
        raise failure
