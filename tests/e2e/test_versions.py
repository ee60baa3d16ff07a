"""Versions come, go and break under a running service: no request is lost, and none is answered wrongly."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from murho.model.checkpoint.checkpoint import read_stored
from murho.model.checkpoint.posterior import Posterior
from tests.e2e.support import Service, serve
from tests.e2e.traffic import OneRow, offline, wait_until
from tests.service.support import ROW
from tests.support import made_once

VARIANTS = 2


@pytest.fixture(scope="module")
def variants(tiny_cars: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints that differ in their answers."""

    def make(directory: Path) -> None:
        stored = read_stored(tiny_cars / "cars" / "1")
        spec, tensors = stored.spec, stored.tensors
        for number in range(VARIANTS):
            moved = replace(spec, target=replace(spec.target, location=spec.target.location + 100.0 * number))
            Posterior(moved, tensors).save(directory / "variants", "cars")

    root = made_once(tmp_path_factory, "car versions", make)
    return [root / "variants" / "cars" / str(number + 1) for number in range(VARIANTS)]


@pytest.fixture(scope="module")
def expected(variants: list[Path]) -> Callable[[str], float]:
    """Return the mean of `ROW` that a version gives."""
    means = [float(offline(Posterior.load(variant), {"inputs": [ROW]}).mean[0]) for variant in variants]
    return lambda version: means[int(version) % VARIANTS]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, variants: list[Path]) -> Path:
    """Return a directory of checkpoints with version 1 of ``cars``."""
    directory = tmp_path_factory.mktemp("versions") / "checkpoints"
    publish(directory, variants, 1)
    return directory


@pytest.fixture(scope="module")
def service(root: Path) -> Iterator[Service]:
    """Return a service for all tests, each with a name of its own: starting one takes seconds."""
    with serve(root, root.parent / "log", watch_seconds="0.1") as service:
        yield service


def publish(root: Path, variants: list[Path], version: int, name: str = "cars") -> Path:
    """Put a version in place as a writer does: all of it at once."""
    home = root / name
    home.mkdir(parents=True, exist_ok=True)
    hidden = home / f".writing-{version}"
    shutil.copytree(variants[version % VARIANTS], hidden)
    hidden.rename(home / str(version))
    return home / str(version)


def listed(service: Service) -> dict[str, Any]:
    response = service.client.get("/models")
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def version_of(service: Service, name: str = "cars") -> str | None:
    return next((model["version"] for model in listed(service)["models"] if model["name"] == name), None)


def refused(service: Service, name: str) -> dict[str, str]:
    return {item["version"]: item["reason"] for item in listed(service)["refused"] if item["name"] == name}


def reload_under_load(
    service: Service, root: Path, variants: list[Path], expected: Callable[[str], float], versions: range
) -> tuple[OneRow, list[int]]:
    """Publish one version after the other under load and remove the one before; return memory after each."""
    name, memory = f"wagons-{len(versions)}", []
    publish(root, variants, versions[0] - 1, name)
    wait_until(lambda: version_of(service, name) is not None)
    with OneRow(service.address, name, ROW, expected) as load:
        wait_until(lambda: bool(load.versions))
        for version in versions:
            publish(root, variants, version, name)
            wait_until(lambda: version_of(service, name) == str(version))  # noqa: B023 - it ends before the next version
            shutil.rmtree(root / name / str(version - 1))
            memory.append(service.memory())
        wait_until(lambda: str(versions[-1]) in load.versions)
    return load, memory


def test_three_new_versions_under_load_lose_no_request(
    service: Service, root: Path, variants: list[Path], expected: Callable[[str], float]
) -> None:
    load, _ = reload_under_load(service, root, variants, expected, range(2, 5))
    assert load.versions == {"1", "2", "3", "4"}
    assert "Traceback" not in service.log()


@pytest.mark.slow
def test_a_hundred_new_versions_under_load_lose_no_request_and_keep_no_memory(
    service: Service, root: Path, variants: list[Path], expected: Callable[[str], float]
) -> None:
    load, memory = reload_under_load(service, root, variants, expected, range(2, 102))
    assert len(load.versions) >= 95  # a version may be replaced before a client met it
    early, late = sum(memory[10:20]) / 10, sum(memory[-10:]) / 10
    assert late < 1.05 * early
    assert "Traceback" not in service.log()


def test_a_hangup_acts_at_once_and_loads_nothing_that_was_unloaded(tmp_path: Path, variants: list[Path]) -> None:
    root = tmp_path / "checkpoints"
    publish(root, variants, 1)
    with serve(root, tmp_path / "log", watch_seconds="0") as service:
        publish(root, variants, 2)
        time.sleep(0.3)
        assert version_of(service) == "1"
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: version_of(service) == "2")
        assert service.client.post("/models/cars/unload").json()["unloaded"] == ["2"]
        service.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert listed(service)["models"] == []
        assert service.stop() == 0
