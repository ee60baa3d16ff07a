"""Faults in the engine of a service that runs in another process, switched on and off while it runs.

The process gets a `sitecustomize` module that wraps `forward` of every engine right where engines are made. Before each
call it reads a file, whose content is the fault: nothing in the product knows of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import importlib.machinery, os, sys, time
from pathlib import Path

MODULE = "murho.model.predictive.compiled_engine"
SWITCH = Path(os.environ["ENGINE_FAULT"])


def fault():
    return SWITCH.read_text() if SWITCH.exists() else ""


def faulty(engine):
    forward = engine.forward

    def wrapped(*arguments, **options):
        now = fault()
        if now == "raise":
            raise RuntimeError("a fault of the test")
        if now == "memory":
            raise MemoryError("a fault of the test")
        if now == "torch memory":
            import torch
            raise torch.OutOfMemoryError("a fault of the test")
        while fault() == "hang":
            time.sleep(0.02)
        if now.startswith("slow "):
            time.sleep(float(now.split()[1]))
        outputs = forward(*arguments, **options)
        return outputs * float("nan") if now == "nan" else outputs

    engine.forward = wrapped
    return engine


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            select = module.select_engine
            module.select_engine = lambda *given, **options: faulty(select(*given, **options))

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""


class EngineFault:
    """A switch for faults.

    Args:
        directory: Gets the module and the switch.

    Attributes:
        environment: Variables of the process.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "sitecustomize.py").write_text(CODE)
        self._switch = directory / "fault"
        path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {"PYTHONPATH": os.pathsep.join(path), "ENGINE_FAULT": str(self._switch)}

    def set(self, fault: str) -> None:
        """raise, memory, torch memory, hang, nan, or ``slow SECONDS``; empty: none."""
        written = self._switch.with_suffix(".new")
        written.write_text(fault)
        written.rename(self._switch)
