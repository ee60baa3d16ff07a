"""What all tests share: one torch thread each, and time enough on a machine that is busy with the other tests.

The networks of the tests are too small to share between threads. An example of a property has no deadline, as how
long one takes depends on what else runs; a test that is marked slow may take the longer for it.
"""

from __future__ import annotations

import hypothesis
import pytest
import torch

SLOW_TIMEOUT = 900
"""Seconds for a test that is marked slow; pyproject.toml has the limit of the others."""

torch.set_num_threads(1)
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
