"""Settings of all tests: one PyTorch thread, no deadline for hypothesis examples, a longer limit for slow tests.

The networks of the tests are too small for several threads. Examples have no deadline because their time depends on the
other tests that run at the same moment.
"""

from __future__ import annotations

import hypothesis
import pytest
import torch

SLOW_TIMEOUT = 900
"""Limit of a test that is marked slow, in seconds; the limit of the other tests is in pyproject.toml."""

torch.set_num_threads(1)
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
