"""Mutants of good bodies by the hundred thousand: read or refused, within bounded memory, and nobody waits meanwhile.

``MUTANTS`` says how many of each format are read in a process of their own (100,000), and ``LIVE_MUTANTS`` how many are
sent to a running service (5,000).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.support import Service, serve
from tests.service.mutants import FORMS, mutants
from tests.service.support import train_checkpoint

MUTANTS = int(os.environ.get("MUTANTS", "100000"))
LIVE_MUTANTS = int(os.environ.get("LIVE_MUTANTS", "5000"))
SENDERS = 3
PATIENCE = 0.1
"""Seconds that `/healthz` may take, but for one in a hundred: the machine has other work, too."""
GROWTH = 500 * 2**20
"""Bytes that the service may take beyond what it has at the start."""


@pytest.mark.slow
@pytest.mark.timeout(300 + MUTANTS // 100)
@pytest.mark.parametrize("form", FORMS)
def test_mutants_are_read_or_refused(form: str, tmp_path: Path) -> None:
    last = tmp_path / "last"
    words = ["-m", "tests.service.mutants", form, "--count", MUTANTS, "--last-words", last]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mutant {last.read_text()}: {done.returncode}, {done.stderr[-2000:]}"
    found = json.loads(done.stdout)
    print(form, {name: value for name, value in found.items() if name != "failed"})  # noqa: T201
    assert not found["failed"], found["failed"][:5]
    assert not found["without_memory"]
    assert found["read"]


class _Watch(threading.Thread):
    """Asks for `/healthz` again and again, and notes how long it takes."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.seconds, self.over = port, list[float](), False

    def run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            while not self.over:
                begin = time.perf_counter()
                connection.request("GET", "/healthz")
                assert connection.getresponse().read()
                self.seconds.append(time.perf_counter() - begin)
                time.sleep(0.01)


def send(service: Service, form: str, first: int, count: int, faults: list[str]) -> None:
    """Send mutants one after the other, and note the numbers of those that aren't answered as they should be."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)) as connection:
        for number, mutant in enumerate(mutants(form, count, first=first), start=first):
            try:
                connection.request("POST", FORMS[form].path, mutant.body, FORMS[form].headers(mutant))
                response = connection.getresponse()
                content = response.read()
            except (http.client.HTTPException, OSError) as error:
                faults.append(f"{form} {number}: {error!r}")
                connection.close()
                continue
            if response.status not in {200, 400, 413, 422}:
                faults.append(f"{form} {number}: {response.status} {content[:300]!r}")


@pytest.mark.slow
@pytest.mark.timeout(300 + LIVE_MUTANTS)
def test_a_service_answers_mutants_and_everybody_else(tmp_path: Path) -> None:
    for name, ignored in (("cars", ()), ("numbers", ("--ignore", "Year", "--ignore", "Origin/plant"))):
        train_checkpoint(tmp_path, name, *ignored)
    with serve(tmp_path / "checkpoints", tmp_path / "log", default_model="cars", samples="4") as service:
        before = service.memory()
        faults: list[str] = []
        for form in FORMS:
            send(service, form, 0, 20, faults)  # what is imported for a format is imported now
            watch, share = _Watch(service.port), LIVE_MUTANTS // SENDERS
            watch.start()
            senders = [
                threading.Thread(target=send, args=(service, form, index * share, share, faults))
                for index in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            watch.over = True
            watch.join()
            median, most, slowest = np.quantile(watch.seconds, [0.5, 0.99, 1.0])
            grown = service.memory() - before
            print(f"{form}: healthz {median:.4f} s, {most:.4f}, {slowest:.4f}; {grown / 2**20:.0f} MiB more")  # noqa: T201
            assert service.process.poll() is None
            assert not faults, faults[:5]
            assert most < PATIENCE, (form, most)
            assert grown < GROWTH, (form, grown)
