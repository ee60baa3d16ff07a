"""The test on PITs: a martingale, few false alarms whatever the map, short delays, and the ranks that crepes gives."""

import json

import numpy as np
import pytest
from crepes.martingales import SleeperStayer, semi_online_p_values
from scipy.stats import norm

from benchmarks.alarm import alarm_at
from murho.model.errors import CheckpointError
from murho.model.evaluation.martingale import BETS, FALSE_ALARMS, LEAST_START, PitMartingale, PitRanks
from murho.model.evaluation.recorded import SHARES

ROWS = (None, 60, 200)


def _test_of(rows: int | None) -> PitMartingale:
    return PitMartingale.of(rows, central=rows is not None and rows < 100)


def _pits(seed: int, outcomes: int, mean: float = 0.0, std: float = 1.0, after: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).standard_normal(outcomes)
    scores[after:] = mean + std * scores[after:]
    return np.asarray(norm.cdf(scores))


@pytest.mark.parametrize("rows", ROWS)
def test_the_value_is_the_capital_of_all_bets_from_all_starts(rows: int | None) -> None:
    pits = _pits(0, 40, mean=0.5)
    martingale = _test_of(rows)
    kept = np.log(LEAST_START) / np.log(LEAST_START + np.arange(len(pits) + 1))
    capital, tests = kept[-1], martingale.ranks[:]
    for number, ranks in enumerate(tests):
        places = np.random.Generator(np.random.PCG64(number)).random(len(pits))
        own = PitRanks.from_json(ranks.to_json())
        levels = np.concatenate([own.levels(pits[k : k + 1], places[k : k + 1]) for k in range(len(pits))])
        for mean, std in BETS:
            gains = norm.pdf(norm.ppf(levels), mean, std) / norm.pdf(norm.ppf(levels))
            shares = (kept[:-1] - kept[1:]) / len(BETS) / len(tests)
            capital += sum(shares[k] * gains[k:].prod() for k in range(len(pits)))
    martingale.update(pits)
    assert martingale.log_value == pytest.approx(np.log(capital), rel=1e-9)


@pytest.mark.parametrize("rows", ROWS)
def test_blocks_of_outcomes_and_a_stored_state_change_nothing(rows: int | None) -> None:
    pits = _pits(2, 9_000, mean=0.3, after=7_000)
    whole, parts = _test_of(rows), _test_of(rows)
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
    with pytest.raises(CheckpointError, match=f"bets: expected {len(whole.bets)} numbers"):
        PitMartingale.from_json(whole.to_json() | {"bets": [0.0]})


@pytest.mark.parametrize(
    ("shape", "rows"), [("exponential", 60), ("biased by half a std", 99), ("bimodal", 30), ("Student t3", 400)]
)
def test_exchangeable_outcomes_hardly_ever_raise_an_alarm(shape: str, rows: int) -> None:
    """As biased as the held-out rows are; `python -m benchmarks.alarm` measures more streams."""
    assert sum(alarm_at(shape, rows, 2_000, seed) is not None for seed in range(80)) <= 2


def test_p_values_are_uniform_whatever_the_held_out_rows() -> None:
    assert PitRanks.of_rows(10**6, central=False).edges == SHARES.tolist()  # between and beyond, predictions are lines
    levels = []
    for seed in range(4_000):
        generator = np.random.default_rng(seed)
        held_out = np.sort(generator.uniform(size=100))
        ranks = PitRanks.of_rows(100, central=False)
        pits = np.interp(generator.uniform(size=20), [0.0, *held_out, 1.0], np.arange(102) / 101)
        levels.append(ranks.levels(pits, generator.random(20)))
    counts = np.histogram(levels, 50, (0.0, 1.0))[0]
    assert ((counts - 1_600.0) ** 2 / 1_600.0).sum() < 95.0  # the 99.99 % quantile of chi-square


def test_without_a_map_outcomes_are_ranked_among_themselves() -> None:
    alike, moved = PitMartingale.of(None), PitMartingale.of(None)
    alike.update(_pits(0, 3_000, mean=1.0, std=2.0))
    moved.update(_pits(0, 3_000, mean=1.0, after=1_000))
    assert alike.alarm is None
    assert moved.alarm is not None
    assert 1_000 < moved.alarm.outcomes < 1_060


@pytest.mark.parametrize(("mean", "std", "most"), [(1.0, 1.0, 60), (-1.0, 1.0, 60), (0.0, 1.5, 300)])
def test_a_change_is_found_soon(mean: float, std: float, most: int) -> None:
    for rows, after in ((200, 0), (200, 2_000), (60, 500)):
        delays = []
        for seed in range(21):
            martingale = _test_of(rows)
            martingale.update(_pits(seed, after + 1_000, mean, std, after))
            delays.append(np.inf if martingale.alarm is None else martingale.alarm.outcomes - after)
        assert np.median(delays) <= most


def test_ranks_and_alarms_are_those_of_crepes() -> None:
    rows = 300
    held_out = (np.arange(rows) + 1) / (rows + 1)
    for mean in (0.0, 1.0):
        pits = _pits(3, 700, mean, after=400)
        theirs = 1.0 - semi_online_p_values(np.concatenate([held_out, pits]), seed=0)[rows:]
        levels = PitRanks.of_rows(rows, central=False).levels(pits, np.random.default_rng(0).random(len(pits)))
        assert np.abs(levels - theirs).mean() < 0.03  # the bins that they are drawn in are of 10 % at most
        ours = _test_of(rows)
        ours.update(pits)
        raised = SleeperStayer().apply(theirs, c=1.0 / FALSE_ALARMS)
        if mean == 0.0:
            assert ours.alarm is None
            assert raised == len(pits)
        else:
            assert ours.alarm is not None
            assert 400 < ours.alarm.outcomes <= raised + 10
