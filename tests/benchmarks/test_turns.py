"""Systems that take turns: who is asked, and what becomes of those that fail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from benchmarks.processes import SystemProcess
from benchmarks.turns import Turns
from tests.benchmarks.stand_ins import command_of, write_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A file in which scripts, beside it, note who was asked what."""
    notes = tmp_path / "notes"
    for name, dies in (("steady", None), ("slow", None), ("stillborn", "at once"), ("fickle", "later")):
        asked = f"open({str(notes)!r}, 'a').write('{name} ' + request['say'] + chr(10))"
        answer = f"{{'number': number, 'characters': {asked}}}"
        write_script(tmp_path, name, ready=f"{{'name': '{name}'}}", answer=answer, dies=dies)
    return notes


def _start(notes: Path, *names: str) -> dict[str, Callable[[], SystemProcess]]:
    return {name: partial(SystemProcess, name, command_of(notes.with_name(f"{name}.py"))) for name in names}


def test_in_every_round_each_is_asked_once(notes: Path) -> None:
    with Turns(_start(notes, "steady", "slow")) as turns:
        assert turns.ready == {"steady": {"name": "steady"}, "slow": {"name": "slow"}}
        answers = turns.ask({"say": "one"}, rounds=2)
        later = turns.ask({"say": "two"}, rounds=1, without={"slow"})
    assert {name: [said["number"] for said in all_of_it] for name, all_of_it in answers.items()} == {
        "steady": [0, 1],
        "slow": [0, 1],
    }
    assert list(later) == ["steady"]
    asked = ["steady one", "slow one", "steady one", "slow one", "steady two"]
    assert notes.read_text(encoding="utf-8").splitlines() == asked
    assert not turns.failed


def test_one_that_fails_is_asked_no_more_and_has_no_answers(notes: Path) -> None:
    with Turns(_start(notes, "stillborn", "fickle", "steady")) as turns:
        assert list(turns.ready) == ["fickle", "steady"]
        assert list(turns.ask({"say": "one"}, rounds=1)) == ["fickle", "steady"]
        assert list(turns.ask({"say": "two"}, rounds=3)) == ["steady"]
    assert list(turns.failed) == ["stillborn", "fickle"]
    assert "out of luck" in turns.failed["stillborn"]
    assert "lost patience" in turns.failed["fickle"]
    assert notes.read_text(encoding="utf-8").count("fickle") == 1


def test_all_are_ended_even_if_another_cannot_be_started(notes: Path) -> None:
    made: list[SystemProcess] = []

    def started() -> SystemProcess:
        made.append(_start(notes, "steady")["steady"]())
        return made[-1]

    def interrupted() -> SystemProcess:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Turns({"steady": started, "other": interrupted}):
        raise AssertionError("it is not entered")
    assert made[0]._process.returncode is not None
    with Turns({"steady": started}):
        assert made[-1]._process.poll() is None
    assert made[-1]._process.returncode is not None
