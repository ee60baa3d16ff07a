"""A log that can't be written, because the disk is full, stops no answer."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from benchmarks.service_parts.servers import free_port
from tests.e2e.support import MURHO
from tests.e2e.traffic import Traffic, asks, wait_until

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from tests.e2e.support import Service


def test_a_disk_that_fills_up_stops_no_answer(busy: Service, posterior: Posterior) -> None:
    process, limit = busy.process.pid, resource.RLIMIT_FSIZE
    # Every write to the log fails, as on a full disk.
    resource.prlimit(process, limit, (len(busy.log().encode()), resource.RLIM_INFINITY))
    try:
        with Traffic(busy.port, asks(posterior, 20), threads=3) as traffic:
            traffic.wait_for(30)
    finally:
        resource.prlimit(process, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    traffic.require()


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_start_stops_no_answer(own: Path, posterior: Posterior) -> None:
    port = free_port()
    command = [str(MURHO), "serve", "--checkpoints", str(own), "--port", str(port), "--device", "cpu"]
    with Path("/dev/full").open("wb") as full, subprocess.Popen(command, stderr=full) as process:
        try:

            def ready() -> bool:
                assert process.poll() is None, "the service has ended"
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(ready)
            with Traffic(port, asks(posterior, 20), threads=3) as traffic:
                traffic.wait_for(20)
            process.terminate()
            process.wait(30)
        finally:
            process.kill()
    traffic.require()
