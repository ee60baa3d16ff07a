"""Installs Murho into the environment of the Python that runs this script: PyTorch first, then the rest.

    .venv/bin/python scripts/install.py               the project and its client, editable, with development tools
    .venv/bin/python scripts/install.py --serving     the same without development tools: what `make serve` needs
    python scripts/install.py --runtime-dependencies  the packages that Murho imports, without Murho (for the image)

On a terminal one line shows what pip is doing, in place; elsewhere each step has a line. What pip says goes to
``pip.log`` in the environment. All versions come from constraints.txt. PyTorch is installed first because the package
index has the CUDA build for Linux: gigabytes that are useless without an NVIDIA GPU. Two environment variables choose
the build:

    TORCH_VARIANT      cpu (the default) or cuda
    TORCH_INDEX_URL    an index to take torch from, instead of PyTorch's own (a mirror, another CUDA version)

With --runtime-dependencies, EXTRAS names further extras, parted by commas, such as ``s3``.

The script uses the standard library only, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VARIANTS = ("cpu", "cuda")
SERVING_EXTRAS = ("charts", "compiled", "excel")
"""What `make serve` installs beside the dependencies: charts of the demo's report, fast answers, Excel tables."""
NOT_OFFERED = "No matching distribution found"  # pip, about an index without the package or connection


