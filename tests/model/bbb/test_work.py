"""The work of a fit: more for more of anything, and about what it takes."""

from __future__ import annotations

import pytest

from murho.model.bbb.fit import WorkModel
from murho.model.bbb.network import Architecture

SMALL = Architecture(inputs=6, hidden=(64, 64), outputs=2, members=5, skip=True)


def work(rows: float = 34.0, draws: int = 1, **changes: object) -> float:
    sizes: dict[str, object] = {"inputs": 6, "hidden": (64, 64), "outputs": 2, "members": 5, "skip": True} | changes
    return WorkModel(Architecture(**sizes)).step(rows, draws)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"rows": 500.0},
        {"draws": 4},
        {"members": 10},
        {"inputs": 100},
        {"outputs": 9},
        {"hidden": (64, 64, 64)},
        {"hidden": (128, 64)},
    ],
)
def test_more_of_anything_is_more_work(more: dict[str, object]) -> None:
    assert work(**more) > 1.03 * work()  # type: ignore[arg-type]


def test_a_step_has_about_the_measured_processor_time() -> None:
    assert work() == pytest.approx(0.0014, rel=0.2)
    assert work(500.0, members=10, inputs=20) == pytest.approx(0.0139, rel=0.2)


def test_a_validation_has_about_the_measured_processor_time() -> None:
    assert WorkModel(SMALL).validation(5000, 16) == pytest.approx(0.15, rel=0.3)


def test_scores_of_mixtures_take_longer() -> None:
    model = WorkModel(SMALL)
    assert model.score(300, 32, 3) > model.score(300, 32, 1) > model.validation(300, 32)


def test_a_gpu_does_large_work_in_less_time() -> None:
    large = Architecture(inputs=50, hidden=(512, 512), outputs=2, members=10)
    assert WorkModel(large, "cuda").step(500, 1) < 0.05 * WorkModel(large).step(500, 1)
