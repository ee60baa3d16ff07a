"""Systems: where each runs, what it is told, and which are left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import systems
from benchmarks.peers import Library, Peer, peers_of
from benchmarks.peers.step_task import StepTask
from benchmarks.systems import System, peer_systems
from tests.benchmarks.stand_ins import no_tfp

if TYPE_CHECKING:
    import pytest


def test_a_peer_whose_environment_cannot_be_made_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "environment", no_tfp)
    known = peers_of("engine")
    found, left_out = peer_systems([known["tfp"], known["numpyro-parallel"]], Path("nowhere"))
    assert left_out == {"tfp": "no network here"}
    assert found == [System(known["numpyro-parallel"], Path(sys.executable))]


def test_a_script_is_told_the_task_of_all_with_the_options_of_its_peer() -> None:
    system = System(Peer("step", "it", "It", Library("it"), {"variant": "other", "members": 3}))
    task = system.task_of(StepTask((5,), 32, seed=7))
    assert task == StepTask((5,), 32, members=3, variant="other", seed=7)
    expected = [sys.executable, "-m", "benchmarks.peers.it", "step", task.to_json()]
    assert system.command(task.to_json()) == expected
