"""A process that imports the modules named on stdin, a JSON list, and prints its memory as a line of JSON.

``peak``: peak resident memory, bytes; ``missed``: names of modules that can't be imported on their own.
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
        except Exception:  # a module that another one creates may raise anything
            missed.append(name)
    sys.stdout.write(orjson.dumps({"peak": peak_memory(), "missed": missed}).decode() + "\n")
