"""The tutorial, typed from its first line to its last, with a quick fit; and what it prints has the form it shows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Service, serve
from tests.e2e.test_docs import block_after, blocks, shell
from tests.support import ROOT, made_once

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "tutorial.md"
HERE = "http://127.0.0.1:8000"
QUICK = "--noise homoscedastic --epochs 20 --hidden 16 --members 5 --encoding standard"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which all up to ``murho serve`` has been typed; ``judged`` has what the last printed."""

    def type_it(directory: Path) -> None:
        shutil.copytree(ROOT / "examples", directory / "examples")
        typed = blocks(PAGE, "sh")
        commands = typed[: typed.index("murho serve\n")]
        assert [command.split()[:2] for command in commands[-2:]] == [["murho", "train"], ["murho", "evaluate"]]
        for command in commands:
            quick = command.replace("--target Miles_per_Gallon", f"--target Miles_per_Gallon {QUICK}")
            (directory / "judged").write_text(shell(quick, directory))

    return made_once(tmp_path_factory, "tutorial", type_it)


@pytest.fixture(scope="module")
def service(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(workplace / "checkpoints", tmp_path_factory.mktemp("log") / "log") as service:
        yield service


def form(text: str) -> list[str]:
    """Return the words of a text, without its numbers."""
    return re.findall(r"[A-Za-z_]+", text)


def test_the_judgement_has_the_form_of_the_page(workplace: Path) -> None:
    shown = [form(line) for line in block_after(PAGE, "judged").splitlines()]
    printed = [form(line) for line in (workplace / "judged").read_text().splitlines()]
    assert [line for line in shown if line not in printed] == []


def test_the_question_gets_the_answer_of_the_page(service: Service, workplace: Path) -> None:
    told: dict[str, Any] = json.loads(shell(block_after(PAGE, "question").replace(HERE, service.address), workplace))
    shown: dict[str, Any] = json.loads(block_after(PAGE, "answer"))
    assert list(told) == list(shown)
    assert told["exceedance"]["thresholds"] == shown["exceedance"]["thresholds"]
    assert told["warnings"] == shown["warnings"]
    assert told["mean"] == pytest.approx(shown["mean"], abs=5.0)  # of a quicker fit


def test_every_snippet_runs_and_prints_what_the_page_shows(
    service: Service, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    code = "\n".join(blocks(PAGE, "python")).replace(HERE, service.address)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "tutorial"})  # noqa: S102 - our own document
    printed = [form(line) for line in capsys.readouterr().out.splitlines()]
    for mark in ("decision", "checked", "truck"):
        for line in block_after(PAGE, mark).splitlines():
            assert form(line) in printed, line
