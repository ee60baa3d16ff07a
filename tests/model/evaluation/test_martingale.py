"""The test on PITs: a martingale, few false alarms, short delays, and the ranks that crepes gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
from crepes.martingales import SleeperStayer, semi_online_p_values
from scipy.stats import norm

from murho.model.errors import CheckpointError
from murho.model.evaluation.martingale import BETS, FALSE_ALARMS, LEAST_START, PitMartingale

ROWS = (None, 200)


def _pits(seed: int, outcomes: int, mean: float = 0.0, std: float = 1.0, after: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).standard_normal(outcomes)
    scores[after:] = mean + std * scores[after:]
    return np.asarray(norm.cdf(scores))


def test_the_value_is_the_capital_of_all_bets_from_all_starts() -> None:
    pits = _pits(0, 40, mean=0.5)
    kept = np.log(LEAST_START) / np.log(LEAST_START + np.arange(len(pits) + 1))
    capital = kept[-1]
    for mean, std in BETS:
        gains = norm.pdf(norm.ppf(pits), mean, std) / norm.pdf(norm.ppf(pits))
        capital += sum((kept[k] - kept[k + 1]) / len(BETS) * gains[k:].prod() for k in range(len(pits)))
    martingale = PitMartingale()
    martingale.update(pits)
    assert martingale.log_value == pytest.approx(np.log(capital), rel=1e-9)


@pytest.mark.parametrize("rows", ROWS)
def test_blocks_of_outcomes_and_a_stored_state_change_nothing(rows: int | None) -> None:
    pits = _pits(2, 9_000, mean=0.3, after=7_000)
    whole, parts = PitMartingale(rows), PitMartingale(rows)
    whole.update(pits)
    for start in range(0, len(pits), 700):
        parts.update(pits[start : start + 700])
        parts = PitMartingale.from_json(json.loads(json.dumps(parts.to_json())))
    assert parts.log_value == pytest.approx(whole.log_value)
    assert parts.alarm == whole.alarm
    assert whole.alarm is not None
    assert abs(whole.alarm.since - 7_000) < 300
    with pytest.raises(ValueError, match="from 0 to 1"):
        whole.update([0.5, np.nan])
    with pytest.raises(CheckpointError, match="bets: expected 12 numbers"):
        PitMartingale.from_json(whole.to_json() | {"bets": [0.0]})


@pytest.mark.parametrize("rows", ROWS)
def test_at_most_one_stream_in_a_hundred_raises_a_false_alarm(rows: int | None) -> None:
    """PITs are those of n held-out rows: uniform on average only, and too far from it to be tested for that."""
    alarms = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        pits = generator.uniform(size=10_000)
        if rows is not None:
            held_out = np.concatenate([[0.0], np.sort(generator.uniform(size=rows)), [1.0]])
            pits = np.interp(pits, held_out, np.arange(rows + 2) / (rows + 1))
        martingale = PitMartingale(rows)
        martingale.update(pits)
        alarms += martingale.alarm is not None
    assert alarms <= 1


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("mean", "std", "most"), [(1.0, 1.0, 60), (-1.0, 1.0, 60), (0.0, 1.5, 300)])
def test_a_change_is_found_soon(rows: int | None, mean: float, std: float, most: int) -> None:
    for after in (0, 2_000):
        delays = []
        for seed in range(21):
            martingale = PitMartingale(rows)
            martingale.update(_pits(seed, after + 1_000, mean, std, after))
            delays.append(np.inf if martingale.alarm is None else martingale.alarm.outcomes - after)
        assert np.median(delays) <= most


def test_ranks_and_alarms_are_those_of_crepes() -> None:
    rows = 300
    held_out = (np.arange(rows) + 1) / (rows + 1)
    for mean in (0.0, 1.0):
        pits = _pits(3, 700, mean, after=400)
        levels = 1.0 - semi_online_p_values(np.concatenate([held_out, pits]), seed=0)[rows:]
        ours, of_theirs = PitMartingale(rows), PitMartingale()
        ours.update(pits)
        of_theirs.update(levels)
        raised = SleeperStayer().apply(levels, c=1.0 / FALSE_ALARMS)
        if ours.alarm is None:
            assert of_theirs.alarm is None
            assert raised == len(pits)
        else:
            assert of_theirs.alarm is not None
            assert abs(ours.alarm.outcomes - of_theirs.alarm.outcomes) <= 5
            assert 400 < ours.alarm.outcomes <= raised + 10
