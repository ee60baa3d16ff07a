from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from murho.service import app
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import ROW, AppClient, FakeModel, FakeSource, make_client

if TYPE_CHECKING:
    import pytest

    from murho.service.models.loader import Snapshot


def test_importing_the_application_imports_no_torch() -> None:
    # The service answers /healthz while torch is still being imported by the thread that loads the checkpoints.
    code = "import sys, murho.service.process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_failure_to_load_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(threads: int) -> None:
        raise ImportError(f"no torch for {threads} threads")

    monkeypatch.setattr(app, "_set_threads", fail)
    with make_client(FakeModel(), threads=3) as client:
        assert client.get("/healthz").status_code == 200
        response = client.get("/readyz")
        assert response.status_code == 503
        assert "ImportError: no torch for 3 threads" in response.json()["detail"]


def test_a_failure_to_announce_does_not_stop_the_service() -> None:
    def fail(_: Snapshot) -> None:
        raise BrokenPipeError

    with AppClient(create_app(Settings(), source=FakeSource(FakeModel()), on_loaded=fail)) as client:
        assert client.post("/predict", {"inputs": [ROW]}).status_code == 200
