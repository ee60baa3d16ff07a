"""The set-up, as far as it can be tried without installing anything."""

from __future__ import annotations

import http.server
import importlib.metadata
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

SETUP = ROOT / "scripts" / "setup.sh"
TORCH = "2.13.0"


@pytest.fixture(scope="module")
def install() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "install.py"))


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.replace("_", "-").lower().split("==") for line in lines if line and not line.startswith("#"))


# ---- constraints.txt


def test_every_dependency_is_pinned_and_what_runs_here_is_what_is_pinned(pins: dict[str, str]) -> None:
    wanted: list[str] = []
    for place in (ROOT, ROOT / "client"):
        described = tomllib.loads((place / "pyproject.toml").read_text())
        wanted += [*described["build-system"]["requires"], *described["project"]["dependencies"]]
        groups = [described["project"].get("optional-dependencies", {}), described.get("dependency-groups", {})]
        wanted += [each for group in groups for packages in group.values() for each in packages]
    names = {re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in wanted}
    assert names - set(pins) - {"murho", "murho-client"} == set()
    installed = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}
    runs = {name: installed[name].partition("+")[0] for name in pins if name in installed}
    assert runs == {name: pins[name] for name in runs}
    assert pins["torch"] == TORCH
    assert [name for name in pins if name == "triton" or name.startswith(("nvidia", "cuda"))] == []


# ---- uv.lock


def test_the_lock_has_the_pinned_versions_from_public_indexes(pins: dict[str, str]) -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    packages = [package for package in lock["package"] if "registry" in package["source"]]
    locked = {package["name"].replace(".", "-"): package["version"].partition("+")[0] for package in packages}
    del locked["appnope"]  # for macOS, where the constraints were not made
    pinned = {name.replace(".", "-"): version for name, version in pins.items()}
    assert locked == {name: pinned.get(name) for name in locked}
    places = {package["source"]["registry"] for package in packages}
    assert places == {"https://pypi.org/simple", "https://download.pytorch.org/whl/cpu"}


def test_uv_installs_what_the_lock_has(tmp_path: Path) -> None:
    try:
        socket.getaddrinfo("pypi.org", 443)
    except OSError:
        pytest.skip("no package index in reach")
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "env" / "bin" / "python"
    places = {"UV_PROJECT_ENVIRONMENT": str(tmp_path / "env"), "UV_CACHE_DIR": str(tmp_path / "cache")}
    # --locked ends it if pyproject.toml has changed since; torch is 190 MB, and not from the package index.
    command = [str(uv), "sync", "--locked", "--python", sys.executable, "--no-install-package", "torch"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = "import importlib.metadata as m; print(*(d.metadata['Name'] for d in m.distributions()))"
    installed = subprocess.run([python, "-c", names], capture_output=True, text=True, check=True).stdout.split()
    assert {"murho", "murho-client", "fastapi", "numba", "pytest"} <= set(installed)
    assert subprocess.run([python.with_name("murho"), "--help"], capture_output=True, check=False).returncode == 0


# ---- scripts/install.py

INDEX = "https://mirror.example/whl"


@pytest.mark.parametrize(
    ("where", "requirements"),
    [
        # pip's configuration may name folders and indexes with CUDA wheels: only +cpu keeps it off them.
        (("cpu", "Linux"), [f"torch=={TORCH}+cpu"] * 3 + [f"torch=={TORCH}"]),
        (("cuda", "Linux"), [f"torch==={TORCH}"]),  # never satisfied by a CPU wheel
        (("cpu", "Darwin"), []),  # the package index has the choice
        (("cpu", "Linux", INDEX), [f"torch=={TORCH}+cpu"]),
    ],
)
def test_where_torch_comes_from(install: dict[str, Any], where: tuple[str, ...], requirements: list[str]) -> None:
    sources = install["torch_sources"](TORCH, *where)
    assert [source.requirement for source in sources] == requirements
    if INDEX in where:
        assert sources[0].options == ("--index-url", INDEX)
    elif len(sources) == 4:
        assert "--no-index" in sources[0].options
        assert install["CPU_INDEX"] in sources[1].options
        assert [source.last_resort for source in sources] == [False, False, False, True]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--runtime-dependencies"], {"EXTRAS": "s3,client"}, "EXTRAS: there is no extra 'client'; there are: az, "),
        ([], {"TORCH_VARIANT": "rocm"}, "TORCH_VARIANT is 'rocm'; it is one of cpu, cuda."),
    ],
)
def test_what_is_unknown_is_refused_before_anything_is_installed(
    arguments: list[str], environment: dict[str, str], message: str
) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "install.py"), *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")  # it has not begun with torch
    assert message in done.stderr


