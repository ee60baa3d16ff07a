"""Cells of the engine benchmark: who is measured where, and how its answers are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.engine_parts import cells
from benchmarks.engine_parts.cells import Cell, Rates, measure, too_large
from benchmarks.peers import Library, Peer
from benchmarks.peers.engine_task import EngineTask
from benchmarks.systems import System
from tests.benchmarks.stand_ins import ScriptSystem, write_script

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_rates_keep_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    products, copies = iter([3.0, 2.0]), iter([1.0, 5.0])
    monkeypatch.setattr(cells, "product_rate", lambda: next(products))
    monkeypatch.setattr(cells, "copy_rate", lambda: next(copies))
    rates = Rates()
    rates.measure()
    rates.measure()
    assert (rates.product, rates.copy) == (3.0, 5.0)


def test_what_does_not_fit_is_left_out() -> None:
    stacked = System(Peer("engine", "it", "it", Library("it"), stacked=True))
    large, small = EngineTask((512, 512, 512)), EngineTask((256, 256))
    assert too_large(None, large, Cell(256, 1)) is None
    assert too_large(None, large, Cell(1000, 1)) == "1000 draws are 2.0 GiB"
    assert too_large(None, small, Cell(256, 20_000)) is None
    assert too_large(stacked, small, Cell(256, 1000)) is None
    reason = too_large(stacked, small, Cell(256, 20_000))
    assert reason == "a layer of all draws at once is 4.9 GiB"


# Function values 1 and -1, mean 0, std 1; a first call takes as many seconds as there are threads.
ANSWER = (
    '{{"times": {{"call": {seconds} * request["samples"]}}, '
    '"first": {{"call": float(os.environ["OMP_NUM_THREADS"])}}, '
    '"answers": {{"mean": [0.0] * request["batch"], "epistemic_std": [{std}] * request["batch"]}}}}'
)


def test_systems_that_fail_are_left_out_and_answers_that_are_wrong_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rates, "measure", lambda _: None)
    systems = []
    for name, dies, seconds, std in (
        ("stillborn", "at once", 0.01, 1.0),
        ("steady", None, 0.01, 1.0),
        ("fickle", "later", 0.01, 1.0),
        ("wrong", None, 0.02, 100.0),
    ):
        answer = ANSWER.format(seconds=seconds, std=std)
        write_script(tmp_path, name, ready='{"parameters": 1}', answer=answer, dies=dies)
        systems.append(ScriptSystem(Peer("engine", name, name, Library(name)), folder=tmp_path))
    task = EngineTask((2,), threads=3)
    measured = list(measure(task, systems, [Cell(4, 2), Cell(8, 2)], rounds=2, seconds=0.0, rates=Rates()))
    assert [cell for cell, _, _ in measured] == [Cell(4, 2), Cell(8, 2)]
    for cell, found, left_out in measured:
        assert list(found) == ["steady", "wrong"]
        assert found["steady"].times == {"call": [0.01 * cell.samples] * 2}
        assert found["steady"].first == {"call": 3.0}  # threads
        assert found["wrong"].errors[1] > 10.0
        assert "out of luck" in left_out["stillborn"]
        assert "lost patience" in left_out["fickle"]
