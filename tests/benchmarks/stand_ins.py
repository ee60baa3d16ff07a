"""Scripts that stand in for systems: what their `drive` does, with the standard library alone."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.environments import PeerEnvironmentError

__all__ = ["make_package", "no_tfp", "write_script"]

SCRIPT = """
import json, os, sys
task = json.loads(sys.argv[1])
if {dies!r} == "at once":
    sys.exit("out of luck")
print("a library talks")
print(json.dumps({ready}), flush=True)
for number, line in enumerate(sys.stdin):
    if {dies!r} == "later" and number == 1:
        sys.exit("lost patience")
    print(json.dumps({answer}), flush=True)
"""


def make_package(root: Path, name: str) -> Path:
    """An empty package ``benchmarks.NAME`` below a directory, found before ours wherever else that is to be found."""
    package = root / "benchmarks" / name
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").touch()
    return package


def write_script(package: Path, name: str, *, ready: str, answer: str, dies: str | None = None) -> None:
    """Writes a script.

    Args:
        package: Its directory.
        name: Of its module.
        ready: What it says first, a Python expression that may speak of ``task``.
        answer: What it says to each ``line``, likewise.
        dies: "at once", or "later": when it is asked for the second time.
    """
    text = SCRIPT.format(ready=ready, answer=answer, dies=dies)
    (package / f"{name}.py").write_text(text, encoding="utf-8")


def no_tfp(name: str, *_: object, **__: object) -> Path:
    """Stands in for `benchmarks.environments.environment`: each is this one, but for TFP's, which can't be made."""
    if name == "step-tfp":
        raise PeerEnvironmentError("no network here")
    return Path(sys.executable)
