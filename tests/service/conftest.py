from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.service.support import AppClient, FakeModel, make_client


@pytest.fixture(autouse=True, scope="session")
def plain_log() -> None:
    # The default renders exceptions with the variables of every frame, which takes seconds.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ],
    )


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def client(model: FakeModel) -> Iterator[AppClient]:
    with make_client(model) as client:
        yield client
