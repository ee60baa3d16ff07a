"""Starts `murho` in a process of its own: as a user does, or services from a process that has the imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import httpx

from tests.e2e import warm_start
from tests.e2e.warm_start import WarmProcess

MURHO = Path(sys.executable).with_name("murho")


def murho(
    *arguments: object, cwd: Path | None = None, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with more variables in its environment, and check its exit code."""
    command = [str(MURHO), *map(str, arguments)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


class Service:
    """A running service.

    Attributes:
        process: Its process.
        address: Its URL.
        client: A client of it.
    """

    def __init__(self, process: subprocess.Popen[bytes] | WarmProcess, log: Path) -> None:
        self.process = process
        self._log = log
        self.address = self.wait_for_line(r" on (https?://\S+),")
        self.client = httpx.Client(base_url=self.address, timeout=60)

    def log(self) -> str:
        return self._log.read_text()

    def wait_for_line(self, pattern: str) -> str:
        for _ in range(4000):
            found = re.search(pattern, self.log())
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{pattern} is not in the log: {self.log()}")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def memory(self) -> int:
        """Resident memory of its processes, bytes; a page that n of them share counts 1/n."""
        total = 0
        for process in (self.process.pid, *self.children()):
            with suppress(OSError):  # it has ended
                memory = Path(f"/proc/{process}/smaps_rollup").read_text()
                total += 1024 * int(memory.partition("\nPss:")[2].split()[0])
        return total

    def children(self) -> list[int]:
        """Return the engine, first, and the front ends."""
        return list(map(int, Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def serve(
    directory: Path | str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    fresh: bool = False,
    ready: bool = True,
    **settings: str,
) -> Iterator[Service]:
    """Start a service on a free port, with settings in the environment, and end it at the end.

    Args:
        directory: Of the checkpoints; a URL is a text.
        log: Gets its stderr.
        environment: More variables.
        fresh: Start it as a user does, importing everything; else from a process that has (`tests.e2e.warm_start`).
        ready: Wait until it is ready.
        settings: Settings by name, in small letters.
    """
    words = ["serve", "--checkpoints", str(directory), "--port", "0", "--device", "cpu"]
    variables = {**os.environ, "MURHO_DRAIN_DELAY": "0.3", **(environment or {})}
    variables |= {f"MURHO_{name.upper()}": value for name, value in settings.items()}
    with log.open("wb") as file, _started(words, file, variables, fresh=fresh) as process:
        service = None
        try:
            service = Service(process, log)
            if ready:
                service.wait_for_line("(Ready: )")
            yield service
        finally:
            if service is not None:
                service.client.close()
            process.kill()


def _started(
    words: list[str], log: BinaryIO, variables: Mapping[str, str], *, fresh: bool
) -> subprocess.Popen[bytes] | WarmProcess:
    if fresh or not warm_start.POSSIBLE:
        return subprocess.Popen([MURHO, *words], stderr=log, env=variables)
    return WarmProcess(words, log.fileno(), variables)
