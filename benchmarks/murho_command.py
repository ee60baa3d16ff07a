"""Runs the `murho` command with the given arguments, then prints the resources of the process as a line of JSON.

``peak``: peak resident memory, bytes; ``processor``: processor seconds of all threads, in user and system mode, imports
included; ``modules``: names of the imported modules.
"""

from __future__ import annotations

import sys
import time

import orjson

from benchmarks.peers.exchange import peak_memory
from murho.command_line import main

__all__: list[str] = []

if __name__ == "__main__":
    try:
        main()
    finally:
        resources = {"peak": peak_memory(), "processor": time.process_time(), "modules": sorted(sys.modules)}
        sys.stdout.write(orjson.dumps(resources).decode() + "\n")
