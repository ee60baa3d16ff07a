"""What the tests by force share: a trained checkpoint, its posterior, and a directory that may be damaged."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.posterior import Posterior
from tests.e2e.browser import Visit, started_browser, visiting, write_wide
from tests.e2e.support import Service, serve
from tests.service.classifiers import write_classifier
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def trained(tiny_cars: Path) -> Path:
    """Return the directory of a checkpoint's version; not to be changed."""
    return tiny_cars / "cars" / "1"


@pytest.fixture(scope="session")
def posterior(trained: Path) -> Posterior:
    """Return the checkpoint, loaded in this process: it knows the right answers."""
    return Posterior.load(trained)


@pytest.fixture(scope="session")
def rents() -> Posterior:
    """Return a second model, of another table."""
    return Posterior.load(ROOT / "tests" / "fixtures" / "checkpoints" / "rents" / "1")


@pytest.fixture(scope="session")
def busy(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of ``cars``, ``rents``, ``bodies`` and two wide models that outlives whatever its clients do."""
    root = tmp_path_factory.mktemp("busy")
    shutil.copytree(trained, root / "checkpoints" / "cars" / "1")
    shutil.copytree(ROOT / "tests" / "fixtures" / "checkpoints" / "rents", root / "checkpoints" / "rents")
    write_classifier(root / "checkpoints", "bodies")
    write_wide(root / "checkpoints")
    with serve(root / "checkpoints", root / "log", default_model="cars") as service:
        yield service


@pytest.fixture(scope="session")
def of_cars(quick_cars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of the example's columns, for tests that change nothing in it."""
    with serve(quick_cars, tmp_path_factory.mktemp("of cars") / "log") as service:
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser; not for the whole session, because it brings an event loop."""
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(browser: Browser, request: pytest.FixtureRequest) -> str:
    """Return the address of the service ``busy``, for pages."""
    service: Service = request.getfixturevalue("busy")
    return service.address


@pytest.fixture(scope="module")
def window(browser: Browser, site: str) -> Iterator[Visit]:
    """Return a window for all tests that need no window of their own: the chart library is compiled once."""
    with visiting(browser, site) as visit:
        yield visit


@pytest.fixture
def own(trained: Path, tmp_path: Path) -> Path:
    """Return a directory of checkpoints for one test, with ``cars`` in it."""
    shutil.copytree(trained, tmp_path / "own" / "cars" / "1")
    return tmp_path / "own"
