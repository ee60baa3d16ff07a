"""The benchmark of the posterior engine: what is asked of the systems, what is made of their answers, what is shown."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch

from benchmarks import engine, environments
from benchmarks.engine import main, peer_systems
from benchmarks.engine_peers import ENGINE_PEERS, cells, machine
from benchmarks.engine_peers.cells import Cell, Found, Rates, System, measure, too_large
from benchmarks.engine_peers.exchange import (
    COLUMNS,
    EDGE,
    INPUTS,
    LEVELS,
    NOISE,
    SHOWN,
    EngineTask,
    drive,
    inverse_softplus,
    percentiles_of,
    shown_rows,
)
from benchmarks.engine_peers.memory import memory_of_a_call, memory_of_a_file
from benchmarks.engine_peers.murho_posterior import posterior_of
from benchmarks.engine_peers.murho_predictions import prepare
from benchmarks.engine_peers.reference import (
    Moments,
    deviations,
    disagreement,
    exact_answers,
    independent_moments,
)
from benchmarks.engine_peers.report import (
    best_peer_table,
    memory_table,
    murho_table,
    peers_table,
    with_rates,
    written,
)
from benchmarks.engine_peers.torch_parts import calls_of
from benchmarks.step_peers import ENVIRONMENTS, processes
from benchmarks.step_peers.processes import StepError
from murho.model.engines.prediction import PredictOptions
from tests.benchmarks.stand_ins import make_package, no_tfp, write_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from murho.model.engines.draws import Draws

TASK = EngineTask((6, 5))


def test_a_task_survives_the_command_line() -> None:
    task = EngineTask((64, 64), noise="heteroscedastic", variant="parallel", threads=2, seed=3)
    assert EngineTask.from_json(task.to_json()) == task
    assert task.sizes == [(INPUTS, 64), (64, 64), (64, 2)]


@pytest.mark.parametrize(
    ("hidden", "parameters", "products"),
    [
        ((50,), 901, 16 * 50 + 50),
        ((64, 64), 5313, 16 * 64 + 64 * 64 + 64),
        ((256, 256), 70401, 16 * 256 + 256 * 256 + 256),
    ],
)
def test_parameters_and_operations_are_counted(
    hidden: tuple[int, ...], parameters: int, products: int
) -> None:
    task = EngineTask(hidden)
    assert task.parameters == parameters
    assert task.flops(256, 32) == 2 * 256 * 32 * products
    drawn = task.posterior()
    assert sum(layer.weight_mu.size + layer.bias_mu.size for layer in drawn) == parameters


def test_the_posterior_is_the_same_for_everybody_and_its_sigmas_are_of_the_means_scale() -> None:
    task, again = EngineTask((64, 64)), EngineTask((64, 64), variant="parallel", threads=2)
    for one, other in zip(task.posterior(), again.posterior(), strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == np.float32
    middle = task.posterior()[1]
    scale = (2.0 / 64) ** 0.5
    assert middle.weight_mu.std() == pytest.approx(scale, rel=0.05)
    assert 0.15 * scale <= middle.weight_sigma.min() < middle.weight_sigma.max() <= 0.4501 * scale


def test_rows_lie_within_the_training_range_and_differ() -> None:
    rows = EngineTask((4,)).rows(1000)
    assert rows.shape == (1000, INPUTS)
    assert rows.dtype == np.float32
    assert len(np.unique(rows, axis=0)) == 1000
    assert 0.99 * EDGE < np.abs(rows[:, :COLUMNS]).max() <= EDGE
    assert not rows[:, COLUMNS:].any()  # the inputs for what lies beyond


def test_rho_is_the_inverse_of_softplus() -> None:
    sigma = np.array([1e-3, 0.1, 1.0, 30.0], dtype=np.float32)
    back = torch.nn.functional.softplus(torch.from_numpy(inverse_softplus(sigma)))
    np.testing.assert_allclose(back.numpy(), sigma, rtol=1e-5)


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (5, 5), (SHOWN, SHOWN), (20_000, SHOWN)])
def test_compared_rows_are_spread_over_the_batch(batch: int, count: int) -> None:
    rows = shown_rows(batch)
    assert len(rows) == count
    assert rows[0] == 0
    assert rows[-1] == batch - 1


def test_a_script_times_each_kind_of_call_and_answers_until_its_input_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def calls(task: EngineTask) -> dict[str, Any]:
        def call(rows: NDArray[np.float32], samples: int) -> dict[str, NDArray[Any]]:
            made.append("call")
            return {"mean": rows[:, 0], "epistemic_std": np.full(len(rows), float(samples))}

        def other(rows: NDArray[np.float32], samples: int) -> dict[str, NDArray[Any]]:
            made.append("other")
            return {}

        return {"call": call, "other": other}

    line = '{"batch": 100, "samples": 3, "seconds": 0.0}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(line + line))
    drive(calls, [TASK.to_json()])
    ready, first, second = (orjson.loads(said) for said in capsys.readouterr().out.splitlines())
    assert ready == {"parameters": TASK.parameters}
    # Once for the first, untimed in the rounds; then once a round.
    assert made == ["call", "other"] * 3
    assert first["first"] == second["first"]
    assert first["times"].keys() == second["times"].keys() == {"call", "other"}
    expected = TASK.rows(100)[shown_rows(100), 0]
    np.testing.assert_array_equal(np.float32(first["answers"]["mean"]), expected)
    assert first["answers"]["epistemic_std"] == [3.0] * SHOWN


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed takes 3, 1 and 2 seconds."""

    def times() -> Iterator[float]:
        now = 0.0
        for seconds in (3.0, 1.0, 2.0):
            yield now
            now += seconds
            yield now

    ticks = times()
    monkeypatch.setattr("benchmarks.engine_peers.machine.time.perf_counter", lambda: next(ticks))


