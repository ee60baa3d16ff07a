from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from murho.service.engine import scheduler
from murho.service.engine.admission import FIRST_SECONDS_PER_COST
from tests.service.engine.bench import Bench


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


@pytest.fixture
def short_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass take 100 rows."""
    monkeypatch.setattr(scheduler, "PASS_SECONDS", 100 * FIRST_SECONDS_PER_COST)
