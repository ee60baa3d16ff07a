"""Environments of peers: made once, made anew when their requirements change. No test installs anything."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import environments
from benchmarks.environments import STAMP, PeerEnvironmentError, environment, python_of
from murho.model.errors import MurhoError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_an_environment_without_packages_is_a_python_of_its_own(tmp_path: Path) -> None:
    python = environment("empty", [], cache=tmp_path)
    assert python == python_of(tmp_path / "empty")
    said = subprocess.run(
        [str(python), "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == str(tmp_path / "empty")


class _Commands:
    """Stands in for venv and pip: notes what is run, and makes the file that venv would."""

    def __init__(self) -> None:
        self.run: list[list[str]] = []

    def __call__(self, _name: str, command: Sequence[str]) -> str:
        self.run.append(list(command))
        if "venv" in command:
            python = python_of(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
        return "numpy==2.0.0\n"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> _Commands:
    made = _Commands()
    monkeypatch.setattr(environments, "_run", made)
    return made


def test_it_is_made_once(commands: _Commands, tmp_path: Path) -> None:
    first = environment("peer", ["numpy==2.0.0"], cache=tmp_path)
    count = len(commands.run)
    assert count > 0
    assert environment("peer", ["numpy==2.0.0"], cache=tmp_path) == first
    assert len(commands.run) == count


def test_other_requirements_make_it_anew(commands: _Commands, tmp_path: Path) -> None:
    environment("peer", ["numpy==2.0.0"], cache=tmp_path)
    left_over = tmp_path / "peer" / "left-over"
    left_over.touch()
    environment("peer", ["numpy==2.0.1"], cache=tmp_path)
    assert not left_over.exists()
    assert commands.run[-2][-1] == "numpy==2.0.1"


def test_one_that_was_not_finished_is_made_anew(commands: _Commands, tmp_path: Path) -> None:
    environment("peer", ["numpy==2.0.0"], cache=tmp_path)
    (tmp_path / "peer" / STAMP).unlink()
    count = len(commands.run)
    environment("peer", ["numpy==2.0.0"], cache=tmp_path)
    assert len(commands.run) == 2 * count


def test_torch_is_installed_before_the_rest(commands: _Commands, tmp_path: Path) -> None:
    environment("peer", ["numpy==2.0.0", "torch==2.13.0"], cache=tmp_path)
    installs = [command for command in commands.run if "install" in command]
    assert installs[0][-1].startswith("torch==2.13.0")
    assert "numpy==2.0.0" in installs[-1]


@pytest.mark.parametrize("requirement", ["numpy", "numpy>=2", "numpy==2.*", "numpy==2, scipy", "-r file"])
def test_requirements_must_be_pinned(requirement: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not pinned"):
        environment("peer", [requirement], cache=tmp_path)


def test_a_name_stays_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no name"):
        environment("../elsewhere", [], cache=tmp_path)


def test_what_pip_said_last_is_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "first\n" * 50 + "ERROR: no route to host")

    monkeypatch.setattr(subprocess, "run", no_network)
    with pytest.raises(PeerEnvironmentError, match="needs the network once") as caught:
        environment("peer", ["numpy==2.0.0"], cache=tmp_path)
    assert str(caught.value).endswith("no route to host")
    assert len(str(caught.value).splitlines()) < 20
    assert isinstance(caught.value, MurhoError)
