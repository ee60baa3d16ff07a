"""Scripts that stand in for systems: they speak as `benchmarks.peers.exchange.drive` does, without any library."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import peers
from benchmarks.environments import PeerEnvironmentError
from benchmarks.systems import System

__all__ = ["ScriptSystem", "command_of", "make_package", "no_tfp", "write_script"]

SCRIPT = """
import json, os, sys
benchmark, text = sys.argv[1:]
task = json.loads(text)
if {dies!r} == "at once":
    sys.exit("out of luck")
print("a library talks")
print(json.dumps({ready}), flush=True)
for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    if {dies!r} == "later" and number == 1:
        sys.exit("lost patience")
    print(json.dumps({answer}), flush=True)
"""


def write_script(folder: Path, name: str, *, ready: str, answer: str, dies: str | None = None) -> Path:
    """Writes a script.

    Args:
        folder: Where to.
        name: Of its module.
        ready: What it says first, a Python expression that may speak of ``benchmark`` and ``task``.
        answer: What it says to each ``request``, the ``number`` of which it knows, likewise.
        dies: "at once", or "later": when it is asked for the second time.
    """
    path = folder / f"{name}.py"
    path.write_text(SCRIPT.format(ready=ready, answer=answer, dies=dies), encoding="utf-8")
    return path


def command_of(script: Path, task: str = "{}") -> list[str]:
    """What starts a script."""
    return [sys.executable, str(script), "step", task]


@dataclass(frozen=True, slots=True)
class ScriptSystem(System):
    """A system whose script is in a folder of its own."""

    folder: Path = field(kw_only=True)

    def command(self, task: str) -> list[str]:
        return command_of(self.folder / f"{self.peer.library.module}.py", task)


def make_package(root: Path) -> Path:
    """A package ``benchmarks.peers`` below a directory; what it lacks is found in the real one."""
    real = Path(peers.__file__).parent
    package = root / "benchmarks" / "peers"
    package.mkdir(parents=True)
    for directory, also in ((package.parent, real.parent), (package, real)):
        (directory / "__init__.py").write_text(f"__path__.append({str(also)!r})\n", encoding="utf-8")
    return package


def no_tfp(name: str, *_: object, **__: object) -> Path:
    """Stands in for `benchmarks.environments.environment`: each is this one, but for TFP's, which can't be made."""
    if name == "tfp":
        raise PeerEnvironmentError("no network here")
    return Path(sys.executable)