def test_the_rate_of_products_is_the_best_of_its_repeats(clock: None) -> None:
    assert machine.product_rate(10, repeats=3) == 2.0 * 10**3


def test_the_rate_of_copies_counts_reading_and_writing(clock: None) -> None:
    assert machine.copy_rate(4096, repeats=3) == 2.0 * 4096


def test_rates_keep_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    products, copies = iter([3.0, 2.0]), iter([1.0, 5.0])
    monkeypatch.setattr(cells, "product_rate", lambda: next(products))
    monkeypatch.setattr(cells, "copy_rate", lambda: next(copies))
    rates = Rates()
    rates.measure()
    rates.measure()
    assert (rates.product, rates.copy) == (3.0, 5.0)


def test_murho_is_given_the_parameters_of_the_task_and_a_table_of_plain_columns() -> None:
    posterior = posterior_of(TASK)
    rows = TASK.rows(7)
    columns = {f"x{number}": rows[:, number].astype(np.float64) for number in range(COLUMNS)}
    np.testing.assert_array_equal(posterior.encoder.encode(columns), rows)
    assert not posterior.outside(torch.from_numpy(rows)).any()
    for number, layer in enumerate(TASK.posterior()):
        rho = posterior._tensors[f"layers.{number}.weight.rho"]
        np.testing.assert_allclose(
            torch.nn.functional.softplus(rho)[0].numpy(), layer.weight_sigma, rtol=1e-5
        )
    answer = posterior.predict_encoded(rows, PredictOptions(samples=8))
    assert answer.aleatoric_std is not None
    np.testing.assert_allclose(answer.aleatoric_std, NOISE, rtol=1e-6)


@pytest.mark.parametrize("samples", [1, 64, 256])
def test_percentiles_of_draws_are_those_of_numpy(samples: int) -> None:
    observations = np.random.default_rng(0).normal(size=(samples, 7)).astype(np.float32)
    expected = np.percentile(observations, LEVELS, axis=0).T
    np.testing.assert_allclose(percentiles_of(observations), expected, atol=1e-6)


