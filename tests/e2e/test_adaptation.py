"""Bands that follow outcomes in a real service: in all workers, after a restart, the same from the same state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.e2e.support import murho, serve
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.support import Service

RENTS = ROOT / "tests" / "fixtures" / "checkpoints"
ROW = {"sqm": 87.5, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2024-08-04"}


def _asked(service: Service, **more: Any) -> dict[str, Any]:
    # A connection each, so that any worker may answer.
    request = {"inputs": [ROW] * 40, "thresholds": [2_000.0], **more}
    answer: dict[str, Any] = service.client.post("/predict", json=request, headers={"connection": "close"}).json()
    return answer


def _same_bands(one: dict[str, Any], other: dict[str, Any]) -> None:
    np.testing.assert_allclose(one["percentiles"]["values"], other["percentiles"]["values"], rtol=1e-5)


def _everywhere(service: Service, state: str | None) -> dict[str, Any]:
    """An answer with a state that all workers have taken up."""
    end, answers = time.monotonic() + 30.0, list[dict[str, Any]]()
    while time.monotonic() < end:
        answers.append(_asked(service))
        newest = answers[-10:]
        if len(newest) == 10 and all((each.get("calibration") or {}).get("state") == state for each in newest):
            for each in newest:
                _same_bands(each, newest[0])
            return newest[0]
        time.sleep(0.05)
    raise AssertionError(f"state {state} was not taken up: {answers[-1]}")


def test_all_workers_move_their_bands_and_one_command_moves_them_back(tmp_path: Path) -> None:
    store = str(tmp_path / "murho.db")
    with serve(RENTS, tmp_path / "log", store=store, workers="2", adapt="adaptive") as service:
        service.wait_for_line("(Ready: )")
        before = _asked(service, record=True)
        low, middle, high = np.array(before["percentiles"]["values"][0])
        truth = middle + 0.8 * (high - low)  # above the band of 90 %
        outcomes = [{"id": key, "value": truth} for key in before["ids"]]
        assert service.client.post("/models/rents/outcomes", json={"outcomes": outcomes}).json()["accepted"] == 40
        after = _everywhere(service, "1")
        new_low, _, new_high = after["percentiles"]["values"][0]
        assert new_low < truth < new_high
        assert new_high / new_low < 1.1 * high / low  # of a logarithm: it has moved, and hardly widened
        assert new_low < after["mean"][0] < new_high
        square = np.square([after[name][0] for name in ("std", "epistemic_std", "aleatoric_std")])
        assert square[0] == pytest.approx(square[1] + square[2])
    with serve(RENTS, tmp_path / "log", store=store, workers="2", adapt="adaptive") as service:
        service.wait_for_line("(Ready: )")
        _same_bands(_everywhere(service, "1"), after)
        said = murho("adaptation", "rents", "--store", store, "--back-to", "0").stdout
        assert "the checkpoint's" in said
        _same_bands(_everywhere(service, None), before)
