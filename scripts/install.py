"""Install Murho into the environment of the Python that runs this: PyTorch first, then the rest.

    .venv/bin/python scripts/install.py               the project, editable, with its development tools
    python scripts/install.py --runtime-dependencies  what Murho needs to run, without Murho (for the image)

Everything goes through constraints.txt. PyTorch comes first because the package index serves Linux its CUDA
build, gigabytes that a machine without an NVIDIA GPU has no use for. Two environment variables choose:

    TORCH_VARIANT      cpu (the default) or cuda
    TORCH_INDEX_URL    an index to take torch from, instead of PyTorch's own (a mirror, another CUDA version)

Standard library only: it runs before anything is installed.
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
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CPU_INDEX", "Source", "Torch", "pinned_version", "torch_sources"]

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VARIANTS = ("cpu", "cuda")
NOT_OFFERED = (
    "No matching distribution found"  # what pip says of an index without the package, or out of reach
)


@dataclass(frozen=True, slots=True)
class Source:
    """One place to take torch from: how it is called, what to ask pip for, and pip's options."""

    name: str
    requirement: str
    options: tuple[str, ...] = ()
    last_resort: bool = False  # may be a CUDA build that nobody asked for


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch that is installed: its version without the local part, and which build it is."""

    version: str
    variant: str  # cpu or cuda


def pinned_version(package: str, constraints: str) -> str:
    """The version that a constraints file (its text) pins a package to."""
    match = re.search(rf"(?m)^{re.escape(package)}==(\S+)", constraints)
    if match is None:
        raise SystemExit(f"{CONSTRAINTS} does not pin {package}: it needs a line '{package}==VERSION'.")
    return match[1]


def torch_sources(version: str, variant: str, system: str, index_url: str | None = None) -> list[Source]:
    """Where to take torch from, best first; empty where the package index's own choice is right.

    Args:
        version: The pinned version, such as ``2.13.0``.
        variant: ``cpu`` or ``cuda``.
        system: ``platform.system()``; only Linux has a CUDA build as the package index's choice.
        index_url: An index to use instead of all others.
    """
    # Only a local version (+cpu) tells the builds of one version apart, and pip looks into the indexes and
    # folders of its configuration too: without it, a CUDA wheel there would be as good to pip.
    local = f"torch=={version}+cpu"
    short = ("--retries", "1", "--timeout", "15")
    if index_url is not None:
        wanted = local if variant == "cpu" and system == "Linux" else f"torch=={version}"
        return [Source(f"the index {index_url}", wanted, ("--index-url", index_url))]
    if system != "Linux":
        return []
    if variant == "cuda":
        # === takes the plain version alone: with ==, a +cpu wheel known to pip would be the newer one.
        return [Source("the package index", f"torch==={version}")]
    return [
        Source("a wheel known to pip", local, ("--no-index",)),
        Source("PyTorch's index of CPU builds", local, ("--index-url", CPU_INDEX, *short)),
        Source("the package index (CPU build)", local),
        Source("the package index", f"torch=={version}", last_resort=True),
    ]


def installed_torch() -> Torch | None:
    """The torch of this environment, found without importing it."""
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
    """Tell the person at the terminal, before pip speaks next."""
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def pip_install(*arguments: str) -> str | None:
    """Run ``pip install``; None when it worked, otherwise what it said on its error stream.

    The error stream is held back: a source that cannot be reached is no error while there is another.
    """
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "pip", "install", *arguments]
    result = subprocess.run(command, env=environment, stderr=subprocess.PIPE, encoding="utf-8", check=False)  # noqa: S603 - pip itself
    if result.returncode == 0:
        return None
    return result.stderr.strip() or f"pip ended with status {result.returncode}."


def install_torch(version: str, variant: str, index_url: str | None, common: Sequence[str]) -> None:
    """Install the build of torch that was asked for, unless it is there; ``common`` are pip's options.

    Raises:
        SystemExit: No source had it, or a download broke off; the message says what to do.
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
        said = pip_install("--no-deps", *common, *source.options, source.requirement)
        if said is None:
            break
        if NOT_OFFERED not in said:
            # Falling through to the next source would turn a broken download of a CPU build into a CUDA one.
            raise SystemExit(
                f"{said}\n\nInstalling torch from {source.name} broke off; run the same command again."
            )
        say("  not available there.")
    else:
        if platform.system() == "Linux" or index_url is not None:
            raise SystemExit(nowhere_message(version, variant, index_url))
    found = installed_torch()
    if variant == "cuda" and found is not None and found.variant != "cuda":
        raise SystemExit(
            f"This torch {version} is a CPU build. Name an index of CUDA builds in TORCH_INDEX_URL, such as "
            "https://download.pytorch.org/whl/cu130."
        )
    if found is not None and found.variant == "cpu" and gpu:
        say("This machine has an NVIDIA GPU: TORCH_VARIANT=cuda installs the build of torch that uses it.")


