"""Runs the `murho` command with the given arguments, then prints the resources of the process as a line of JSON.

``peak``: peak resident memory, bytes; ``processor``: processor seconds of all threads, in user and system mode, imports
included; ``modules``: names of the imported modules. With ``--bare`` it imports the modules named on stdin, a JSON
list, as far as they can be imported on their own, and does nothing else.
"""

from __future__ import annotations

import importlib
import sys
import time
from contextlib import suppress

import orjson

from benchmarks.peers.exchange import peak_memory

__all__: list[str] = []

if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--bare"]:
            for name in orjson.loads(sys.stdin.buffer.read()):
                with suppress(Exception):  # a module that another one creates may raise anything
                    importlib.import_module(name)
        else:
            from murho.command_line import main

            main()
    finally:
        resources = {"peak": peak_memory(), "processor": time.process_time(), "modules": sorted(sys.modules)}
        sys.stdout.write("\n" + orjson.dumps(resources).decode() + "\n")
