"""Virtual environments of the peers: made once, with pinned packages, apart from Murho's own environment.

A peer may need other versions of the same libraries, or dozens of other libraries. So each peer has an environment of
its own below a cache directory, and its part of a benchmark runs there in a process of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.errors import MurhoError, OptionError
from scripts.install import torch_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_CACHE", "PeerEnvironmentError", "environment", "python_of"]

DEFAULT_CACHE = Path("~/.cache/murho-benchmarks").expanduser()
STAMP = "requirements.stamp"
"""File with the requirements; written last, so that it marks a complete environment."""
INSTALLED = "installed.txt"
"""File with all installed packages, dependencies included: the output of ``pip freeze``."""
LINES_OF_PIP = 15
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[^=\s*]+")
TORCH = re.compile(r"torch==(\S+)")


class PeerEnvironmentError(MurhoError):
    """A peer's environment can't be made; the message ends with pip's last lines."""


def environment(name: str, requirements: Sequence[str], *, cache: Path = DEFAULT_CACHE) -> Path:
    """The Python of a virtual environment with the given packages; makes the environment if it is missing.

    Nothing is installed if the stamp of an earlier call lists the same requirements for the same Python. Otherwise the
    directory is removed and made again. Two processes must not make the same environment at the same time.

    Args:
        name: Name of the environment, a directory below ``cache``.
        requirements: Pinned packages, as ``package==version``. ``torch`` is installed first, on Linux in its CPU build
            if there is one. Without requirements, the environment has no packages and no pip.
        cache: Directory of the environments.

    Returns:
        Path of the environment's Python.

    Raises:
        OptionError: The name or a requirement is not of the expected form.
        PeerEnvironmentError: The environment can't be made, for example without a network.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise OptionError(f"{name!r} is no name for an environment: use letters, digits, '.', '_' and '-'")
    for requirement in requirements:
        if not PINNED.fullmatch(requirement):
            raise OptionError(f"environment {name}: {requirement!r} is not pinned: write package==version")
    directory = cache.expanduser() / name
    python, stamp = python_of(directory), directory / STAMP
    wanted = "\n".join([f"python {platform.python_version()}", *sorted(requirements)]) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PeerEnvironmentError(f"{directory} can't be made: {error.strerror or error}; give --cache DIR") from error
    without_pip = [] if requirements else ["--without-pip"]
    _run(name, [sys.executable, "-m", "venv", *without_pip, str(directory)])
    if requirements:
        _install(name, python, requirements)
        frozen = _run(name, [str(python), "-m", "pip", "freeze"])
        (directory / INSTALLED).write_text(frozen, encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def python_of(directory: Path) -> Path:
    """The path of a virtual environment's Python."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _install(name: str, python: Path, requirements: Sequence[str]) -> None:
    print(f"environment {name}: installing {', '.join(requirements)}", file=sys.stderr, flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    for requirement in requirements:
        if match := TORCH.fullmatch(requirement):
            _install_torch(name, pip, match[1])
    _run(name, [*pip, *requirements])


def _install_torch(name: str, pip: Sequence[str], version: str) -> None:
    """Installs the CPU build if it is available: the package index's own build for Linux has gigabytes for CUDA."""
    sources = torch_sources(version, "cpu", platform.system(), os.environ.get("TORCH_INDEX_URL"))
    for number, source in enumerate(sources, start=1):
        try:
            _run(name, [*pip, *source.options, source.requirement])
        except PeerEnvironmentError:
            if number == len(sources):
                raise
        else:
            return


def _run(name: str, command: Sequence[str]) -> str:
    variables = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, encoding="utf-8", check=False)  # noqa: S603 - pip and venv
    if done.returncode == 0:
        return done.stdout
    last_lines = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LINES_OF_PIP:])
    raise PeerEnvironmentError(
        f"environment {name} can't be made: {' '.join(command[1:4])} ended with status {done.returncode}. "
        f"It needs the network once; its last lines:\n{last_lines}"
    )
