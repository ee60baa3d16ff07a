"""An installed Murho claims the import name `murho` alone: a project may have a model.py and a service/ of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

USE = """
import model, service
assert model.__file__ == {project!r} + "/model.py"
assert service.__file__ == {project!r} + "/service/__init__.py"
import murho.model.tables.splits, murho.service.settings
import murho
print(murho.__file__)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's project with names of its own."""
    project = tmp_path / "project"
    (project / "service").mkdir(parents=True)
    (project / "model.py").touch()
    (project / "service" / "__init__.py").touch()
    return project


def _use(project: Path, more: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", USE.format(project=str(project)) + more],
        cwd=project,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_beside_a_clone(project: Path) -> None:
    assert _use(project) == str(ROOT / "src" / "murho" / "__init__.py")


def test_no_other_name_is_claimed(tmp_path: Path) -> None:
    code = (
        "from importlib.util import find_spec; "
        "print([name for name in ('model', 'service', 'tests', 'benchmarks', 'scripts') if find_spec(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_from_a_wheel(project: Path, tmp_path: Path) -> None:
    sources, site = tmp_path / "sources", tmp_path / "site"
    sources.mkdir()
    for name in ("model", "service", "src"):
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(sources)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert {name.partition("/")[0] for name in names} == {
        "murho",
        f"{wheel.name.partition('-py3')[0]}.dist-info",
    }
    modules = {str(path.relative_to(ROOT)) for room in ("model", "service") for path in (ROOT / room).rglob("*.py")}
    assert {name.removeprefix("murho/") for name in names if name.endswith(".py")} >= modules
    assert _use(project, "from murho import BBBRegressor", PYTHONPATH=str(site)) == str(site / "murho" / "__init__.py")
