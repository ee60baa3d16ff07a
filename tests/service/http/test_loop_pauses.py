from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from murho.service.http.loop_pauses import LoopPauses

if TYPE_CHECKING:
    import pytest


def test_a_round_of_the_loop_with_refusals_ends_in_one_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: happened.append(f"pause of {seconds}"))
    pauses = LoopPauses(0.004)

    async def refuse(name: str) -> None:
        happened.append(name)
        pauses.refused()

    async def test() -> None:
        await asyncio.gather(refuse("first"), refuse("second"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert happened == ["first", "second", "pause of 0.004"]
        await refuse("third")
        await asyncio.sleep(0)
        assert happened[3:] == ["third", "pause of 0.004"]

    asyncio.run(test())
