"""What happens to the directory of checkpoints under load: answers go on, and stay right."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.support import Service, serve
from tests.e2e.traffic import REFUSALS, Traffic, asks, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from murho.model.posterior.posterior import Posterior

NOTICED = 1.0
"""Seconds in which a service that watches its directory would notice a change."""
PATH = "/models/cars/predict"


@pytest.fixture(scope="module")
def place(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of checkpoints that these tests damage one after the other."""
    root = tmp_path_factory.mktemp("damaged") / "checkpoints"
    shutil.copytree(trained, root / "cars" / "1")
    return root


@pytest.fixture(scope="module")
def service(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(place, tmp_path_factory.mktemp("log") / "log") as service:
        service.wait_for_line("(Ready: )")
        yield service


def publish(trained: Path, place: Path, version: str, *, truncated: bool = False) -> Path:
    """Puts a copy of the checkpoint in place as a new version, in one step."""
    hidden = place.parent / f"hidden-{version}"
    shutil.copytree(trained, hidden)
    if truncated:
        tensors = hidden / "model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-100])
    return hidden.rename(place / "cars" / version)


def test_a_new_version_under_load_loses_no_request(
    service: Service, trained: Path, place: Path, posterior: Posterior
) -> None:
    with Traffic(service.port, asks(posterior, 30, PATH)) as traffic:
        traffic.wait_for(20)
        publish(trained, place, "2")
        time.sleep(NOTICED)
        traffic.wait_for(20)
    traffic.require()


@pytest.mark.xfail(strict=False, reason="the directory is not watched yet")
def test_a_new_version_is_served(service: Service, trained: Path, place: Path) -> None:
    if not (place / "cars" / "2").exists():
        publish(trained, place, "2")
    wait_until(lambda: service.client.get("/models/cars").json()["version"] == "2", seconds=10.0)


def test_a_truncated_new_version_leaves_the_old_one_serving(
    service: Service, trained: Path, place: Path, posterior: Posterior
) -> None:
    with Traffic(service.port, asks(posterior, 30, PATH)) as traffic:
        traffic.wait_for(20)
        publish(trained, place, "3", truncated=True)
        time.sleep(NOTICED)
        traffic.wait_for(20)
    traffic.require()
    assert service.client.get("/models/cars").json()["version"] != "3"


@pytest.mark.xfail(strict=False, reason="the directory is not watched yet")
def test_a_truncated_new_version_is_refused_by_name(service: Service, trained: Path, place: Path) -> None:
    if not (place / "cars" / "3").exists():
        publish(trained, place, "3", truncated=True)
    listed = [("cars", "3")]
    wait_until(
        lambda: listed == [(item["name"], item["version"]) for item in service.client.get("/models").json()["refused"]],
        seconds=10.0,
    )


def test_files_that_shrink_under_the_service_change_no_answer(
    service: Service, place: Path, posterior: Posterior
) -> None:
    requests = asks(posterior, 30, PATH)
    fresh = asks(posterior, 30, PATH, seed=1)  # with draws that are not made yet
    with Traffic(service.port, requests) as traffic:
        traffic.wait_for(20)
        for file in sorted(place.glob("cars/[12]/*")):
            with file.open("r+b") as opened:
                opened.truncate(10)
        traffic.requests = [*requests, *fresh]
        time.sleep(NOTICED)
        traffic.wait_for(40)
    traffic.require()


def test_a_deleted_directory_changes_no_answer(service: Service, place: Path, posterior: Posterior) -> None:
    # A service that watches may let a deleted model go: then it says so with 404.
    with Traffic(service.port, asks(posterior, 30, PATH), refusals=REFUSALS | {404}) as traffic:
        traffic.wait_for(20)
        shutil.rmtree(place / "cars")
        time.sleep(NOTICED)
    traffic.require("refused")
    assert service.client.get("/healthz").status_code == 200