# ---- scripts/setup.sh


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with nothing to install, and a search path without any Python."""
    project = tmp_path / "a project"
    (project / "scripts").mkdir(parents=True)
    shutil.copy(SETUP, project / "scripts")
    (project / "client").mkdir()
    for name in ("scripts/install.py", "pyproject.toml", "client/pyproject.toml", "constraints.txt"):
        (project / name).touch()
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "dirname", "cat", "cut", "find", "grep", "rm", "mkdir", "chmod", "touch", "cp"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    return project


STAND_IN = """\
case "$*" in
  "-m venv --clear .venv")
    mkdir -p .venv/bin; echo "$PWD/.venv" >.venv/bin/activate; cp "$0" .venv/bin/python ;;
  "scripts/install.py"*) echo "installing $TORCH_VARIANT ${2:-all}"; touch .venv/bin/murho; chmod +x .venv/bin/murho ;;
esac
"""
"""A Python, for as far as the set-up script asks it for things: quicker than a real environment."""


def set_up(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(project.parent / "bin"), **variables}
    command = [str(project.parent / "bin" / "sh"), str(project / "scripts" / "setup.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def fake_python(project: Path, name: str, body: str) -> None:
    program = project.parent / "bin" / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("python", "chosen", "message"),
    [
        ('case "$1" in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac', "", "none was found (found: Python 3.9.2)"),
        ('case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac', "", "sudo apt install python3.12-venv"),
        ("", "/nowhere/python3", "PYTHON=/nowhere/python3 is no Python 3.11 or newer"),
    ],
)
def test_without_a_python_that_will_do_it_says_what_is_needed(
    project: Path, python: str, chosen: str, message: str
) -> None:
    fake_python(project, "python3", python)
    result = set_up(project, **({"PYTHON": chosen} if chosen else {}))
    assert result.returncode == 1
    assert message in result.stderr
    assert not (project / ".venv").exists()


def test_it_installs_once_and_again_only_when_something_changed(project: Path) -> None:
    fake_python(project, "python3.12", STAND_IN)
    first = set_up(project, "--serving", TORCH_VARIANT="cuda")
    assert first.returncode == 0, first.stderr
    for said in ("creating .venv", "installing cuda --serving", "step 2 of 2"):
        assert said in first.stdout
    assert set_up(project, "--serving").stdout == ""
    assert "installing cuda all" in set_up(project).stdout  # the build of torch is remembered
    assert set_up(project).stdout == set_up(project, "--serving").stdout == ""
    os.utime(project / ".venv" / ".set-up", (1, 1))  # older than pyproject.toml
    after_a_change = set_up(project, "--serving")
    assert "installing cuda all" in after_a_change.stdout
    assert "creating" not in after_a_change.stdout


def test_a_set_up_that_broke_off_is_taken_up_again_and_one_that_was_moved_made_anew(project: Path) -> None:
    fake_python(project, "python3.12", STAND_IN.replace("touch .venv/bin/murho", "exit 1"))
    assert set_up(project).returncode == 1
    fake_python(project, "python3.12", STAND_IN)
    shutil.copy(project.parent / "bin" / "python3.12", project / ".venv" / "bin" / "python")
    again = set_up(project)
    assert again.returncode == 0
    assert "creating" not in again.stdout
    assert "installing cpu" in again.stdout
    moved = project.rename(project.with_name("moved"))
    assert "Replacing .venv" in set_up(moved).stdout
    assert set_up(moved).stdout == ""


# ---- scripts/container_health.py


class Answer(http.server.BaseHTTPRequestHandler):
    """Is alive, and never ready."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_container_check_follows_the_service(port: int) -> None:
    def status(*arguments: str, at: int = port, **more: str) -> int:
        script = ROOT / "scripts" / "container_health.py"
        environment = {**os.environ, "MURHO_PORT": str(at), **more}
        return subprocess.run([sys.executable, "-I", str(script), *arguments], env=environment, check=False).returncode

    assert status() == 0
    assert status("/readyz") == 1
    assert status(at=1) == 1  # nothing listens there
    assert status(at=1, MURHO_METRICS_PORT=str(port)) == 0
