from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from murho.service.outcomes.adaptation import AdaptationFollower
from murho.service.outcomes.quality import AlarmFollower
from murho.service.outcomes.store import Store

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
ADDRESS = "postgresql+psycopg://postgres@/{}?host={}"
NUMBERS = count()
USER = "postgres" if os.getuid() == 0 else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """Return the directory of a PostgreSQL server, with its socket; as root it runs as another user."""
    if not FOUND:
        pytest.skip("PostgreSQL is not installed")
    home = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path is short
    if USER is not None:
        shutil.chown(home, USER)
    in_postgres(home, "initdb", "-A", "trust", "-U", "postgres", "--no-sync")
    start_postgres(home)
    try:
        yield home
    finally:
        in_postgres(home, "pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


def in_postgres(home: Path, command: str, *arguments: str) -> None:
    words = [str(FOUND[-1] / command), "-D", str(home / "data"), *arguments]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, user=USER, cwd=home, timeout=60)


def start_postgres(home: Path) -> None:
    options = f"-k {home} -c listen_addresses= -c fsync=off"
    in_postgres(home, "pg_ctl", "-w", "-o", options, "-l", str(home / "log"), "start")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a store that isn't there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "murho.db")
    home: Path = request.getfixturevalue("postgres")
    name = f"d{next(NUMBERS)}"
    words = [str(FOUND[-1] / "createdb"), "-h", str(home), "-U", "postgres", name]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return ADDRESS.format(name, home)


@pytest.fixture
def opened(address: str) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def make() -> Store:
        stores.append(Store(address, [AlarmFollower(), AdaptationFollower("adaptive")]))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()
