"""Ratios, shares and tables of the engine benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.engine_parts.cells import Cell, Found, Rates
from benchmarks.engine_parts.report import (
    best_peer_table,
    memory_table,
    murho_table,
    peers_table,
    with_rates,
    written,
)
from benchmarks.peers.engine_task import EngineTask


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
    assert memory_table([cell]).splitlines()[-1] == "1x50     256  1000  2.6e+05         1.0                   3.0"
