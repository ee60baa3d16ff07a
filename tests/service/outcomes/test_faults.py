from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murho.model.errors import OptionError
from murho.model.evaluation.recorded import with_grid
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.service.outcomes.recorder import Recorder, _Queue
from murho.service.outcomes.store import Store
from murho.service.predict.answers import ToRecord
from tests.service.outcomes.conftest import ADDRESS, in_postgres, start_postgres
from tests.service.support import ROW, AppClient, FakeModel, make_client

OUTCOMES = "/models/cars/outcomes"
CELLS = {"Weight": 3000.0, "Horsepower": 100.0, "Automatic": 1.0, "Year": 2000.0, "Origin/plant": "USA"}


def predicted(client: AppClient) -> str:
    """Return a recorded prediction's id; the answer comes at once."""
    begun = time.monotonic()
    (key,) = client.post("/predict", {"inputs": [ROW], "record": True}).json()["ids"]
    assert key is not None
    assert time.monotonic() - begun < 2.0
    return str(key)


def answer_of(model: FakeModel, rows: int = 1, **cells: float) -> Prediction:
    """Return the answer for equal rows, with what is recorded of it."""
    columns = {
        name: np.array([cell] * rows, object if name == "Origin/plant" else None)
        for name, cell in (CELLS | cells).items()
    }
    return model.predict(columns, with_grid(PredictOptions(percentiles=()), model.schema.target))


def outcome(key: str) -> dict[str, object]:
    return {"outcomes": [{"id": key, "value": 130.0}]}


def test_a_database_that_goes_away_loses_nothing(postgres: Path) -> None:
    with make_client(FakeModel(), store=ADDRESS.format("postgres", postgres)) as client:
        first = predicted(client)
        assert client.post(OUTCOMES, outcome(first)).json()["accepted"] == 1
        in_postgres(postgres, "pg_ctl", "-m", "immediate", "stop")
        try:
            keys = [predicted(client) for _ in range(20)]
            refused = client.post(OUTCOMES, outcome(keys[0]))
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
            assert client.get("/models/cars/quality").status_code == 503
        finally:
            start_postgres(postgres)
        for _ in range(100):
            answers = [client.post(OUTCOMES, outcome(key)) for key in keys]
            # What was told to be recorded is never unknown: it is waited for, or comes later.
            assert all(answer.status_code == 503 or answer.json()["accepted"] for answer in answers)
            if all(answer.status_code == 200 for answer in answers):
                break
            time.sleep(0.1)
        assert [answer.json()["accepted"] for answer in answers] == [1] * len(keys)
        assert client.get("/models/cars/quality").json()["versions"][0]["n"] == 21


