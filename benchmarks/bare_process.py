"""Imports the modules that stdin names, a JSON list, then says in a line of JSON what memory that took.

``peak``: the most that it had resident, bytes; ``missed``: names that can't be imported by themselves.
"""

from __future__ import annotations

import importlib
import sys

import orjson

from benchmarks.peers.exchange import peak_memory

__all__: list[str] = []

if __name__ == "__main__":
    missed = []
    for name in orjson.loads(sys.stdin.buffer.read()):
        try:
            importlib.import_module(name)
        except Exception:  # whatever is raised by a module that another one has made
            missed.append(name)
    sys.stdout.write(orjson.dumps({"peak": peak_memory(), "missed": missed}).decode() + "\n")
