"""The client for asyncio: `AsyncClient`."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

import httpx2

from murho_client._client import Client
from murho_client._service import BaseClient
from murho_client._transport import Attempt, Dialogue, Options, Step, Together

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from murho_client._responses import Response

__all__ = ["AsyncClient"]


P = ParamSpec("P")
Result = TypeVar("Result")


def _awaited(
    method: Callable[Concatenate[Client, P], Result],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Result]]:
    """Return a method of `Client` for asyncio, where what it returns, the end of its dialogue, is awaited."""

    @wraps(method)
    async def awaited(self: AsyncClient, /, *given: P.args, **options: P.kwargs) -> Result:
        held: Any = method(cast("Client", self), *given, **options)
        return await held  # type: ignore[no-any-return]  # of the dialogue

    return awaited


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
        """Close the connections. The client can't be used afterwards."""
        if self._owned:
            await self._http.aclose()

    request = _awaited(Client.request)
    ready = _awaited(Client.ready)
    models = _awaited(Client.models)
    model = _awaited(Client.model)
    load = _awaited(Client.load)
    unload = _awaited(Client.unload)
    predict = _awaited(Client.predict)
    aggregate = _awaited(Client.aggregate)
    outcomes = _awaited(Client.outcomes)
    quality = _awaited(Client.quality)
    decide = _awaited(Client.decide)
    explain = _awaited(Client.explain)
    counterfactual = _awaited(Client.counterfactual)
    predict_file = _awaited(Client.predict_file)

    async def _run_files(self, dialogue: Dialogue[Result]) -> Result:
        """Hold a dialogue that reads and write files between its steps: in a thread, so the event loop goes on."""
        return await self._run(dialogue, in_thread=True)

    async def _run(self, dialogue: Dialogue[Result], *, in_thread: bool = False) -> Result:
        """Hold a dialogue; what it does between its steps may be done in a thread."""

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
        """Return what comes of one step of a dialogue."""
        if isinstance(step, Attempt):
            return await self._send(step)
        if isinstance(step, Together):
            return await self._hold(step)
        return await asyncio.sleep(step)

    async def _hold(self, step: Together) -> list[Any]:
        """Hold dialogues at the same time; return their results in order. The first error cancels the others."""
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
        """Send a request once, and read the whole response."""
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
