"""One local Ray with two processors for all tests of this folder, and tables for the fixture's checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

RAYS_OWN = (
    r"ignore::DeprecationWarning:ray\.data\.context",
    "ignore:Using extra keyword arguments on `Field`:DeprecationWarning",
)
"""Warnings that Ray causes in itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for warning in RAYS_OWN:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Return a Ray of this process; its workers find `murho` as this process does."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "error"
    # On a busy machine, the priority that Ray gives to workers would starve them.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as Ray spells it
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=2**27,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def rents_table() -> pa.Table:
    """3,000 rows for the checkpoint ``rents``, with missing cells, quotes and line breaks in a further column."""
    rows = 3_000
    generator = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(rows),
            "sqm": generator.uniform(20.0, 120.0, rows),
            "rooms": pa.array(generator.integers(1, 6, rows).astype(float), mask=generator.random(rows) < 0.05),
            "city": generator.choice(["Basel", "Bern", "Genf", "Zug"], rows),
            "parking": generator.choice(["no", "yes"], rows),
            "listed": np.datetime64("2020-01-01") + generator.integers(0, 900, rows).astype("timedelta64[D]"),
            "remark": generator.choice(["plain", 'a "quote", and a comma', "two\nlines", ""], rows),
        }
    )