def last_resort_warning(version: str, gpu: bool) -> str:
    """What to say before torch comes from the package index, whatever build that has."""
    line = "!" * 96
    useless = "" if gpu else ",\nof no use to this machine, which has no NVIDIA GPU"
    return (
        f"{line}\nNo CPU build of torch {version} can be had: pip knows no wheel, and there is nothing at\n"
        f"{CPU_INDEX}. Taking torch from the package index instead.\n"
        f"For Linux that has mostly the CUDA build. It works, but downloads about 3 GB{useless}.\n"
        "To avoid that, stop this (Ctrl-C) and name a mirror of PyTorch's CPU index in TORCH_INDEX_URL,\n"
        f"or a folder with a CPU wheel of torch in PIP_FIND_LINKS.\n{line}"
    )


def nowhere_message(version: str, variant: str, index_url: str | None) -> str:
    """What to say when no source has a torch for this machine."""
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    place = f" at {index_url}" if index_url else ""
    return (
        f"\nNo torch {version} ({variant}) was found for {machine}{place}.\n"
        "Without a network, put its wheel into a folder and name the folder in PIP_FIND_LINKS. With one,\n"
        "see whether pip reaches its index, and whether PyTorch has wheels for this Python and machine."
    )


def install_through_constraints(*arguments: str) -> None:
    """``pip install -c constraints.txt``; ends with pip's own words when it fails.

    Raises:
        SystemExit: pip failed.
    """
    said = pip_install("--constraint", str(CONSTRAINTS), *arguments)
    if said is not None:
        raise SystemExit(
            f"{said}\n\nInstalling the packages failed (above, in pip's words). If the network was the\n"
            "reason, run the same command again: what is installed stays."
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Install torch, then what else is asked for.

    Raises:
        SystemExit: Something could not be installed; the message is for people.
    """
    parser = argparse.ArgumentParser(description="Install Murho into this Python's environment.")
    parser.add_argument(
        "--runtime-dependencies", action="store_true", help="not Murho itself, no development tools"
    )
    options = parser.parse_args(arguments)
    variant = os.environ.get("TORCH_VARIANT") or "cpu"
    if variant not in VARIANTS:
        raise SystemExit(f"TORCH_VARIANT is {variant!r}; it is one of {', '.join(VARIANTS)}.")
    if variant == "cuda" and platform.system() == "Darwin":
        raise SystemExit("There is no CUDA on macOS: leave TORCH_VARIANT out.")

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = pinned_version("torch", CONSTRAINTS.read_text(encoding="utf-8"))
    # An image compiles everything now, as its files cannot be written later; elsewhere, Python compiles what it
    # imports, which is less by half a minute.
    common = [] if options.runtime_dependencies else ["--no-compile"]
    install_torch(version, variant, os.environ.get("TORCH_INDEX_URL") or None, common)
    # The build tools come through the constraints as well, so the build needs no environment of its own.
    install_through_constraints("--quiet", *common, *project["build-system"]["requires"])
    if options.runtime_dependencies:
        extras = project["project"]["optional-dependencies"]
        install_through_constraints(*common, *project["project"]["dependencies"], *extras["compiled"])
    else:
        install_through_constraints(*common, "--no-build-isolation", "--editable", f"{ROOT}[dev]")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nInterrupted; the same command goes on from here.") from None