def test_a_library_of_pytorch_is_timed_with_and_without_percentiles() -> None:
    calls = calls_of(lambda rows, samples: rows[:, :1].expand(samples, -1, -1))  # every draw says the same
    rows = TASK.rows(3)
    for kind, answer in ((kind, call(rows, 20_000)) for kind, call in calls.items()):
        np.testing.assert_allclose(answer["mean"], rows[:, 0], rtol=1e-5)
        np.testing.assert_allclose(answer["epistemic_std"], 0.0, atol=1e-5)
        assert ("percentiles" in answer) == (kind == "percentiles")
    scores = torch.special.ndtri(torch.tensor(LEVELS) / 100.0).numpy()
    np.testing.assert_allclose(answer["percentiles"], rows[:, :1] + NOISE * scores, atol=0.02)


def test_one_draw_is_a_gaussian() -> None:
    exact = exact_answers(TASK, TASK.rows(5), samples=1)
    scores = torch.special.ndtri(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).numpy()
    np.testing.assert_allclose(exact["std"], NOISE)
    np.testing.assert_allclose(exact["percentiles"], exact["mean"][:, None] + NOISE * scores, atol=1e-12)


@pytest.mark.parametrize("noise", ["fixed", "heteroscedastic", "mixture"])
def test_murhos_answers_are_those_of_double_precision(noise: str) -> None:
    task = EngineTask((32, 32), noise=noise)
    calls = prepare(task)
    rows = task.rows(20)
    found = deviations(calls["call"](rows, 64), exact_answers(task, rows, 64))
    assert set(found) == {"mean", "std", "percentiles"}
    assert max(found.values()) < 1e-5


def test_heteroscedastic_noise_starts_where_the_known_noise_is() -> None:
    exact = exact_answers(EngineTask((32,), noise="heteroscedastic"), TASK.rows(50), samples=1)
    assert np.median(exact["std"]) == pytest.approx(NOISE, rel=0.5)


@pytest.mark.parametrize("noise", ["heteroscedastic", "mixture"])
def test_mean_and_std_of_learned_noise_agree_with_another_monte_carlo(noise: str) -> None:
    task = EngineTask((16,), noise=noise)
    rows = task.rows(40)
    answer = prepare(task)["call"](rows, 1024)
    assert max(disagreement([answer], 1024, independent_moments(task, rows))) < 3.0


def test_the_other_calls_of_murho_draw_anew_and_stop_behind_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, rows = prepare(TASK), TASK.rows(3)
    made: list[int] = []
    monkeypatch.setattr(
        "benchmarks.engine_peers.murho_predictions.VALUES_AT_A_TIME", 8
    )  # two rows at a time, so that two calls are needed

    def counted(draws: Draws, rows: torch.Tensor) -> None:
        assert len(draws) == 4
        made.append(len(rows))

    before = calls["call"](rows, 4)["mean"]
    calls["fresh"](rows, 4)
    np.testing.assert_array_equal(calls["call"](rows, 4)["mean"], before)
    monkeypatch.setattr("benchmarks.engine_peers.murho_predictions.forward", counted)
    calls["network"](rows, 4)
    assert made == [2, 1]


def test_deviations_are_relative_to_the_larger_of_value_and_std() -> None:
    exact = {
        "mean": np.array([10.0, 0.0]),
        "std": np.array([2.0, 0.5]),
        "percentiles": np.array([[0.0, 4.0], [0.1, 0.2]]),
    }
    answer = {"mean": [10.1, 0.001], "std": [2.0, 0.51], "percentiles": [[0.0, 4.0], [0.1, 0.25]]}
    found = deviations(answer, exact)
    assert found == pytest.approx({"mean": 0.01, "std": 0.02, "percentiles": 0.1})


