"""Bands follow outcomes: at once, each tail by itself, with late labels, and not for a single odd outcome."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.calibration.adaptation import Adaptation, AdaptationMethod
from murho.model.calibration.conformal import AdaptedMap, CalibratedSpread, ConformalMap
from murho.model.errors import CheckpointError
from tests.model.conftest import present
from tests.model.maps import odd_map

METHODS: tuple[AdaptationMethod, ...] = ("rolling", "adaptive")
ENDS = torch.special.ndtri(torch.tensor([0.05, 0.95], dtype=torch.float64))


def _pits(scores: Any) -> np.ndarray:
    return np.asarray(torch.special.ndtr(torch.as_tensor(scores)).numpy())


def _band(state: Adaptation) -> np.ndarray:
    moved = state.drift_map
    return np.asarray(ENDS if moved is None else moved.calibrate(ENDS))


def _asked(method: AdaptationMethod, scores: np.ndarray, late: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each band covers, and its width, of rows asked one by one, whose outcomes come late."""
    state, inside, widths = Adaptation(method), [], []
    thens: list[Adaptation] = []
    pits: list[float] = []
    for place, score in enumerate(scores):
        if place > late:
            then = thens[place - late - 1]
            state = state.update(np.array([pits[place - late - 1]]), None if then.drift_map is None else then)
        lower, upper = _band(state)
        inside.append(lower <= score <= upper)
        widths.append(upper - lower)
        own = torch.tensor(float(score), dtype=torch.float64)
        pits.append(float(_pits(own if state.drift_map is None else state.drift_map.nominal_of(own))))
        thens.append(state)
    return np.array(inside), np.array(widths)


@pytest.mark.parametrize("late", [0, 24])
@pytest.mark.parametrize("method", METHODS)
def test_bands_follow_a_shift_and_stay_as_narrow_as_the_noise(method: AdaptationMethod, late: int) -> None:
    scores = np.random.default_rng(0).normal(size=1_500)
    scores[500:] = 2.5 + 0.6 * scores[500:]
    inside, widths = _asked(method, scores, late)
    for part in (slice(100, 500), slice(1_100, 1_500)):
        assert np.mean(inside[part]) == pytest.approx(0.9, abs=0.035)
    # 2 * 1.645 standard deviations.
    assert np.mean(widths[100:500]) == pytest.approx(3.29, rel=0.12)
    assert np.mean(widths[1_100:]) == pytest.approx(1.97, rel=0.2)


def test_few_outcomes_move_the_band_before_they_widen_it() -> None:
    state = Adaptation("adaptive").update(_pits(np.full(10, 2.0)), None)
    lower, upper = _band(state)
    assert 0.5 * (lower + upper) > 1.7
    assert upper - lower < 3.6
    assert Adaptation("rolling").update(_pits(np.full(9, 2.0)), None).drift_map is None


@pytest.mark.parametrize("method", METHODS)
def test_an_odd_outcome_among_many_changes_little(method: AdaptationMethod) -> None:
    usual = Adaptation(method).update(_pits(np.random.default_rng(1).normal(size=400)), None)
    odd = usual.update(np.array([1.0]), None)
    np.testing.assert_allclose(_band(odd), _band(usual), atol=0.1)


def test_levels_follow_the_misses_of_answers_each_tail_by_itself_and_late_ones_slowly() -> None:
    state = Adaptation("adaptive").update(_pits(np.random.default_rng(2).normal(size=300)), None)
    missed = state.update(np.full(20, 0.99), state)
    assert missed.tails[1] < 0.03
    assert missed.tails[0] > 0.05
    late = Adaptation("adaptive", 10_300, state.scores)
    assert 0.049 < late.update(np.full(20, 0.99), state).tails[1] < 0.05
    # Answers with the checkpoint's calibration say nothing of the levels.
    assert state.update(np.full(20, 0.99), None).tails == state.tails


@pytest.mark.parametrize("base", [None, odd_map([1.0, 2.0], [1.5, 2.2], 40)])
def test_an_adapted_map_is_undone_by_its_inverse_and_moves_all_rows(base: ConformalMap | None) -> None:
    state = Adaptation("adaptive").update(_pits(np.random.default_rng(3).normal(2.0, 1.4, 200)), None)
    adapted = AdaptedMap(present(state.drift_map), base)
    scores = torch.linspace(-4.0, 4.0, 101, dtype=torch.float64)
    for only_widen in (False, True):
        reached = adapted.calibrate(scores, only_widen)
        assert bool((reached.diff() > 0.0).all())
        torch.testing.assert_close(adapted.nominal_of(reached, only_widen), scores)
        assert float(reached[50]) > 1.0
    assert CalibratedSpread.of(adapted, torch.device("cpu")).forms.shape == (3, 9, 9)


def test_a_state_goes_on_from_its_json_and_a_wrong_one_is_named() -> None:
    state = Adaptation("adaptive").update(_pits(np.random.default_rng(4).normal(size=700)), None)
    document = json.dumps(state.to_json())
    assert len(document) < 6_000
    assert Adaptation.from_json(json.loads(document)) == state
    with pytest.raises(CheckpointError, match="scores: expected at most 500 numbers"):
        Adaptation.from_json(state.to_json() | {"outcomes": 10})
    with pytest.raises(CheckpointError, match="tails"):
        Adaptation.from_json(state.to_json() | {"tails": [0.05, 0.9]})


def test_outcomes_of_one_answer_move_a_band_so_far_at_most() -> None:
    """Whatever somebody tells: bands follow in steps, as answers with newer bands come true."""
    one = Adaptation("adaptive").update(np.ones(1), None)
    assert _band(one).mean() < 2.0
    state = Adaptation("adaptive").update(np.ones(600), None)
    assert np.abs(_band(state)).max() <= 3.5
    assert _band(state.update(np.ones(600), state)).max() > 4.0
