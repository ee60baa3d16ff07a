"""Runs the `murho` command with the arguments given, then says in a line of JSON what the process took.

``peak``: the most memory it had resident, bytes; ``processor``: seconds of all its threads, in user and system mode,
imports included; ``modules``: names of all that it had imported.
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
        said = {"peak": peak_memory(), "processor": time.process_time(), "modules": sorted(sys.modules)}
        sys.stdout.write(orjson.dumps(said).decode() + "\n")
