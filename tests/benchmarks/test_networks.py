"""Steps and answers of the same networks in every system, and what they are held against."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch

from benchmarks import engine, steps, training
from benchmarks.engine import best_of, deviations, disagreement, exact_answers
from benchmarks.peers.murho_fit import Murho
from benchmarks.peers.murho_predictions import prepare
from benchmarks.peers.networks import (
    COLUMNS,
    EDGE,
    LEVELS,
    NOISE,
    EngineTask,
    Steps,
    StepTask,
    inverse_softplus,
    percentiles_of,
    shown_rows,
)

if TYPE_CHECKING:
    from pathlib import Path


TASK = EngineTask((6, 5))


def test_data_are_standardised_and_the_same_for_everybody() -> None:
    rows, targets = StepTask((50,), rows=20_000).data()
    again = StepTask((256, 256), batch=128, members=5, rows=20_000).data()
    np.testing.assert_array_equal(rows, again[0])
    np.testing.assert_array_equal(targets, again[1])
    assert targets.mean() == pytest.approx(0.0, abs=0.02)
    assert targets.std() == pytest.approx(1.0, abs=0.02)
    clean = rows[:, 0] - 0.5 * rows[:, 1] + np.sin(2.0 * rows[:, 2])
    assert np.corrcoef(clean, targets)[0, 1] ** 2 == pytest.approx(1.0 - NOISE**2, abs=0.01)
    minibatches = StepTask((50,), batch=48, rows=320).minibatches()
    assert [len(targets) for _, targets in minibatches] == [48] * 6


def test_steps_go_round_the_minibatches_and_are_all_counted() -> None:
    taken: list[int] = []
    finished: list[int] = []
    system = Steps(3, taken.append, lambda rows: rows[:, :1], lambda: finished.append(len(taken)))
    timing = system.take(steps=25)
    assert timing["steps"] == len(taken) == finished[-1] >= 25
    assert taken[:5] == [0, 1, 2, 0, 1]
    later = system.take(seconds=1e-6)
    assert later["steps"] == len(taken) - timing["steps"] > 0


def test_murho_takes_whole_epochs_and_learns() -> None:
    task = StepTask((50,), members=2, rows=640)
    rows, targets = task.data()
    system = Murho(task)
    assert system.take(steps=1)["steps"] == 10  # each of two members sees half of the rows
    before = np.sqrt(np.mean((system.predict(rows) - targets) ** 2))
    assert system.take(steps=600)["steps"] == 600
    assert np.sqrt(np.mean((system.predict(rows) - targets) ** 2)) < 0.4 < before


def test_a_step_is_compared_per_member() -> None:
    ours = {"members": 5, "wall_us": [100.0, 200.0], "processor_us": [1.0, 1.0], "rmse": 0.2}
    results = {name: ours | {"memory_bytes": 2**20, "peak_memory_bytes": 2**21} for name in (steps.REFERENCE, "other")}
    results["other"] |= {"members": 1, "wall_us": [200.0, 200.0]}
    line = steps.render(results).splitlines()[-1].split()
    assert line[:4] == ["other", "200", "200", "7.50"]


@pytest.mark.parametrize(("hidden", "parameters"), [((50,), 901), ((64, 64), 5313), ((256, 256), 70401)])
def test_the_posterior_is_the_same_for_everybody(hidden: tuple[int, ...], parameters: int) -> None:
    task = EngineTask(hidden)
    assert task.parameters == parameters
    drawn = task.posterior()
    assert sum(layer.weight_mu.size + layer.bias_mu.size for layer in drawn) == parameters
    for one, other in zip(drawn, EngineTask(hidden, threads=2).posterior(), strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == np.float32
    if len(hidden) > 1:
        scale = (2.0 / hidden[0]) ** 0.5
        assert drawn[1].weight_mu.std() == pytest.approx(scale, rel=0.05)
        assert 0.15 * scale <= drawn[1].weight_sigma.min() < drawn[1].weight_sigma.max() <= 0.4501 * scale


def test_rows_lie_within_the_training_range_and_differ() -> None:
    rows = TASK.rows_of(1000)
    assert len(np.unique(rows, axis=0)) == 1000
    assert 0.99 * EDGE < np.abs(rows[:, :COLUMNS]).max() <= EDGE
    assert not rows[:, COLUMNS:].any()  # the inputs for what lies beyond
    assert [len(shown_rows(batch)) for batch in (1, 5, 64, 20_000)] == [1, 5, 64, 64]


def test_rho_is_the_inverse_of_softplus_and_percentiles_are_those_of_numpy() -> None:
    sigma = np.array([1e-3, 0.1, 1.0, 30.0], dtype=np.float32)
    back = torch.nn.functional.softplus(torch.from_numpy(inverse_softplus(sigma)))
    np.testing.assert_allclose(back.numpy(), sigma, rtol=1e-5)
    for samples in (1, 64, 256):
        observations = np.random.default_rng(0).normal(size=(samples, 7)).astype(np.float32)
        expected = np.percentile(observations, LEVELS, axis=0).T
        np.testing.assert_allclose(percentiles_of(observations), expected, atol=1e-6)


@pytest.mark.parametrize("noise", ["fixed", "heteroscedastic", "mixture"])
def test_murhos_answers_are_those_of_double_precision_and_of_other_draws(noise: str) -> None:
    task = EngineTask((16, 16), noise=noise)
    rows = task.rows_of(20)
    answer = prepare(task)["call"](rows, 512)
    found = deviations(answer, exact_answers(task, rows, 512))
    assert set(found) == {"mean", "std", "percentiles"}
    assert max(found.values()) < 1e-5
    assert max(disagreement([answer], 512, exact_answers(task, rows, engine.REFERENCE_DRAWS, seed=1))) < 3.0


def test_a_call_that_draws_anew_leaves_the_kept_draws() -> None:
    calls, rows = prepare(TASK), TASK.rows_of(3)
    before = calls["call"](rows, 4)["mean"]
    assert not np.array_equal(calls["draws anew"](rows, 4)["mean"], before)
    np.testing.assert_array_equal(calls["call"](rows, 4)["mean"], before)


def test_one_draw_is_a_gaussian() -> None:
    exact = exact_answers(TASK, TASK.rows_of(5), samples=1)
    scores = torch.special.ndtri(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).numpy()
    np.testing.assert_allclose(exact["std"], NOISE)
    np.testing.assert_allclose(exact["percentiles"], exact["mean"][:, None] + NOISE * scores, atol=1e-12)


def test_a_linear_model_has_the_moments_that_are_known() -> None:
    task = EngineTask(())
    rows = task.rows_of(6)
    (layer,) = task.posterior()
    std = np.sqrt(rows**2 @ layer.weight_sigma[:, 0] ** 2 + layer.bias_sigma[0] ** 2)
    found = exact_answers(task, rows, 4096)
    np.testing.assert_allclose(found["mean"], rows @ layer.weight_mu[:, 0] + layer.bias_mu[0], atol=0.05 * std.max())
    np.testing.assert_allclose(found["epistemic_std"], std, rtol=0.05)


def test_disagreement_is_in_standard_errors_and_calls_are_pooled() -> None:
    share = 1.0 / 100 + 1.0 / engine.REFERENCE_DRAWS
    other = {"mean": np.array([1.0, 2.0]), "epistemic_std": np.array([0.5, 2.0])}
    shifted = {
        "mean": other["mean"] + 3.0 * other["epistemic_std"] * share**0.5,
        "epistemic_std": other["epistemic_std"],
    }
    assert disagreement([shifted], 100, other) == pytest.approx((3.0, 0.0))
    wider = {"mean": other["mean"], "epistemic_std": other["epistemic_std"] * np.exp(2.0 * (0.5 * share) ** 0.5)}
    assert disagreement([wider], 100, other) == pytest.approx((0.0, 2.0))
    draws = np.random.default_rng(0).normal(size=(4, 50, 3))
    answers = [{"mean": part.mean(axis=0), "epistemic_std": part.std(axis=0)} for part in draws]
    together = draws.reshape(200, 3)
    pooled = {"mean": together.mean(axis=0), "epistemic_std": together.std(axis=0)}
    assert disagreement(answers, 200, pooled) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_fastest_that_agrees_is_set_beside_murho() -> None:
    def of(ms: float, *, agrees: bool = True) -> dict[str, Any]:
        kinds = ("call", "percentiles", "mean and std")
        return {"ms": {kind: [ms, 2.0 * ms] for kind in kinds}, "agrees": agrees}

    systems = {engine.REFERENCE: of(2.0), "numpyro": of(3.0), "torchbnn": of(1.0, agrees=False), "posteriors": of(4.0)}
    assert best_of({"systems": systems}, "percentiles", "call") == ("numpyro", 1.5)


@pytest.mark.slow
def test_both_commands_run_without_any_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--systems", "", "--rounds", "1", "--output", str(tmp_path)]
    assert engine.main([*words, "--nets", "1x4", "--batches", "1,2", "--samples", "8"]) == 0
    assert "Murho, mixture" in capsys.readouterr().out
    assert steps.main([*words, "--cases", "1x50-32"]) == 0
    assert "Murho, M = 10" in capsys.readouterr().out
    first, second = (orjson.loads(line) for line in (tmp_path / "results.jsonl").read_bytes().splitlines())
    assert [cell["systems"][engine.REFERENCE]["agrees"] for cell in first["cells"]] == [True, True]
    assert second["cases"]["1x50-32"]["Murho, M = 5"]["rmse"] < 0.5


def test_a_table_to_train_on_is_the_same_every_time_and_its_noise_is_as_it_says() -> None:
    made, noise = training.made_up_table(20_000, 4)
    assert made.column_names == ["x0", "x1", "x2", "x3", "y"]
    assert made.equals(training.made_up_table(20_000, 4)[0])
    # sin(2a) + bc + d/2 of independent normals, and 0.3 exp(d/2) whose mean square is 0.09 exp(1/2).
    assert noise == pytest.approx(0.3 * math.exp(0.25), rel=0.03)
    assert np.std(made["y"].to_numpy()) > 2.0 * noise


@pytest.mark.slow
def test_the_real_command_is_run_and_takes_more_than_its_imports() -> None:
    report = training.measure(60, 2, budget=0.1)
    ((peak,), (bare,)) = report["peak"], report["bare"]
    assert peak > bare > 50 << 20  # of which PyTorch alone takes more
    assert report["processor"][0] > 0.0
    assert 0.9 * report["noise"] < report["rmse"] < 5.0 * report["noise"]
