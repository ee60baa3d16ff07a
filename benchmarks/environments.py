"""Virtual environments for what Murho is compared with: made once, pinned, and never Murho's own.

A peer may want other versions of the same libraries, or dozens that Murho has no use for. So each gets an
environment of its own below a cache directory, and its part of a benchmark runs there in a process of its own.
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
"""Written last: what is in the environment, and that all of it is."""
INSTALLED = "installed.txt"
"""What pip made of the requirements, with what they need in turn: ``pip freeze``."""
LINES_OF_PIP = 15
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[^=\s*]+")
TORCH = re.compile(r"torch==(\S+)")


class PeerEnvironmentError(MurhoError):
    """A peer's environment can't be made; the message ends with pip's last lines."""


def environment(name: str, requirements: Sequence[str], *, cache: Path = DEFAULT_CACHE) -> Path:
    """The Python of a virtual environment with just these packages; makes it when it is not there.

    Nothing is installed when the stamp of an earlier call lists the same requirements for the same Python.
    Otherwise the directory is removed and made anew. Two processes must not make the same one at a time.

    Args:
        name: Of the environment, a directory below ``cache``.
        requirements: Each pinned, as ``package==version``. A ``torch`` among them is installed first, on Linux in
            its CPU build where there is one. Empty: an environment without packages, and without pip.
        cache: Where environments are kept.

    Returns:
        Path of its Python.

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
        raise PeerEnvironmentError(
            f"{directory} can't be made: {error.strerror or error}; give --cache DIR"
        ) from error
    without_pip = [] if requirements else ["--without-pip"]
    _run(name, [sys.executable, "-m", "venv", *without_pip, str(directory)])
    if requirements:
        _install(name, python, requirements)
        frozen = _run(name, [str(python), "-m", "pip", "freeze"])
        (directory / INSTALLED).write_text(frozen, encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def python_of(directory: Path) -> Path:
    """Where a virtual environment keeps its Python."""
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _install(name: str, python: Path, requirements: Sequence[str]) -> None:
    print(f"environment {name}: installing {', '.join(requirements)}", file=sys.stderr, flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    for requirement in requirements:
        if match := TORCH.fullmatch(requirement):
            _install_torch(name, pip, match[1])
    _run(name, [*pip, *requirements])


def _install_torch(name: str, pip: Sequence[str], version: str) -> None:
    """The CPU build where it can be had: the package index serves Linux gigabytes for CUDA."""
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
    said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LINES_OF_PIP:])
    raise PeerEnvironmentError(
        f"environment {name} can't be made: {' '.join(command[1:4])} ended with status {done.returncode}. "
        f"It needs the network once; what it said last:\n{said}"
    )
