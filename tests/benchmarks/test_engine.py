"""The command of the engine benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
import torch

from benchmarks import engine
from benchmarks.engine import main
from benchmarks.engine_parts import cells

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
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
                "torch": 2,
                "network": 2,
            }


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
def test_unknown_choices_are_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert said in capsys.readouterr().err
