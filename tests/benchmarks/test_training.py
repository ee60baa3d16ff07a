"""The benchmark of `murho train`: its tables, what it makes of its processes, and once the real command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from benchmarks import training
from benchmarks.processes import ProcessError
from benchmarks.training import made_up_table, main, measure
from murho.model.tables.files import read_table


def test_a_table_is_the_same_every_time_and_has_the_shape_asked_for() -> None:
    table = made_up_table(40, 3).table
    assert table.column_names == ["x0", "x1", "x2", "y"]
    assert table.num_rows == 40
    assert table.equals(made_up_table(40, 3).table)
    assert not table.equals(made_up_table(40, 3, seed=1).table)


def test_the_function_of_a_table_is_not_linear_and_its_noise_is_as_it_says() -> None:
    made = made_up_table(20_000, 4)
    columns = [made.table[name].to_numpy() for name in made.table.column_names]
    inputs, target = np.stack(columns[:-1], axis=1), columns[-1]
    line, *_ = np.linalg.lstsq(inputs, made.function, rcond=None)
    assert np.var(made.function - inputs @ line) > 0.5 * np.var(made.function)
    assert np.quantile(made.sigma, 0.9) > 2.0 * np.quantile(made.sigma, 0.1)
    assert made.noise < 0.5 * np.std(made.function)
    standardised = (target - made.function) / made.sigma
    noisy = made.sigma > np.median(made.sigma)
    for part in (standardised[noisy], standardised[~noisy]):
        assert part.mean() == pytest.approx(0.0, abs=0.04)
        assert part.std() == pytest.approx(1.0, abs=0.03)
    assert made.noise == pytest.approx(np.sqrt(np.mean((target - made.function) ** 2)), rel=0.03)


class _Processes:
    """Stands in for `run_script`: a training that takes more each time, and a bare process of 100 MiB."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, ...]] = []

    def __call__(self, script: str, *arguments: str, given: bytes = b"") -> dict[str, Any]:
        if script == "bare_process":
            assert orjson.loads(given) == ["numpy", "torch"]
            return {"peak": 100 << 20, "missed": []}
        self.trained.append(arguments)
        _, data, *_, checkpoints = arguments[:6]
        number = len(self.trained)
        version = Path(checkpoints) / "table" / str(number)
        version.mkdir(parents=True)
        rmse = made_up_table(read_table(Path(data)).num_rows, 3).noise * 1.25
        (version / "model.json").write_bytes(orjson.dumps({"metrics": {"rmse": rmse}}))
        return {"peak": (200 + 10 * number**2) << 20, "processor": 2.0**number, "modules": ["numpy", "torch"]}


def test_the_table_shows_medians_of_the_rounds_and_the_file_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = _Processes()
    monkeypatch.setattr(training, "run_script", processes)
    output = tmp_path / "made by the command"
    assert main(["--tables", "20x3", "--rounds", "3", "--output", str(output)]) == 0
    line = capsys.readouterr().out.splitlines()[2].split()
    assert line[:3] == ["20", "x", "3"]
    assert line[4:] == ["4.0", "240", "100", "140", "1.25"]  # of 2, 4 and 8 s; of 210, 240 and 290 MiB
    kept = orjson.loads((output / "training.json").read_bytes())
    (table,) = kept["tables"]
    assert table["processor"] == [2.0, 4.0, 8.0]
    assert table["peak_memory_bytes"] == [210 << 20, 240 << 20, 290 << 20]
    assert len(table["wall"]) == 3
    assert kept["budget"] is None
    # The defaults: nothing but the table, its target and where the checkpoint goes.
    assert {arguments[0] for arguments in processes.trained} == {"train"}
    assert {arguments[2::2] for arguments in processes.trained} == {("--target", "--checkpoints")}


def test_a_budget_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = _Processes()
    monkeypatch.setattr(training, "run_script", processes)
    measure(20, 3, budget=2.5)
    assert processes.trained[0][-2:] == ("--budget", "2.5")


def test_tables_measured_before_a_failure_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def out_of_memory(rows: int, inputs: int, **_: object) -> dict[str, Any]:
        if rows > 20:
            raise ProcessError("murho_command ended with status -9")
        return {"rows": rows, "inputs": inputs}

    monkeypatch.setattr(training, "measure", out_of_memory)
    assert main(["--tables", "20x3,30x3", "--output", str(tmp_path)]) == 1
    assert "status -9" in capsys.readouterr().err
    kept = orjson.loads((tmp_path / "training.json").read_bytes())
    assert kept["tables"] == [{"rows": 20, "inputs": 3}]


@pytest.mark.slow
def test_the_real_command_is_run_and_takes_more_than_its_imports(tmp_path: Path) -> None:
    assert main(["--tables", "60x2", "--budget", "0.1", "--output", str(tmp_path)]) == 0
    (table,) = orjson.loads((tmp_path / "training.json").read_bytes())["tables"]
    ((peak,), (bare,)) = table["peak_memory_bytes"], table["bare_memory_bytes"]
    assert peak > bare > 50 << 20  # of which PyTorch alone takes more
    assert table["processor"][0] > 0.0
    assert table["wall"][0] > 0.0
    # Modules that others make and that have no file; all that are large must be there.
    assert not {name.partition(".")[0] for name in table["not_imported"]} & {
        "model",
        "numpy",
        "pyarrow",
        "torch",
    }
    noise, target = table["noise"], made_up_table(60, 2).table["y"].to_numpy()
    assert 0.9 * noise < table["rmse"] < 1.2 * target.std()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tables", "1000"], "'1000' is no table"),
        (["--rounds", "0"], "rounds"),
        (["--budget", "x"], "budget"),
    ],
)
def test_what_is_no_choice_is_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert said in capsys.readouterr().err