def test_a_server_that_says_nothing_is_waited_for_some_seconds(postgres: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("murho.service.outcomes.recorder.LONGEST_WORK", 3600.0)
    with make_client(FakeModel(), store=ADDRESS.format("postgres", postgres)) as client:
        assert client.get("/models/cars/quality").status_code == 200
        server = int((postgres / "data" / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=True).stdout
        processes = [server, *map(int, children.split())]
        try:
            for process in processes:
                os.kill(process, signal.SIGSTOP)
            refused = client.get("/models/cars/quality")
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("what", ["link", "owner"])
def test_a_directory_that_others_may_have_made_is_refused(tmp_path: Path, what: str) -> None:
    directory = tmp_path / "murho.db-recording"
    if what == "link":
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid():
        pytest.skip("only root gives a directory away")
    else:
        directory.mkdir()
        os.chown(directory, 12345, 12345)
    with pytest.raises(OptionError, match="belongs to another user"):
        Recorder(Store(str(tmp_path / "murho.db")), 2**20)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_queue_that_somebody_planted_is_not_stored(tmp_path: Path, link: Any) -> None:
    model = FakeModel()
    answer = answer_of(model)
    other = Recorder(Store(str(tmp_path / "other.db")), 2**20)
    assert other.record([ToRecord(model, answer, ["planted"])]) == [["planted"]]
    other.store.close()
    for queue in (other._adding, other._queue):
        queue.close()  # all of it is in one file then
    directory = tmp_path / "murho.db-recording"
    directory.mkdir()
    directory.chmod(0o777)
    link(directory / "queue.db", tmp_path / "other.db-recording" / "queue.db")
    recorder = Recorder(Store(str(tmp_path / "murho.db")), 2**20)
    recorder.start()
    assert recorder.record([ToRecord(model, answer, ["own"])]) == [["own"]]
    recorder.settle()
    assert recorder.store.known("cars", ["planted", "own"]) == {"own"}
    assert directory.stat().st_mode & 0o777 == 0o700
    recorder.close(5.0)


def test_the_log_of_the_queue_does_not_stay_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("murho.service.outcomes.recorder.MOST_PAGES", 8)
    model, recorder = FakeModel(), Recorder(Store(str(tmp_path / "murho.db")), 2**20)
    answer = answer_of(model)
    for _ in range(150):
        assert recorder.record([ToRecord(model, answer)])
    log = tmp_path / "murho.db-recording" / "queue.db-wal"
    assert log.stat().st_size > 150 * 4096
    recorder.start()
    for _ in range(100):
        if log.stat().st_size < 20 * 4096:
            break
        time.sleep(0.1)
    else:
        raise AssertionError(f"the log has {log.stat().st_size} bytes")
    recorder.close(5.0)


def test_a_locked_file_delays_no_answer(tmp_path: Path) -> None:
    with make_client(FakeModel(), store=str(tmp_path / "murho.db")) as client:
        other = sqlite3.connect(tmp_path / "murho.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        keys = [predicted(client) for _ in range(20)]
        other.execute("ROLLBACK")
        other.close()
        assert [client.post(OUTCOMES, outcome(key)).json()["accepted"] for key in keys] == [1] * len(keys)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with make_client(FakeModel(), store=str(tmp_path / "murho.db")) as client:
        first, recorder = predicted(client), client.state["service"].recorder
        ((pages,),) = recorder._adding.run("PRAGMA page_count")
        recorder._adding.run(f"PRAGMA max_page_count = {pages}")
        answers = [client.post("/predict", {"inputs": [ROW] * 200, "record": True}).json() for _ in range(3)]
        assert (answers[-1]["ids"], answers[-1]["warnings"][-1]["pointer"]) == ([None] * 200, "/record")
        recorder._adding.run("PRAGMA max_page_count = 1000000")
        assert [client.post(OUTCOMES, outcome(key)).json()["accepted"] for key in (first, predicted(client))] == [1, 1]


def _killed(address: str, step: str, told: Any) -> None:
    """Record until it is killed at a step."""
    model, patch, run = FakeModel(), pytest.MonkeyPatch(), _Queue.run

    def die(*_: object) -> None:
        os._exit(9)

    if step == "before the store has it":
        patch.setattr(Store, "record", die)
    elif step == "before the queue loses it":
        patch.setattr(_Queue, "run", lambda queue, say, *rest: (die if say[:6] == "DELETE" else run)(queue, say, *rest))
    recorder = Recorder(Store(address), 2**20)
    answer = answer_of(model, rows=2)
    told.send(recorder.record([ToRecord(model, answer, ["a", "b"])]))
    if step == "while the queue is written":
        recorder._adding.run("BEGIN")
        recorder.record([ToRecord(model, answer, ["never", "told"])])
        die()
    recorder.start()
    time.sleep(30.0)


@pytest.mark.parametrize("step", ["while the queue is written", "before the store has it", "before the queue loses it"])
def test_a_kill_at_any_step_keeps_what_was_told_once(tmp_path: Path, step: str) -> None:
    address, context = str(tmp_path / "murho.db"), get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_killed, args=(address, step, send))
    process.start()
    assert receive.recv() == [["a", "b"]]
    process.join(30)
    assert process.exitcode == 9
    recorder = Recorder(Store(address), 2**20)
    recorder.start()
    recorder.settle()
    assert recorder.store.add("cars", ["a", "b", "never"], [1.0, 2.0, 3.0]).unknown.keys() == {"never"}
    assert len(list(recorder.store.pairs("cars"))) == 2
    assert recorder._queue.run("SELECT * FROM batches") == []
    recorder.close(5.0)


def test_answers_of_one_turn_are_recorded_together_each_under_its_own_ids(tmp_path: Path) -> None:
    recorder, model = Recorder(Store(str(tmp_path / "murho.db")), 2**20), FakeModel()
    given, weights = {3: ["own"]}, [1000.0 * (number + 1) for number in range(6)]

    def asked(number: int) -> ToRecord:
        return ToRecord(model, answer_of(model, Weight=weights[number]), given.get(number))

    async def record() -> list[list[str] | BaseException | None]:
        tasks = [asyncio.create_task(recorder.with_others(asked(number))) for number in range(6)]
        await asyncio.sleep(0)
        tasks[0].cancel()  # its client has gone; the others don't wait for it
        return await asyncio.gather(*tasks, return_exceptions=True)

    recorder.start()
    gone, *ids = asyncio.run(record())
    recorder.settle()
    assert isinstance(gone, asyncio.CancelledError)
    assert ids[2] == ["own"]
    for weight, of_answer in zip(weights[1:], ids, strict=True):
        assert isinstance(of_answer, list)
        kept = recorder.store.prediction("cars", of_answer[0])
        assert kept is not None
        assert kept.mean == weight / 100.0 + 100.0
    assert recorder._queue.run("SELECT * FROM batches") == []
    recorder.close(5.0)


def test_a_store_that_takes_nothing_is_waited_for(tmp_path: Path) -> None:
    with make_client(FakeModel(), store=str(tmp_path / "murho.db")) as client:
        predicted(client)
        with sqlite3.connect(tmp_path / "murho.db") as other:
            other.execute("ALTER TABLE predictions RENAME TO gone")  # neither full nor locked: somebody's mistake
        key = predicted(client)
        assert client.post(OUTCOMES, outcome(key)).status_code == 503
        with sqlite3.connect(tmp_path / "murho.db") as other:
            other.execute("ALTER TABLE gone RENAME TO predictions")
        for _ in range(100):
            if client.post(OUTCOMES, outcome(key)).json().get("accepted"):
                return
            time.sleep(0.1)
        raise AssertionError("what was told is gone")


def test_outcomes_of_what_another_worker_predicted(tmp_path: Path) -> None:
    address = str(tmp_path / "murho.db")
    with make_client(FakeModel(), store=address) as one, make_client(FakeModel(), store=address) as other:
        keys = [predicted(one) for _ in range(20)]  # perhaps not in the store yet
        assert [other.post(OUTCOMES, outcome(key)).json()["accepted"] for key in keys] == [1] * len(keys)