def test_the_other_monte_carlo_has_the_moments_of_a_linear_model() -> None:
    task = EngineTask(())
    rows = task.rows(6)
    (layer,) = task.posterior()
    mean = rows @ layer.weight_mu[:, 0] + layer.bias_mu[0]
    std = np.sqrt(rows**2 @ layer.weight_sigma[:, 0] ** 2 + layer.bias_sigma[0] ** 2)
    found = independent_moments(task, rows, draws=20_000)
    np.testing.assert_allclose(found.mean, mean, atol=0.05 * std.max())
    np.testing.assert_allclose(found.std, std, rtol=0.03)
    np.testing.assert_allclose(found.kurtosis, 3.0, atol=0.3)


def test_disagreement_is_in_standard_errors() -> None:
    other = Moments(400, np.array([1.0, 2.0]), np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    share = 1.0 / 100 + 1.0 / 400
    shifted = {"mean": other.mean + 3.0 * other.std * share**0.5, "epistemic_std": other.std}
    assert disagreement([shifted], 100, other) == pytest.approx((3.0, 0.0))
    wider = {"mean": other.mean, "epistemic_std": other.std * np.exp(2.0 * (0.5 * share) ** 0.5)}
    assert disagreement([wider], 100, other) == pytest.approx((0.0, 2.0))


def test_answers_of_several_calls_are_pooled() -> None:
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(4, 50, 3))
    answers = [{"mean": part.mean(axis=0), "epistemic_std": part.std(axis=0)} for part in draws]
    all_of_them = draws.reshape(200, 3)
    other = Moments(1000, all_of_them.mean(axis=0), all_of_them.std(axis=0), np.full(3, 3.0))
    assert disagreement(answers, 200, other) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_what_does_not_fit_is_left_out() -> None:
    stacked = System("it", "it", Path(sys.executable), "it", stacked=True)
    large, small = EngineTask((512, 512, 512)), EngineTask((256, 256))
    assert too_large(None, large, Cell(256, 1)) is None
    assert too_large(None, large, Cell(1000, 1)) == "1000 draws are 2.0 GiB"
    assert too_large(None, small, Cell(256, 20_000)) is None
    assert too_large(stacked, small, Cell(256, 1000)) is None
    reason = too_large(stacked, small, Cell(256, 20_000))
    assert reason == "a layer of all draws at once is 4.9 GiB"


# Function values 1 and -1, mean 0, std 1; a first call takes as many seconds as there are threads.
ANSWER = (
    '{{"times": {{"call": {seconds} * json.loads(line)["samples"]}}, '
    '"first": {{"call": float(os.environ["OMP_NUM_THREADS"])}}, '
    '"answers": {{"mean": [0.0] * json.loads(line)["batch"], "epistemic_std": [{std}] * json.loads(line)["batch"]}}}}'
)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = make_package(tmp_path, "engine_peers")
    for name, dies, seconds, std in (
        ("steady", None, 0.01, 1.0),
        ("wrong", None, 0.02, 100.0),
        ("stillborn", "at once", 0.01, 1.0),
        ("fickle", "later", 0.01, 1.0),
    ):
        answer = ANSWER.format(seconds=seconds, std=std)
        write_script(package, name, ready='{"parameters": 1}', answer=answer, dies=dies)
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    monkeypatch.setattr(Rates, "measure", lambda _: None)
    return package


def test_systems_that_fail_are_left_out_and_answers_that_are_wrong_are_found(scripts: Path) -> None:
    systems = [
        System(name, name, Path(sys.executable), name) for name in ("stillborn", "steady", "fickle", "wrong")
    ]
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


def _found(**times: list[float]) -> Found:
    return Found(times=times, first=dict.fromkeys(times, 2.0), errors=(1.2, 0.8))


MURHO = _found(
    call=[1e-3, 2e-3, 4e-3],
    fresh=[5e-3, 6e-3, 8e-3],
    moments=[5e-4, 1e-3, 2e-3],
    network=[4e-4, 5e-4, 1e-3],
)
MURHO.deviation = {"mean": 1.234e-7, "std": 2e-7, "percentiles": 3e-6}
TITLES = {"murho": "Murho", "slow": "A peer", "slower": "One more", "wrong": "Another"}


