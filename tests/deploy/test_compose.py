"""docker-compose.yml: what its variables make of it, and what it refuses."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text()
KEYS = f"shop:sha256:{'0' * 64}"


def composed(**variables: str) -> dict[str, Any]:
    """Return the services with variables filled in: by a shell, whose `${A:-b}` and `${A:+b}` are those of compose."""
    script = f"cat <<EOF\n{TEXT.replace('$$', '@@').replace('`', '')}\nEOF\n"
    text = subprocess.run(["sh", "-uc", script], env=variables, check=True, capture_output=True, text=True).stdout
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


SERVERS = ("murho", "murho-gpu", "murho-store")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, ""),
        ({"MURHO_PUBLISH": "127.0.0.1:9000", "MURHO_GPU_PUBLISH": "[::1]:9001"}, ""),
        ({"MURHO_PUBLISH": "8000", "MURHO_API_KEYS": KEYS}, ""),
        ({"MURHO_PUBLISH": "8000"}, "8000 lets other machines in"),
        ({"MURHO_PUBLISH": "127.0.0.1:8000", "MURHO_STORE_PUBLISH": "0.0.0.0:8002"}, "0.0.0.0:8002 lets"),
    ],
)
def test_no_service_starts_for_other_machines_without_keys(variables: dict[str, str], message: str) -> None:
    services = composed(**variables)
    demo = services["train-demo"]
    environment = {**demo["environment"], "PLACE": str(ROOT / "nowhere"), "PATH": "/usr/bin:/bin"}
    script = demo["command"][0].replace("@@", "$").replace("exec murho", "echo murho")
    run = subprocess.run([*demo["entrypoint"], script], env=environment, check=False, capture_output=True, text=True)
    assert (run.returncode, message in run.stderr) == (1 if message else 0, True), run.stderr
    assert run.stdout.startswith("murho train") == (not message)
    for name in SERVERS:
        assert services[name]["depends_on"]["train-demo"]["condition"] == "service_completed_successfully"
        assert services[name]["environment"]["MURHO_API_KEYS"] == variables.get("MURHO_API_KEYS", "")


@pytest.mark.parametrize("place", ["", "checkpoints", "/srv/models"])
def test_checkpoints_of_ones_own_are_a_directory(place: str) -> None:
    services = composed(MURHO_CHECKPOINTS=place)
    for name in ("train-demo", *SERVERS):
        settings = services[name]["environment"]
        target = settings.get("MURHO_CHECKPOINTS", settings.get("PLACE"))
        mounts = [item for item in services[name]["volumes"] if isinstance(item, dict) and item["target"] == target]
        if place:
            assert [(item["type"], item["source"]) for item in mounts] == [("bind", place)]
        else:
            assert target == "/checkpoints"


def test_a_password_is_not_part_of_an_address() -> None:
    password = "p@ss/w:rd"  # noqa: S105 - of nobody
    services = composed(MURHO_STORE_PASSWORD=password)
    environment = services["murho-store"]["environment"]
    assert environment["PGPASSWORD"] == services["postgres"]["environment"]["POSTGRES_PASSWORD"] == password
    assert environment["MURHO_STORE"] == "postgresql+psycopg://murho@postgres/murho"
