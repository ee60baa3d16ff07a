from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import httpx

from tests.e2e.support import murho, serve
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RENTS = ROOT / "tests" / "fixtures" / "checkpoints"
ROW = {"sqm": 87.5, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2024-08-04"}


def test_what_was_acknowledged_survives_a_kill_in_every_worker(tmp_path: Path) -> None:
    keys: list[str] = []
    with serve(RENTS, tmp_path / "log", store=str(tmp_path / "murho.db"), workers="2") as service:
        service.wait_for_line("(Ready: )")

        def ask() -> None:
            with httpx.Client(base_url=service.address) as client:
                while True:
                    try:
                        answer = client.post("/predict", json={"inputs": [ROW], "record": True, "samples": 8})
                        keys.extend(answer.json()["ids"])
                    except (httpx.TransportError, KeyError):  # killed, or its worker is
                        return

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        service.process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(30)
    assert len(keys) > 20
    with serve(RENTS, tmp_path / "log", store=str(tmp_path / "murho.db")) as service:
        service.wait_for_line("(Ready: )")
        outcomes = {"outcomes": [{"id": key, "value": 800.0} for key in keys]}
        told = service.client.post("/models/rents/outcomes", json=outcomes).json()
        assert (told["accepted"], told["unknown"]) == (len(keys), [])
        assert service.client.get("/models/rents/quality").json()["versions"][0]["n"] == len(keys)


def test_a_store_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    done = murho("serve", "--checkpoints", RENTS, "--port", "0", "--store", tmp_path / "no" / "folder.db", code=2)
    assert "can't be opened" in done.stderr


def test_the_commands_tell_and_judge(tmp_path: Path) -> None:
    store = tmp_path / "murho.db"
    with serve(RENTS, tmp_path / "log", store=str(store)) as service:
        service.wait_for_line("(Ready: )")
        keys = [str(row) for row in range(30)]
        answer = service.client.post("/predict", json={"inputs": [ROW] * 30, "ids": keys}).json()
        values = [f"{key},{mean}\n" for key, mean in zip(keys, answer["mean"], strict=True)]
        (tmp_path / "true.csv").write_text("".join(["what came true\n", "id,value\n", *values, "none,1\n"]))
        told = murho("outcomes", "rents", tmp_path / "true.csv", "--skip-lines", "1", "--url", service.address)
        assert "accepted: 30" in told.stderr
        assert "unknown: none:" in told.stderr
        assert " 30 " in murho("quality", "rents", "--url", service.address).stdout
    done = murho("outcomes", "rents", "--store", store, "--forget", "3", "--output", tmp_path / "out.parquet")
    assert "exported: 29" in done.stderr
    assert "100.0 %" in murho("quality", "rents", "--store", store).stdout
    (tmp_path / "wrong.csv").write_text("id,value\n4,1\n5,x\n")
    wrong = murho("outcomes", "rents", tmp_path / "wrong.csv", "--store", store, code=1)
    assert "wrong.csv, row 2, value: Expected a finite number, not 'x'." in wrong.stderr