def _cell(batch: int) -> dict[str, Any]:
    peers = {"slow": _found(call=[2e-2, 2e-2, 2e-1], percentiles=[4e-2, 4e-2, 3e-1])}
    peers["slower"] = _found(call=[3e-2, 3e-2, 3e-1], percentiles=[3e-2, 3e-2, 3e-1])
    found = {"murho": MURHO, **peers}
    if batch == 1:
        found["wrong"] = _found(call=[1e-3, 1e-3, 1e-3], percentiles=[1e-3, 1e-3, 1e-3])
        found["wrong"].errors = (9.0, 1.0)
    said = written(EngineTask((50,)), Cell(256, batch), found, {} if batch == 1 else {"wrong": "too large"})
    return with_rates(said, Rates(product=1e9, copy=1e9))


def test_ratios_are_medians_of_the_rounds() -> None:
    cell = _cell(1)
    assert cell["systems"]["slow"]["ratios"] == {
        "call to call": 20.0,  # of 20, 10 and 50
        "call to fresh": 4.0,  # of 4, 3.33 and 25
        "call to moments": 40.0,
        "percentiles to call": 40.0,
        "percentiles to fresh": 8.0,
        "percentiles to moments": 80.0,
    }
    assert cell["systems"]["murho"]["ratios"]["fresh to call"] == 3.0  # of 5, 3 and 2
    assert cell["systems"]["murho"]["ratios"]["call to call"] == 1.0


def test_times_are_shared_out_between_the_machine_and_the_parts() -> None:
    murho = _cell(1)["systems"]["murho"]
    flops = 2 * 256 * (16 * 50 + 50)
    assert murho["peak_share"] == pytest.approx(flops / 2e-3 / 1e9, rel=1e-4)
    assert murho["streams"] == pytest.approx(2e-3 / (4 * 256 * 901 / 1e9), rel=1e-3)
    assert murho["after_forward"] == pytest.approx(0.75)  # 1 - the median of 0.4, 0.25 and 0.25
    assert "streams" not in _cell(32)["systems"]["murho"]


def test_the_tables_of_a_fixed_report() -> None:
    cells_of_it = [_cell(1), _cell(32)]
    assert peers_table(cells_of_it, TITLES) == "\n".join(
        (
            "system                     B=1, ms  ratio  B=32, ms  ratio  first, s  mean, s.e.  std, s.e.  agrees",
            "-------------------------  -------  -----  --------  -----  --------  ----------  ---------  ------",
            "Murho                            2      1         2      1         2         1.2        0.8     yes",
            "Murho, draws anew                6      3         6      3",
            "Murho, mean and std              1    0.5         1    0.5",
            "A peer                          20     20        20     20         2         1.2        0.8     yes",
            "A peer, percentiles too         40     40        40     40",
            "One more                        30     30        30     30         2         1.2        0.8     yes",
            "One more, percentiles too       30     30        30     30",
            "Another                          1    0.5                          2         9.0        1.0      NO",
            "Another, percentiles too         1    0.5",
        )
    )
    assert best_peer_table(cells_of_it, TITLES) == "\n".join(
        (
            "network    S   B  Murho, ms  best, ms     which  ratio  mean, std  best, ms   which  ratio",
            "-------  ---  --  ---------  --------  --------  -----  ---------  --------  ------  -----",
            "1x50     256   1          2        30  One more     30          1        20  A peer     40",
            "1x50     256  32          2        30  One more     30          1        20  A peer     40",
        )
    )
    assert murho_table(cells_of_it, {"murho": "known noise"}) == "\n".join(
        (
            "network              S   B  ms  draws anew  of peak  streams  after forward   mean    std  percentiles",
            "-----------------  ---  --  --  ----------  -------  -------  -------------  -----  -----  -----------",
            "1x50, known noise  256   1   2           6    21.8%     2.17            75%  1e-07  2e-07        3e-06",
            "1x50, known noise  256  32   2           6   696.3%                     75%  1e-07  2e-07        3e-06",
        )
    )
    cell = {"net": "1x50", "samples": 256, "batch": 1000, "draw_bytes": 2**20, "memory_bytes": 3 * 2**20}
    assert (
        memory_table([cell]).splitlines()[-1]
        == "1x50     256  1000  2.6e+05         1.0                   3.0"
    )


