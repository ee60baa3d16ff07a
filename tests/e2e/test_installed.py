"""An installed Murho claims the import name `murho` alone: a project may have a model.py and a service/ of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT, free_port

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
    claimed = (
        "\nfrom importlib.util import find_spec\nassert not any(map(find_spec, ('tests', 'benchmarks', 'scripts')))"
    )
    assert _use(project, claimed) == str(ROOT / "src" / "murho" / "__init__.py")


def test_from_a_wheel(project: Path, tmp_path: Path) -> None:
    sources, site = tmp_path / "sources", tmp_path / "site"
    sources.mkdir()
    for name in ("model", "service", "src"):
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_alone_trains_serves_and_predicts_in_an_empty_environment(tmp_path: Path) -> None:
    """As `pip install murho` does, from an index. The index of PyTorch's CPU builds saves gigabytes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHON": sys.executable, "PIP_RETRIES": "1"}
    with contextlib.suppress(OSError):  # elsewhere pip's configuration names another place
        socket.create_connection(("download.pytorch.org", 443), 5).close()
        environment["PIP_EXTRA_INDEX_URL"] = "https://download.pytorch.org/whl/cpu"

    def run(*command: object) -> str:
        words, most = [*map(str, command)], 900
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=most)
        if "Failed to establish a new connection" in done.stderr:
            pytest.skip("no package index is reached")
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    run(ROOT / "scripts" / "build.sh", tmp_path / "dist")
    (wheel,) = (tmp_path / "dist" / "murho").glob("*.whl")
    (client,) = (tmp_path / "dist" / "murho-client").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / "bin"
    constraints = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "murho" not in line]
    (tmp_path / "constraints.txt").write_text("\n".join(constraints))
    run(bin_ / "pip", "install", "-q", "--constraint", "constraints.txt", f"{wheel}[compiled,client]", client)
    run(bin_ / "pip", "check")
    cars = ROOT / "examples" / "cars.csv"
    run(bin_ / "murho", "train", cars, "--target", "Miles_per_Gallon", "--quick", "--epochs", 5)
    assert run(bin_ / "murho", "predict", cars, "--model", "cars").startswith("mean,std,epistemic_std,aleatoric_std,p5")
    port = free_port()
    serving = subprocess.Popen([bin_ / "murho", "serve", "--port", str(port)], cwd=tmp_path, env=environment)
    try:
        for _ in range(600):
            time.sleep(0.2)
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                break
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/models") as answer:
            assert json.load(answer)["models"][0]["name"] == "cars"
        url = f"http://127.0.0.1:{port}"
        assert len(run(bin_ / "murho", "predict", cars, "--model", "cars", "--url", url).splitlines()) == 407
        with urllib.request.urlopen(url) as page:
            assert b"Murho" in page.read()
    finally:
        serving.terminate()
        assert serving.wait(30) == 0
