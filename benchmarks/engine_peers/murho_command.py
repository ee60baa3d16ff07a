"""Runs the `murho` command with the arguments given, then says in a line of JSON what memory it took at most."""

from __future__ import annotations

import sys

import orjson

from benchmarks.step_peers.exchange import peak_memory
from murho import main

__all__: list[str] = []

if __name__ == "__main__":
    try:
        main()
    finally:
        sys.stdout.write(orjson.dumps({"peak": peak_memory()}).decode() + "\n")