def test_a_peer_whose_environment_cannot_be_made_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "environment", no_tfp)
    systems, left_out = peer_systems(["tfp", "numpyro-parallel"], Path("nowhere"))
    assert left_out == {"tfp": "no network here"}
    assert [(system.script, system.variant, system.stacked) for system in systems] == [
        ("numpyro_predictions", "parallel", True)
    ]


def test_the_command_measures_murho_and_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cells, "product_rate", lambda: 1e9)
    monkeypatch.setattr(cells, "copy_rate", lambda: 1e9)
    monkeypatch.setattr(engine, "SECONDS", 0.01)
    threads = torch.get_num_threads()
    command = ["--systems", "", "--nets", "1x4", "--batches", "3,1", "--samples", "64", "--rounds", "2"]
    try:
        assert main([*command, "--output", str(tmp_path)]) == 0
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert "16-4-1, S = 64" in said
    assert "Murho, draws anew" in said
    kept = orjson.loads((tmp_path / "engine.json").read_bytes())
    assert kept["threads"] == 1
    assert kept["machine"]["cores"]
    assert "commit" in kept
    assert [(cell["samples"], cell["batch"]) for cell in kept["cells"]] == [(64, 1), (64, 3)]
    for cell in kept["cells"]:
        assert set(cell["systems"]) == {"murho", "murho-heteroscedastic", "murho-mixture"}
        for system in cell["systems"].values():
            assert system["agrees"]
            assert max(system["deviation"].values()) < 1e-5
            assert {kind: len(values) for kind, values in system["ms"].items()} == {
                "call": 2,
                "fresh": 2,
                "moments": 2,
                "exceedance": 2,
                "network": 2,
            }


@pytest.mark.slow
def test_memory_of_calls_and_files_is_above_what_was_there_before() -> None:
    task = EngineTask((16,))
    small, large = memory_of_a_call(task, 1, 64), memory_of_a_call(task, 2000, 256)
    values = 4 * 2000 * 256  # the network's outputs; what follows them takes a row at a time
    assert small + values // 2 < large < small + 8 * values
    said = memory_of_a_file(task, rows=3000, samples=64)
    assert said["rows_a_second"] == pytest.approx(3000 / said["seconds"])
    assert 0 < said["memory"] < said["peak"]
    assert said["input"] > 3000 * COLUMNS * 4


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(StepError, match=r"murho_memory ended with status 1.*\n(.*\n)*.*noise"):
        memory_of_a_call(EngineTask((4,), noise="loud"), 1, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is handed on")
def test_memory_is_not_that_of_the_process_that_started_it() -> None:
    ballast = np.ones(2**26)  # 512 MiB
    code = "from benchmarks.step_peers.exchange import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**20 < int(done.stdout) < ballast.nbytes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--systems", "jags"], "no system is called 'jags'"),
        (["--nets", "2x"], "'2x' is no network"),
        (["--nets", "0x5"], "'0x5' is no network"),
        (["--batches", "1,0"], "batches"),
        (["--samples", "many"], "samples"),
        (["--rounds", "0"], "rounds"),
    ],
)
def test_unknown_choices_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert said in capsys.readouterr().err


def test_every_peer_has_a_script_and_a_pinned_environment() -> None:
    folder = Path(cells.__file__).parent
    for peer in ENGINE_PEERS.values():
        assert (folder / f"{peer.script}.py").exists()
        assert all("==" in requirement for requirement in ENVIRONMENTS[peer.environment])
