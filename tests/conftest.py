"""What all tests share: one torch thread each, time enough on a busy machine, marks by folder, and checkpoints of cars.

The networks of the tests are too small for several threads, and threads that wait for each other beside other tests
make them ten times slower. Examples have no deadline because their time depends on the other tests that run at the same
moment.
"""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

from murho.model.runtime import let_threads_sleep

let_threads_sleep()  # PyTorch reads it when it is imported

import torch  # noqa: E402

from murho.model.bbb.steps import kernels  # noqa: E402
from murho.model.predictive.compiled_engine import load  # noqa: E402
from tests.service.support import train_checkpoint  # noqa: E402
from tests.support import ROOT, call_murho, made_once  # noqa: E402

SLOW_TIMEOUT = 900
"""Limit of a test that is marked slow, in seconds; the limit of the other tests is in pyproject.toml."""

FAST = (
    "model/calibration",
    "model/distributions",
    "model/encoding",
    "model/test_files.py",
    "model/test_runtime.py",
    "model/tables",
)
"""Places whose tests fit nothing, serve nothing and compile nothing: marked ``fast``."""

torch.set_num_threads(1)
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_runtest_teardown() -> None:
    torch.set_num_threads(1)  # a command that ran in this process has set its own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    fast = tuple(Path(__file__).parent / folder for folder in FAST)
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in fast):
            item.add_marker(pytest.mark.fast)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load a package of kernels in each of two workers: in a new clone one would wait while the other compiles."""
    loader = {"gw0": kernels, "gw1": load}.get(os.environ.get("PYTEST_XDIST_WORKER", ""))
    if loader is not None and not all(item.get_closest_marker("fast") for item in session.items):
        loader()


@pytest.fixture(scope="session")
def quick_cars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the checkpoint ``cars`` version 1, a quick fit to the example; not to be changed."""
    quick = "--epochs 20 --noise homoscedastic --hidden 16 --members 5 --encoding standard --no-report".split()  # noqa: SIM905
    files = (ROOT / "examples" / "cars.csv", "--config", ROOT / "examples" / "cars.toml")
    return made_once(
        tmp_path_factory, "quick cars", lambda root: call_murho("train", *files, "--checkpoints", root, *quick)
    )


@pytest.fixture(scope="session")
def tiny_cars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the checkpoint ``cars``, of the rows of `tests.service.support`; not to be changed."""
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    return made / "checkpoints"
