"""What happens to the directory of checkpoints under load: answers go on, and stay right."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.support import serve
from tests.e2e.traffic import REFUSALS, Traffic, asks, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior

NOTICED = 1.0
"""Seconds in which a service that watches its directory would notice a change."""
PATH = "/models/cars/predict"


def publish(trained: Path, place: Path, version: str, *, truncated: bool = False) -> None:
    """Puts a copy of the checkpoint in place as a new version, in one step."""
    hidden = place.parent / f"hidden-{version}"
    shutil.copytree(trained, hidden)
    if truncated:
        tensors = hidden / "model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-100])
    hidden.rename(place / "cars" / version)


def test_nothing_that_happens_to_the_files_changes_an_answer(
    own: Path, trained: Path, posterior: Posterior, tmp_path: Path
) -> None:
    known, fresh = asks(posterior, 30, PATH), asks(posterior, 30, PATH, seed=1)
    with serve(own, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        with Traffic(service.port, known) as traffic:
            traffic.wait_for(20)
            publish(trained, own, "2")
            time.sleep(NOTICED)
            traffic.wait_for(20)
            publish(trained, own, "3", truncated=True)
            time.sleep(NOTICED)
            traffic.wait_for(20)
            assert service.client.get("/models/cars").json()["version"] != "3"
            for file in sorted(path for path in own.glob("cars/**/*") if path.is_file()):
                with file.open("r+b") as opened:
                    opened.truncate(10)
            traffic.requests = [*known, *fresh]  # with draws that are not made yet
            time.sleep(NOTICED)
            traffic.wait_for(40)
        traffic.require()
        # A service that watches may let a deleted model go: then it says so with 404.
        with Traffic(service.port, known, refusals=REFUSALS | {404}) as traffic:
            traffic.wait_for(20)
            shutil.rmtree(own / "cars")
            time.sleep(NOTICED)
        traffic.require("refused")
        assert service.client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_a_new_version_is_served_and_a_truncated_one_refused_by_name(own: Path, trained: Path, tmp_path: Path) -> None:
    with serve(own, tmp_path / "log") as service:
        service.wait_for_line("(Ready: )")
        publish(trained, own, "2")
        wait_until(lambda: service.client.get("/models/cars").json()["version"] == "2")
        publish(trained, own, "3", truncated=True)

        def refused() -> list[tuple[str, str]]:
            return [(item["name"], item["version"]) for item in service.client.get("/models").json()["refused"]]

        wait_until(lambda: refused() == [("cars", "3")])
        assert service.client.get("/models/cars").json()["version"] == "2"
