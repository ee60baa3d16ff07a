"""A worker's side of its wire: what others do to their futures ends no thread of it."""

from __future__ import annotations

import asyncio
from multiprocessing import Pipe
from typing import Any, cast

from murho.service.errors import NotReadyError
from murho.service.security import Buckets
from murho.service.worker import Answer, Ask, Board, Worker


def test_a_caller_that_has_left_ends_nothing() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    async def ask() -> BaseException | None:
        supervisor, wire = Pipe()
        worker = Worker(0, wire, Board(1), Buckets(), None, never)
        worker.start(cast("Any", None), never, never)  # nobody asks it for changes
        gone, stays = worker.ask(cast("Any", "one change")), worker.ask(cast("Any", "another"))
        assert [supervisor.recv() for _ in range(2)] == [Ask(cast("Any", "one change")), Ask(cast("Any", "another"))]
        assert gone.cancel()
        for _ in range(2):
            supervisor.send(Answer(NotReadyError("It can't be.", retry_after=1)))
        return await asyncio.to_thread(stays.exception, 30)

    assert isinstance(asyncio.run(ask()), NotReadyError)
