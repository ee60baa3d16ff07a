"""How much the answer of a regression benchmark differs between seeds: a table of ranges over several fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.regression import answer
from benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.regression import System

__all__ = ["seed_range"]


def seed_range(make: Callable[[int], System], first: int, count: int) -> str:
    """Fits a system with several seeds; a table of the mean and the epistemic band at the places that are shown.

    Data, fit and draws all have the seed. Beyond the data nothing determines the mean, and fits disagree there.

    Args:
        make: Makes the system for a seed.
        first: First seed.
        count: Number of seeds, at least 1.

    Returns:
        For each place: the median over seeds and, in brackets, the least and the most.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        systems = [make(seed) for seed in range(first, first + count)]
        solved = [answer(system) for system in systems]
    finally:
        torch.set_num_threads(threads)
    system = systems[0]
    places = [int(np.abs(system.grid - place).argmin()) for place in system.shown_at]
    truth = system.function(system.grid)
    means = np.array([one.mean[places] for one in solved])
    deviations = np.array([one.epistemic_std[places] for one in solved])
    widths = np.array([np.ptp(one.function_band[places], axis=1) for one in solved])
    rows = [
        [
            f"{system.grid[place]:g}",
            "inside" if system.inside[place] else "outside",
            f"{truth[place] + 0.0:.2f}",
            *(_range(values[:, number]) for values in (means, deviations, widths)),
        ]
        for number, place in enumerate(places)
    ]
    heading = f"{system.name}, seeds {first} to {first + count - 1}: median (least to most)\n"
    return "\n".join([heading, table(["x", "data", "truth", "mean", "epistemic std", "width"], rows)])


def _range(values: np.ndarray) -> str:
    least, middle, most = (round(float(value), 2) + 0.0 for value in (values.min(), np.median(values), values.max()))
    return f"{middle:.2f} ({least:.2f} to {most:.2f})"
