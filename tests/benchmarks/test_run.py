"""A regression benchmark from its system to its files, with a fit cut short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch

from benchmarks import quartic, report, sinusoid
from benchmarks.report import run
from benchmarks.seed_range import seed_range

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = 300
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks") / "made" / "by the command"


@pytest.fixture(scope="module")
def short_run(output: Path) -> dict[str, Any]:
    return run(sinusoid.system(seed=1).with_epochs(EPOCHS), output)


def test_the_epistemic_band_is_wider_outside_of_the_data(short_run: dict[str, Any]) -> None:
    measures = short_run["measures"]
    assert measures["factor"] > 1.3
    assert measures["factor"] == pytest.approx(measures["band_width_outside"] / measures["band_width_inside"])


def test_the_mean_follows_the_data_even_after_a_short_fit(short_run: dict[str, Any]) -> None:
    # The function's own standard deviation on the range is 7.
    assert short_run["measures"]["rmse_inside"] < 2.0


def test_observations_spread_more_than_functions(short_run: dict[str, Any]) -> None:
    function_width = np.ptp(short_run["function_band"], axis=1)
    observation_width = np.ptp(short_run["observation_band"], axis=1)
    assert (observation_width > 0.95 * function_width).all()
    # 95 % of the noise alone are 3.92 wide.
    assert observation_width.min() > 3.9


def test_free_energy_is_that_of_the_parameters_behind_the_answer(short_run: dict[str, Any]) -> None:
    measures = short_run["measures"]
    assert measures["free_energy"] > measures["kl"] > 0.0
    assert measures["free_energy"] == pytest.approx(measures["final_free_energy"], rel=0.5)


def test_files_hold_the_figure_and_the_numbers(short_run: dict[str, Any], output: Path) -> None:
    assert (output / "sinusoid.png").read_bytes().startswith(PNG)
    written = orjson.loads((output / "sinusoid.json").read_bytes())
    assert written["measures"] == short_run["measures"]
    assert len(written["mean"]) == len(written["grid"]) == len(written["function_band"]) == 301
    assert written["seed"] == 1
    assert written["threads"] == 1
    assert written["torch"] == torch.__version__
    assert written["machine"]["cores"] >= 1
    assert "commit" in written
    assert written["options"]["prior"]["kind"] == "scale-mixture"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the picture out, which takes longer than a short fit."""
    monkeypatch.setattr(report, "save", lambda *_: None)


@pytest.mark.usefixtures("undrawn")
def test_the_same_seed_gives_the_same_answer_and_threads_stay_as_they_were(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = run(quartic.system(seed=4).with_epochs(20), tmp_path)
        second = run(quartic.system(seed=4).with_epochs(20), tmp_path)
        other = run(quartic.system(seed=5).with_epochs(20), tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(first["mean"], second["mean"])
    assert not np.array_equal(first["mean"], other["mean"])


@pytest.mark.usefixtures("undrawn")
def test_the_table_says_the_factor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run(quartic.system(seed=0).with_epochs(20), tmp_path)
    printed = capsys.readouterr().out
    assert f"factor {data['measures']['factor']:.2f}" in printed
    assert "-0.00" not in printed


def test_several_seeds_give_medians_and_ranges() -> None:
    printed = seed_range(lambda seed: quartic.system(seed).with_epochs(20), first=3, count=3)
    heading, *_, last = printed.splitlines()
    assert heading == "quartic, seeds 3 to 5: median (least to most)"
    median, least, most = (float(number) for number in re.findall(r"-?\d+\.\d\d", last)[1:4])
    assert least < median < most


def test_the_number_of_seeds_is_an_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "seed_range", lambda _, first, count: f"{count} from {first}")
    assert sinusoid.main(["--seed", "2", "--seeds", "5"]) == 0
    assert capsys.readouterr().out == "5 from 2\n"


@pytest.mark.parametrize("seed", ["-1", "x", str(2**62)])
def test_a_wrong_seed_is_refused(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sinusoid.main(["--seed", seed])
    assert "--seed" in capsys.readouterr().err


def test_an_output_that_is_no_directory_is_refused_before_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert quartic.main(["--output", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
