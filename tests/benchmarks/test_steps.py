"""The benchmark of optimiser steps: systems that take turns, what is made of their answers, the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from benchmarks import processes, systems
from benchmarks.peers import Library, Peer, peers_of
from benchmarks.steps import CASES, Measured, main, measure, ratio
from tests.benchmarks.stand_ins import ScriptSystem, make_package, no_tfp, write_script

if TYPE_CHECKING:
    from pathlib import Path


def _script(folder: Path, name: str, *, wall: float, rmse: float, dies: str | None = None) -> None:
    ready = f'{{"rmse": {rmse}, "spread": 1.0, "memory": 1, "peak": 2}}'
    steps = f'"steps": 10 * task["members"], "wall": {wall}, "processor": 0.5'
    write_script(folder, name, ready=ready, answer=f'{{{steps}, "memory": 3 << 20, "peak": 4 << 20}}', dies=dies)


def _system(folder: Path, name: str, members: int = 1) -> ScriptSystem:
    return ScriptSystem(Peer("step", name, name, Library(name), {"members": members}), folder=folder)


def test_systems_that_fail_are_left_out_and_the_others_measured(tmp_path: Path) -> None:
    _script(tmp_path, "steady", wall=2.0, rmse=0.2)
    _script(tmp_path, "slow", wall=3.0, rmse=0.9)
    _script(tmp_path, "stillborn", wall=1.0, rmse=0.2, dies="at once")
    _script(tmp_path, "fickle", wall=1.0, rmse=0.2, dies="later")
    all_of_them = [_system(tmp_path, name) for name in ("stillborn", "steady", "fickle")]
    all_of_them.append(_system(tmp_path, "slow", members=5))
    found, failed = measure(CASES["1x50-32"], all_of_them, rounds=3, seconds=0.0)
    assert list(found) == ["steady", "slow"]
    assert found["steady"].wall == pytest.approx([2e5] * 3)
    assert found["slow"].wall == pytest.approx([6e4] * 3)
    assert found["steady"].processor == pytest.approx([5e4] * 3)
    assert found["steady"].learns
    assert not found["slow"].learns
    assert found["steady"].memory == 3 << 20
    assert "out of luck" in failed["stillborn"]
    assert "lost patience" in failed["fickle"]


def test_ratios_are_of_times_a_member_in_the_same_round() -> None:
    murho = Measured(5, [1000.0, 3000.0, 2000.0], [1.0] * 3, 0.2, 1, 1)
    peer = Measured(1, [2000.0, 9000.0, 6000.0], [1.0] * 3, 0.2, 1, 1)
    assert ratio(peer, murho) == pytest.approx(15.0)  # of 10, 15 and 15
    assert ratio(murho, murho) == 1.0


def test_the_command_prints_a_table_a_case_and_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "environment", no_tfp)
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    folder = make_package(tmp_path)
    _script(folder, "murho_fit", wall=2.0, rmse=0.2)
    _script(folder, "torchbnn", wall=3.0, rmse=0.9)
    output = tmp_path / "results"
    command = ["--systems", "torchbnn,tfp", "--cases", "1x50-32,2x64-128", "--rounds", "2"]
    assert main([*command, "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert "tfp is left out: no network here" in said
    assert "8-64-64-1, 128 rows a step" in said
    assert "torchbnn (does not learn)" in said
    kept = orjson.loads((output / "steps.json").read_bytes())
    assert [case["case"] for case in kept["cases"]] == ["1x50-32", "2x64-128"]
    assert kept["cases"][0]["ratios"]["torchbnn"] == pytest.approx(3.0 / 10 / (2.0 / 50 / 5))
    assert kept["left_out"] == {"tfp": "no network here"}
    assert kept["requirements"] == {"torchbnn": list(peers_of("step")["torchbnn"].library.packages)}
    assert kept["rounds"] == 2


@pytest.mark.parametrize("options", [["--systems", "jags"], ["--cases", "3x3-3"], ["--rounds", "0"]])
def test_unknown_choices_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert options[0].removeprefix("--").rstrip("s") in capsys.readouterr().err
