from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.support import AppClient, FakeModel, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def client(model: FakeModel) -> Iterator[AppClient]:
    with make_client(model) as client:
        client.wait_until_loaded()
        yield client