@dataclass(frozen=True, slots=True)
class Source:
    """One place to take torch from: its name for messages, the requirement for pip, and pip's options."""

    name: str
    requirement: str
    options: tuple[str, ...] = ()
    last_resort: bool = False  # may be a CUDA build although the CPU build is wanted


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch: its version without the local part, and its build."""

    version: str
    variant: str  # cpu or cuda


def pinned_version(package: str, constraints: str) -> str:
    """Return the pinned version of a package, from the text of a constraints file."""
    match = re.search(rf"(?m)^{re.escape(package)}==(\S+)", constraints)
    if match is None:
        raise SystemExit(f"{CONSTRAINTS} does not pin {package}: it needs a line '{package}==VERSION'.")
    return match[1]


def torch_sources(version: str, variant: str, system: str, index_url: str | None = None) -> list[Source]:
    """Return sources of torch, best first; empty if the package index has the right build.

    Args:
        version: The pinned version, such as ``2.13.0``.
        variant: ``cpu`` or ``cuda``.
        system: ``platform.system()``; the package index's default build is CUDA only for Linux.
        index_url: An index to use instead of all others.
    """
    # Only a local version (+cpu) distinguishes the builds of one version. Without it, pip could take a CUDA wheel
    # from the indexes and folders of its configuration.
    local = f"torch=={version}+cpu"
    short = ("--retries", "1", "--timeout", "15")
    if index_url is not None:
        wanted = local if variant == "cpu" and system == "Linux" else f"torch=={version}"
        return [Source(f"the index {index_url}", wanted, ("--index-url", index_url))]
    if system != "Linux":
        return []
    if variant == "cuda":
        # === matches the plain version alone; with ==, pip would prefer a +cpu wheel that it knows, as newer.
        return [Source("the package index", f"torch==={version}")]
    return [
        Source("a wheel known to pip", local, ("--no-index",)),
        Source("PyTorch's index of CPU builds", local, ("--index-url", CPU_INDEX, *short)),
        Source("the package index (CPU build)", local),
        Source("the package index", f"torch=={version}", last_resort=True),
    ]


def installed_torch() -> Torch | None:
    """Return the torch of this environment, without importing it; None if there is none."""
    importlib.invalidate_caches()
    try:
        distribution = importlib.metadata.distribution("torch")
        facts = Path(str(distribution.locate_file("torch/version.py"))).read_text(encoding="utf-8")
    except (importlib.metadata.PackageNotFoundError, OSError):
        return None
    cpu = re.search(r"(?m)^cuda\b.*=\s*None\s*$", facts)
    return Torch(distribution.version.partition("+")[0], "cpu" if cpu else "cuda")


def has_nvidia_gpu() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def say(message: str) -> None:
    """Print a message at once, so that it comes before the next output of pip."""
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def pip_install(*arguments: str) -> str | None:
    """Run ``pip install``; return None if it worked, otherwise the text of its stderr.

    The stderr is not shown at once: a source that cannot be reached is no error while there is another source.
    """
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "pip", "install", "--log", str(Path(sys.prefix) / "pip.log"), *arguments]
    # A file, not a pipe: pip would wait for ever if nobody read a full pipe.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said, encoding="utf-8") as pip:  # noqa: S603 - pip itself
            show_in_place(pip.stdout or ())
        if pip.returncode == 0:
            return None
        said.seek(0)
        return said.read().strip() or f"pip ended with status {pip.returncode}."


def show_in_place(lines: Iterable[str]) -> None:
    """Show the newest line on the terminal, over the one before, and nothing where there is no terminal."""
    if not sys.stdout.isatty():
        for _ in lines:
            pass
        return
    for line in lines:
        sys.stdout.write(f"\r\033[K  {line.strip()[: shutil.get_terminal_size().columns - 3]}")
        sys.stdout.flush()
    sys.stdout.write("\r\033[K")
    sys.stdout.flush()


def install_torch(version: str, variant: str, index_url: str | None, common: Sequence[str]) -> None:
    """Install a build of torch, unless it is installed already; ``common`` are options for pip.

    Raises:
        SystemExit: No source has the build, or a download failed; the message says what to do.
    """
    present = installed_torch()
    if present == Torch(version, variant):
        say(f"torch {version} ({variant}) is installed already.")
        return
    gpu = has_nvidia_gpu()
    for source in torch_sources(version, variant, platform.system(), index_url):
        if source.last_resort:
            if present is not None and present.version == version:
                say(f"Keeping the {present.variant} build of torch {version} that is installed.")
                return
            say(last_resort_warning(version, gpu))
        say(f"Installing torch {version} ({variant}) from {source.name} ...")
        error = pip_install("--no-deps", *common, *source.options, source.requirement)
        if error is None:
            break
        if NOT_OFFERED not in error:
            # Trying the next source after a broken download of a CPU build could install a CUDA build.
            raise SystemExit(f"{error}\n\nInstalling torch from {source.name} broke off; run the same command again.")
        say("  not available there.")
    else:
        if platform.system() == "Linux" or index_url is not None:
            raise SystemExit(nowhere_message(version, variant, index_url))
    installed = installed_torch()
    if variant == "cuda" and installed is not None and installed.variant != "cuda":
        raise SystemExit(
            f"This torch {version} is a CPU build. Name an index of CUDA builds in TORCH_INDEX_URL, such as "
            "https://download.pytorch.org/whl/cu130."
        )
    if installed is not None and installed.variant == "cpu" and gpu:
        say("This machine has an NVIDIA GPU: TORCH_VARIANT=cuda installs the build of torch that uses it.")


def last_resort_warning(version: str, gpu: bool) -> str:
    """Return the warning before torch is taken from the package index, in any build."""
    line = "!" * 96
    useless = "" if gpu else ",\nuseless on this machine, which has no NVIDIA GPU"
    return (
        f"{line}\nNo CPU build of torch {version} is available: pip knows no wheel, and there is none at\n"
        f"{CPU_INDEX}. Taking torch from the package index instead.\n"
        f"For Linux that has mostly the CUDA build. It works, but downloads about 3 GB{useless}.\n"
        "To avoid that, stop this (Ctrl-C) and name a mirror of PyTorch's CPU index in TORCH_INDEX_URL,\n"
        f"or a folder with a CPU wheel of torch in PIP_FIND_LINKS.\n{line}"
    )


def nowhere_message(version: str, variant: str, index_url: str | None) -> str:
    """Return the message if no source has a torch for this machine."""
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    place = f" at {index_url}" if index_url else ""
    return (
        f"\nNo torch {version} ({variant}) was found for {machine}{place}.\n"
        "Without a network, put its wheel into a folder and name the folder in PIP_FIND_LINKS. With one,\n"
        "see whether pip reaches its index, and whether PyTorch has wheels for this Python and machine."
    )


def install_through_constraints(*arguments: str) -> None:
    """Run ``pip install -c constraints.txt``.

    Raises:
        SystemExit: pip failed; the message starts with pip's own.
    """
    error = pip_install("--constraint", str(CONSTRAINTS), *arguments)
    if error is not None:
        raise SystemExit(
            f"{error}\n\nInstalling the packages failed; pip's message is above. If the network was the\n"
            "reason, run the same command again: installed packages stay."
        )


def chosen_extras(text: str, offered: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the extras in a text such as ``s3,excel``.

    Args:
        text: The value of EXTRAS; may be empty.
        offered: Extra → its packages. An image has the client already, so ``client`` is not an extra for it.

    Raises:
        SystemExit: One is unknown; the message names those that there are.
    """
    known = offered.keys() - {"client"}
    chosen = [extra.strip() for extra in text.split(",") if extra.strip()]
    for extra in chosen:
        if extra not in known:
            raise SystemExit(f"EXTRAS: there is no extra {extra!r}; there are: {', '.join(sorted(known))}.")
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Install torch, then the project or its runtime dependencies.

    Raises:
        SystemExit: A package could not be installed; the message says what to do.
    """
    parser = argparse.ArgumentParser(description="Install Murho into this Python's environment.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--serving", action="store_true", help="no development tools")
    choice.add_argument("--runtime-dependencies", action="store_true", help="not Murho itself, no development tools")
    options = parser.parse_args(arguments)
    variant = os.environ.get("TORCH_VARIANT") or "cpu"
    if variant not in VARIANTS:
        raise SystemExit(f"TORCH_VARIANT is {variant!r}; it is one of {', '.join(VARIANTS)}.")
    if variant == "cuda" and platform.system() == "Darwin":
        raise SystemExit("There is no CUDA on macOS: leave TORCH_VARIANT out.")

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # A mistake is said before gigabytes are downloaded.
    offered = project["project"]["optional-dependencies"]
    extras = chosen_extras(os.environ.get("EXTRAS", ""), offered) if options.runtime_dependencies else []
    version = pinned_version("torch", CONSTRAINTS.read_text(encoding="utf-8"))
    # The files of an image cannot be written later, so all modules are compiled now. Elsewhere, Python compiles only
    # the modules that it imports, which saves half a minute here.
    common = [] if options.runtime_dependencies else ["--no-compile"]
    install_torch(version, variant, os.environ.get("TORCH_INDEX_URL") or None, common)
    what = "what serving needs" if options.serving or options.runtime_dependencies else "all, with development tools"
    say(f"Installing the other packages ({what}) ...")
    # The build tools are installed with the constraints too, so the build needs no environment of its own.
    install_through_constraints("--quiet", *common, *project["build-system"]["requires"])
    if options.runtime_dependencies:
        client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text(encoding="utf-8"))
        wanted = [*project["project"]["dependencies"], *client["project"]["dependencies"]]
        wanted += [package for extra in ("compiled", *extras) for package in offered[extra]]
        install_through_constraints(*common, *wanted)
    else:
        packages = [f"murho[{','.join(SERVING_EXTRAS)}]"] if options.serving else project["dependency-groups"]["dev"]
        # Murho itself is here: pip must not look for it in an index.
        packages = [f"--editable={ROOT}{each[5:]}" if each.startswith("murho[") else each for each in packages]
        install_through_constraints(*common, "--no-build-isolation", *packages, f"--editable={ROOT / 'client'}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nInterrupted; run the same command again to continue.") from None
