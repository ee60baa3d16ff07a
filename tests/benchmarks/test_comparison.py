"""Murho beside peers: who is compared with what, and how it is told."""

from typing import Any

import pytest

from benchmarks.comparison import standing


def run_of(crps: float, raw: float | None = None, width: float = 2.0) -> dict[str, Any]:
    levels = ("50", "80", "90", "95")
    bands = {"coverage": dict.fromkeys(levels, 0.9), "width": dict.fromkeys(levels, width)}
    return {
        "rmse": 1.0,
        "seconds": 3.0,
        "raw": None if raw is None else {"crps": raw, **bands},
        "calibrated": {"crps": crps, **bands},
    }


def test_a_peer_is_compared_by_its_better_answer_and_murho_by_its_calibrated_one() -> None:
    verdict = standing(
        {
            "Murho": [run_of(1.0, raw=0.5), run_of(1.2, raw=0.5)],
            "ngboost": [run_of(2.0, raw=0.9), run_of(2.0, raw=1.1)],
            "histogram-boosting": [run_of(1.3), run_of(1.5)],
        },
        "crps",
    )
    assert verdict["crps"] == pytest.approx({"Murho": 1.1, "ngboost": 1.0, "histogram-boosting": 1.4})
    assert verdict["answer"] == {"Murho": "calibrated", "ngboost": "raw", "histogram-boosting": "calibrated"}
    assert verdict["best_peer"] == "ngboost"
    assert verdict["behind"] == pytest.approx(10.0)
