from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.protocols.support import NUMBERS
from tests.service.support import AppClient, FakeModel, make_client


@pytest.fixture(scope="module")
def client() -> Iterator[AppClient]:
    """Return a service of ``cars``, with every kind of feature, and of ``numbers``."""
    with make_client(FakeModel(), FakeModel("numbers", schema=NUMBERS), max_rows=1000, samples=4) as client:
        yield client
